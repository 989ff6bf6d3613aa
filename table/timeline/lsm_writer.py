"""Writes the archive of table versions 8 and 9 (see ``lsm_history``).

What readers see changes with one write: the manifest's new version. Everything before it lies there
unnamed, and is written anew by the next archival; what no kept manifest names is deleted. All of it
happens under the table's lock. Source: ``LSMTimelineWriter`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from tempfile import SpooledTemporaryFile

import pyarrow as pa

from table.codec.avro_container import load_schema
from table.log.parquet_format import avro_key_values, parquet_writer
from table.storage.scratch import temporary_writes
from table.storage.storage import Storage, StreamingFile
from table.timeline.lsm_history import VERSION_FILE, LsmHistory, ManifestFile

#: Called before what must not happen once the lock is lost; raises then.
Check = Callable[[], None]

_VERSION_1 = 1
_ROWS_OF_A_GROUP = 64
_PART_BYTES, _IN_MEMORY_BYTES = 8 << 20, 16 << 20
_FIELDS = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class ArchivedInstant:
    """One row of the archive.

    Attributes:
        requested_at: names the instant.
        completed_at: when it completed.
        action: as its completed file names it.
        metadata: bytes of that file.
        plan: bytes of what was planned, of a service or a replacement; else None.
    """

    requested_at: str
    completed_at: str
    action: str
    metadata: bytes
    plan: bytes | None = None


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """How the tree grows; the defaults are Apache's.

    Attributes:
        files_to_merge: so many files of a layer become one of the next
            (``hoodie.timeline.compaction.batch.size``).
        max_merged_bytes: no more than about so many bytes are merged
            (``hoodie.timeline.compaction.target.file.max.bytes``).
        manifests_kept: so many manifests stay (``hoodie.timeline.manifest.retained.versions``).
    """

    files_to_merge: int = 10
    max_merged_bytes: int = 1_048_576_000
    manifests_kept: int = 3


DEFAULTS = HistorySettings()


class LsmWriter:
    """Adds instants to one table's history; one at a time, under the table's lock.

    Args:
        storage: of the table.
        history: reads what is there.
        check: called before each change that counts; raises when the lock is lost.
        settings: how the tree grows.
    """

    def __init__(
        self,
        storage: Storage,
        history: LsmHistory,
        check: Check,
        settings: HistorySettings = DEFAULTS,
    ) -> None:
        self._storage, self._history = storage, history
        self._check, self._settings = check, settings

    def add(self, instants: Iterator[ArchivedInstant], first: str, last: str) -> None:
        """Add instants as a file of layer 0.

        Args:
            instants: oldest first, at least one; taken as the file is written.
            first: requested time of the first.
            last: requested time of the last.
        """
        before = self._history.current()
        file = self._write(ManifestFile.of(first, last, 0, 0), _batches(instants))
        self._publish([*before, file])

    def tidy(self) -> None:
        """Merge layers that have become too long, then delete what no kept manifest names."""
        layer = 0
        while (files := mergeable(self._history.current(), layer, self._settings)) is not None:
            self._merge(files, layer + 1)
            layer += 1
        self._delete_old(self._settings.manifests_kept + layer)

    def _merge(self, files: Sequence[ManifestFile], layer: int) -> None:
        before = self._history.current()
        first, last = min(f.first for f in files), max(f.last for f in files)
        rows = _each_once(row for file in files for row in self._rows_of(file))
        merged = self._write(ManifestFile.of(first, last, layer, 0), rows)
        self._publish([*(file for file in before if file not in files), merged])

    def _rows_of(self, file: ManifestFile) -> Iterator[pa.RecordBatch]:
        version = self._history.newest_version()
        assert version is not None
        return self._history.rows_of(file, version)

    def _write(self, wanted: ManifestFile, rows: Iterable[pa.RecordBatch]) -> ManifestFile:
        """Write a file that no manifest names yet, in place of what a dead archiver left there."""
        file = _first_unnamed(wanted, self._named())
        path = f"{self._history.folder}/{file.name}"
        self._storage.delete([path])
        with (
            temporary_writes(f"the archive file {path}"),
            SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool,
        ):
            _write_parquet(spool, rows)
            size_bytes = spool.tell()
            spool.seek(0)
            _copy(spool, self._storage.create_streaming(path))
        return replace(file, size_bytes=size_bytes)

    def _named(self) -> set[str]:
        """Names of the files that some manifest names: readers may still use an older one."""
        history = self._history
        newest = history.newest_version() or 0
        published = (version for version in history.versions() if version <= newest)
        return {file.name for version in published for file in history.manifest(version)}

    def _publish(self, files: Sequence[ManifestFile]) -> None:
        """The next version of the history: its manifest first, then the number that names it.

        A manifest beyond the number is one that a dead archiver left; it is written over.
        """
        version = (self._history.newest_version() or 0) + 1
        entries = [{"fileName": file.name, "fileLen": file.size_bytes} for file in files]
        folder = self._history.folder
        self._check()
        manifest = json.dumps({"files": entries}, indent=2).encode()
        self._storage.put(f"{folder}/manifest_{version}", manifest)
        self._storage.put(f"{folder}/{VERSION_FILE}", str(version).encode())

    def _delete_old(self, manifests_kept: int) -> None:
        history = self._history
        newest = history.newest_version() or 0
        versions = [version for version in history.versions() if version <= newest]
        kept = versions[-manifests_kept:]
        named = {file.name for version in kept for file in history.manifest(version)}
        manifests = [f"manifest_{version}" for version in versions if version not in kept]
        unnamed = [name for name in history.data_files() if name not in named]
        self._check()
        self._storage.delete([f"{history.folder}/{name}" for name in (*manifests, *unnamed)])


def mergeable(
    files: Iterable[ManifestFile], layer: int, settings: HistorySettings
) -> list[ManifestFile] | None:
    """The oldest files of a layer that become one of the next; None while there are few of them.

    Files that reach the size limit alone are passed over.
    """
    listed = sorted((f for f in files if f.layer == layer), key=lambda f: (f.first, f.last))
    if len(listed) < settings.files_to_merge:
        return None
    chosen: list[ManifestFile] = []
    for file in listed:
        chosen.append(file)
        is_full = sum(f.size_bytes for f in chosen) > settings.max_merged_bytes
        if is_full and len(chosen) == 1:
            chosen = []
        elif is_full or len(chosen) == settings.files_to_merge:
            break
    return chosen if len(chosen) > 1 else None


def _first_unnamed(wanted: ManifestFile, named: Collection[str]) -> ManifestFile:
    """The wanted file, or the same range in the next layer whose file no manifest names.

    A commit and its savepoint have the same requested time, so that two archivals may write one
    range. The layer decides only which files are merged together.
    """
    of_layers = (
        ManifestFile.of(wanted.first, wanted.last, layer, wanted.size_bytes)
        for layer in count(wanted.layer)
    )
    return next(file for file in of_layers if file.name not in named)


def _batches(instants: Iterator[ArchivedInstant]) -> Iterator[pa.RecordBatch]:
    while some := list(islice(instants, _ROWS_OF_A_GROUP)):
        yield pa.RecordBatch.from_pydict(
            {
                "instantTime": [i.requested_at for i in some],
                "completionTime": [i.completed_at for i in some],
                "action": [i.action for i in some],
                "metadata": [i.metadata for i in some],
                "plan": [i.plan for i in some],
                "version": [_VERSION_1] * len(some),
            },
            schema=_FIELDS,
        )


def _each_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of each instant once: an archiver that died may have left one in two files."""
    seen: set[tuple[str, str]] = set()
    for batch in batches:
        rows = batch.select(_FIELDS.names).cast(_FIELDS)
        names = zip(rows["instantTime"].to_pylist(), rows["action"].to_pylist(), strict=True)
        is_new = []
        for name in names:
            is_new.append(name not in seen)
            seen.add(name)
        yield rows.filter(pa.array(is_new))


def _write_parquet(sink: SpooledTemporaryFile[bytes], rows: Iterable[pa.RecordBatch]) -> None:
    with parquet_writer(sink, _FIELDS) as parquet:
        for batch in rows:
            parquet.write_batch(batch)
        parquet.add_key_value_metadata(avro_key_values(load_schema("HoodieLSMTimelineInstant")))


def _copy(source: SpooledTemporaryFile[bytes], target: StreamingFile) -> None:
    try:
        while data := source.read(_PART_BYTES):
            target.write(data)
        target.close()
    except BaseException:
        target.abort()
        raise
