"""Translates the index of a job."""

from __future__ import annotations

from collections.abc import Iterator

from lakemark.config.parquet_settings import PARQUET_DEFAULTS
from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import NotConvertible, shown, whole_number
from streamer.migration.table import FILTER, RECORD_KEY, fields_of, inserts

_TYPE, _ENGINE = "hoodie.index.type", "hoodie.index.bucket.engine"
_COUNT, _HASHED = "hoodie.bucket.index.num.buckets", "hoodie.bucket.index.hash.field"
_SPLIT = "hoodie.bucket.index.split.threshold"
_MERGE = "hoodie.bucket.index.merge.threshold"
_MAX_FILE = "hoodie.parquet.max.file.size"
_PARTITION = "hoodie.datasource.write.partitionpath.field"

#: The number of buckets without a setting.
_DEFAULT_COUNT = 256

_LOCAL = ("", "SIMPLE", "BLOOM", "RECORD_LEVEL_INDEX")
_METADATA = "hoodie.metadata.enable"
#: For each record index: the property that lets writers build it, and the index of a pipeline. As
#: long as it is not built, a writer of Apache Hudi looks keys up in the files.
_BUILT = {
    "RECORD_INDEX": ("hoodie.metadata.global.record.level.index.enable", "record_index"),
    "GLOBAL_RECORD_LEVEL_INDEX": (
        "hoodie.metadata.global.record.level.index.enable",
        "record_index",
    ),
    "RECORD_LEVEL_INDEX": (
        "hoodie.metadata.record.level.index.enable",
        "partitioned_record_index",
    ),
}
_RECORD_INDEXES = ("RECORD_INDEX", "GLOBAL_RECORD_LEVEL_INDEX")
#: For each index of the whole table: the property that decides whether rows move to another
#: partition, and its default.
_GLOBAL = {
    "GLOBAL_SIMPLE": ("hoodie.simple.index.update.partition.path", "true"),
    "GLOBAL_BLOOM": ("hoodie.bloom.index.update.partition.path", "true"),
    **dict.fromkeys(_RECORD_INDEXES, ("hoodie.record.index.update.partition.path", "false")),
}


def convert_index(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the index and its settings."""
    kind = job.get(_TYPE).upper()
    if kind == "BUCKET":
        yield from _buckets(job)
    else:
        yield from _harmless(job.named(_ENGINE, _COUNT, _HASHED, _SPLIT, _MERGE), "BUCKET")
        if kind in (*_GLOBAL, *_LOCAL):
            yield _without_buckets(job, kind)
        else:
            remedy = f"{shown(_TYPE, kind)}: lakemark has no such index"
            yield Missing((_TYPE,), remedy, True)
        if kind in _GLOBAL:
            yield from _moves(job, kind)
    moved = _GLOBAL[kind][0] if kind in _GLOBAL else ""
    others = {name for name, _ in _GLOBAL.values()} - {moved}
    yield from _harmless(job.named(*sorted(others)), "another type")


def _harmless(names: tuple[str, ...], kind: str) -> Iterator[Outcome]:
    if names:
        yield Harmless(names, f"it belongs to indexes of {kind}")


def _without_buckets(job: Job, kind: str) -> Outcome:
    """Return the index of a table whose keys are looked up."""
    enable, name = _BUILT.get(kind, ("", ""))
    is_built = (
        enable != "" and job.get(enable).lower() == job.get(_METADATA, "true").lower() == "true"
    )
    if is_built and not inserts(job):
        return Sets("table.index", name, job.named(_TYPE, enable))
    index = f"index {kind}" if job.has(_TYPE) else "default index"
    comment = "" if kind in _BUILT else f"Like the {index} of Apache Hudi, it looks up keys."
    return Sets("table.index", "lookup", job.named(_TYPE), comment)


def _moves(job: Job, kind: str) -> Iterator[Outcome]:
    name, default = _GLOBAL[kind]
    names = job.named(_TYPE, name)
    moves = job.get(name, default).lower() == "true"
    if inserts(job) and fields_of(job, _PARTITION) and job.is_set(FILTER) and not moves:
        remedy = (
            "the job drops a record whose key is in any partition, but table.duplicates: drop "
            "compares only the keys of the record's partition; use --op UPSERT"
        )
        yield Missing((*names, FILTER), remedy, True)
        return
    if not fields_of(job, _PARTITION) or inserts(job):
        yield Harmless(names, "no row changes its partition")
        return
    comment = "Each key is unique in the whole table, so a row moves if its partition changes."
    yield Sets("table.partition_change", "move", names, comment)
    if not moves:
        remedy = (
            "a row whose partition changes moves to the new partition; Apache Hudi keeps it in the "
            "old one, where queries that skip folders miss it"
        )
        yield Missing(job.named(name) or job.named(_TYPE), remedy, True)


def _buckets(job: Job) -> Iterator[Outcome]:
    if inserts(job):
        remedy = "table.operation: insert needs a table without buckets; use --op UPSERT"
        yield Missing(job.named(_TYPE, "--op"), remedy, True)
    hashed = fields_of(job, _HASHED)
    if hashed and hashed != fields_of(job, RECORD_KEY):
        remedy = "lakemark hashes the whole record key; continue the table with Apache Hudi"
        yield Missing((_HASHED,), remedy, True)
    else:
        yield from _harmless(job.named(_HASHED), "BUCKET, and names the record key")
    if job.get(_ENGINE).upper() == "CONSISTENT_HASHING":
        yield Sets("table.index", "consistent_hashing", job.named(_TYPE, _ENGINE))
        reason = "the table stores the buckets of each partition"
        yield from (Harmless((name,), reason) for name in job.named(_COUNT))
        yield from _limit(job, _SPLIT, "bucket_resizing.split_above_bytes")
        yield from _limit(job, _MERGE, "bucket_resizing.merge_below_bytes")
        return
    yield from _harmless(job.named(_SPLIT, _MERGE), "CONSISTENT_HASHING")
    names = job.named(_TYPE, _ENGINE, _COUNT)
    comment = "" if job.has(_COUNT) else "The default of Apache Hudi."
    try:
        yield Sets(
            "table.buckets", whole_number(job.get(_COUNT, f"{_DEFAULT_COUNT}")), names, comment
        )
    except NotConvertible as reason:
        yield Missing(names, str(reason), True)


def _limit(job: Job, name: str, setting: str) -> Iterator[Outcome]:
    """Yield a limit of resizing, which Apache Hudi states as a multiple of the file size."""
    if not job.named(name):
        return
    try:
        size = whole_number(job.get(_MAX_FILE, str(PARQUET_DEFAULTS.max_file_bytes)))
        yield Sets(setting, int(float(job.get(name)) * size), (name,))
    except ValueError:
        yield Missing((name,), "this is not a number; correct it")
