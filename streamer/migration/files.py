"""Translates the file sources of a job: the folder, the format and the choice of the files."""

from __future__ import annotations

from collections.abc import Iterator

from streamer.migration.job import SOURCE_CLASS, Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number

_SOURCES = "org.apache.hudi.utilities.sources."

#: The ``source.format`` of each file source.
_FORMATS = {
    f"{_SOURCES}JsonDFSSource": "json",
    f"{_SOURCES}CsvDFSSource": "csv",
    f"{_SOURCES}ParquetDFSSource": "parquet",
    f"{_SOURCES}AvroDFSSource": "avro",
}

_ROOT, _CSV = "hoodie.streamer.source.dfs.root", "hoodie.streamer.csv."
_HEADER, _SEPARATOR, _NULL = f"{_CSV}header", f"{_CSV}sep", f"{_CSV}nullValue"
_CHECKPOINT, _LIMIT = "--checkpoint", "--source-limit"

#: The limits of ``source.max_bytes_per_batch``.
_LEAST_BYTES, _MOST_BYTES = 1 << 10, 512 << 20


def file_format(job: Job) -> str | None:
    """Return the ``source.format`` of a job; None if its source does not read files."""
    given = job.get(SOURCE_CLASS).lower()
    return next((kind for name, kind in _FORMATS.items() if name.lower() == given), None)


def convert_files(job: Job, kind: str) -> Iterator[Outcome]:
    """Yield what becomes of a file source whose files have the format ``kind``."""
    yield Sets("source.kind", "files", job.named(SOURCE_CLASS))
    yield Sets("source.format", kind)
    if job.has(_ROOT):
        yield Sets("source.path", job.get(_ROOT), (_ROOT,))
    else:
        yield Missing((_ROOT,), "it is missing, but HoodieStreamer needs it; add it", True)
    yield from _first_files(job)
    yield from _batch_size(job)
    if kind == "csv":
        yield from _csv(job)


def _first_files(job: Job) -> Iterator[Outcome]:
    if not job.has(_CHECKPOINT):
        return
    if not job.get(_CHECKPOINT).isdigit():
        remedy = f"{shown(_CHECKPOINT, job.get(_CHECKPOINT))}: this is no time in milliseconds"
        yield Missing((_CHECKPOINT,), remedy, True)
        return
    comment = "Only for a table without a checkpoint."
    yield Sets("source.modified_after", int(job.get(_CHECKPOINT)), (_CHECKPOINT,), comment)


def _batch_size(job: Job) -> Iterator[Outcome]:
    if not job.named(_LIMIT):
        return
    try:
        limit = whole_number(job.get(_LIMIT))
    except NotConvertible as reason:
        yield Missing((_LIMIT,), str(reason))
        return
    if _LEAST_BYTES <= limit <= _MOST_BYTES:
        yield Sets("source.max_bytes_per_batch", limit, (_LIMIT,))
    else:
        yield Harmless((_LIMIT,), "source.max_bytes_per_batch has its default")


def _csv(job: Job) -> Iterator[Outcome]:
    if job.has(_HEADER):
        yield Sets("source.header", job.is_set(_HEADER), (_HEADER,))
    if job.has(_SEPARATOR):
        yield Sets("decode.delimiter", job.get(_SEPARATOR), (_SEPARATOR,))
    if job.named(_NULL):
        yield Sets("decode.null_text", job.get(_NULL), (_NULL,))
