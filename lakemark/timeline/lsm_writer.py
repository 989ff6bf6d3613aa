"""Writes the archive of table versions 8 and 9 (see ``lsm_history``).

A manifest is created, never replaced. Afterwards the manifest's number is written to ``_version_``,
where readers find the number. If an archiver dies before it writes the manifest, no manifest names
its data file, and the next archival deletes that file. If an archiver dies after it wrote the
manifest, the next archival continues from that manifest. An archiver holds the table's lock. If it
loses the lock and resumes later, it does no harm (see ``LsmWriter``). Apache Hudi replaces an
existing manifest of the same number, so Apache Hudi must not archive at the same time. Source:
``LSMTimelineWriter`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from tempfile import SpooledTemporaryFile

import pyarrow as pa

from lakemark.codec.avro_container import load_schema
from lakemark.errors import CorruptData, WriteConflict
from lakemark.log.parquet_format import avro_key_values, parquet_writer
from lakemark.model.instant import Instant
from lakemark.storage.scratch import temporary_writes
from lakemark.storage.storage import AlreadyExists, PreconditionFailed, Storage, StreamingFile
from lakemark.timeline.archived_timeline import just_after
from lakemark.timeline.lsm_history import HistoryHead, LsmHistory
from lakemark.timeline.lsm_manifest import VERSION_FILE, ManifestFile, is_data_file

#: Called before each change that needs the lock; raises if the lock was lost.
Check = Callable[[], None]

_VERSION_1 = 1
_ROWS_OF_A_GROUP = 64
_ATTEMPTS = 10
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
        requested_at: the instant's requested time.
        completed_at: the instant's completion time.
        action: the action in the name of the completed file.
        metadata: the content of the completed file.
        plan: the plan of a table service or a replace commit; None for other instants.
    """

    requested_at: str
    completed_at: str
    action: str
    metadata: bytes
    plan: bytes | None = None


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """Settings of the log-structured merge tree; the defaults are Apache Hudi's.

    Attributes:
        files_to_merge: the number of files of a layer that are merged into one file of the next
            layer (``hoodie.timeline.compaction.batch.size``).
        max_merged_bytes: the approximate size limit of a merged file
            (``hoodie.timeline.compaction.target.file.max.bytes``).
        manifests_kept: the number of manifests to keep
            (``hoodie.timeline.manifest.retained.versions``).
    """

    files_to_merge: int = 10
    max_merged_bytes: int = 1_048_576_000
    manifests_kept: int = 3


DEFAULTS = HistorySettings()


class LsmWriter:
    """The ``ArchiveWriter`` of one table's history. The caller holds the table's lock.

    An archiver that lost the lock while it was paused does no harm when it resumes:

    - It writes data files with new names, and then creates the next manifest. If another archiver
      has already created a manifest of that number, the creation fails, and no manifest names the
      data files.
    - The number in ``_version_`` only increases.
    - It deletes only files that no kept manifest names. These files existed before it created its
      own manifest. So their writer can no longer name them in a manifest, because the manifest of
      that number already exists.

    Args:
        storage: the table's storage.
        history: the reader of the table's history.
        check: called before each change that needs the lock; raises if the lock was lost.
        settings: the settings of the log-structured merge tree.
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
        self._head: HistoryHead | None = None
        self._published: dict[int, Sequence[ManifestFile]] = {}

    def find_archived(self, first: str, last: str) -> tuple[Instant, ...]:
        """See ``ArchiveWriter.find_archived``."""
        head = self._newest()
        archived = self._history.timeline_of(head.number, head.files)
        return archived.instants(first, just_after(last))

    def add(self, instants: Iterator[ArchivedInstant], first: str, last: str) -> None:
        """Add instants as a file of layer 0.

        Args:
            instants: at least one instant, oldest first. Each is consumed only when it is written.
            first: the requested time of the first instant.
            last: the requested time of the last instant.

        Raises:
            WriteConflict: another archiver has created the next version.
        """
        # model: write history
        file = self._write(ManifestFile.of(first, last, 0, 0), _batches(instants))
        self._publish([*self._newest().files, file])

    def merge_files(self) -> None:
        """Merge layers that have enough files, then delete files that no kept manifest names.

        Raises:
            WriteConflict: another archiver has created the next version.
        """
        layer = 0
        while (files := mergeable(self._newest().files, layer, self._settings)) is not None:
            self._merge(files, layer + 1)
            layer += 1
        if self._published:
            self._delete_old(self._settings.manifests_kept + layer)

    def clear(self) -> None:
        """See ``ArchiveWriter.clear``. The next manifest names no data files."""
        if self._newest().files:
            self._publish(())
        self._delete_old(manifests_kept=1)

    def _newest(self) -> HistoryHead:
        """Return the newest version: read at the first call, then updated by this writer."""
        if self._head is None:
            self._head = self._history.head()
            if self._head.is_ahead:
                self._check()
                self._move_pointer(self._head.number)
        return self._head

    def _merge(self, files: Sequence[ManifestFile], layer: int) -> None:
        first, last = min(f.first for f in files), max(f.last for f in files)
        version = self._newest().number
        batches = (batch for file in files for batch in self._history.rows_of(file, version))
        merged = self._write(ManifestFile.of(first, last, layer, 0), _without_duplicates(batches))
        self._publish([*(file for file in self._newest().files if file not in files), merged])

    def _write(self, wanted: ManifestFile, rows: Iterable[pa.RecordBatch]) -> ManifestFile:
        """Write a data file under an unused name, before a manifest names the file."""
        head = self._newest()
        file = _first_free(wanted, head.names)
        path = f"{self._history.folder}/{file.name}"
        with (
            temporary_writes(f"the archive file {path}"),
            SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool,
        ):
            _write_parquet(spool, rows)
            size_bytes = spool.tell()
            spool.seek(0)
            target = self._storage.create_streaming(path)
            with _as_conflict(file.name):
                _copy(spool, target)
        self._head = replace(head, names=head.names | {file.name})
        return replace(file, size_bytes=size_bytes)

    def _publish(self, files: Sequence[ManifestFile]) -> None:
        """Create the next manifest, with these data files as the history."""
        head = self._newest()
        number = head.number + 1
        entries = [{"fileName": file.name, "fileLen": file.size_bytes} for file in files]
        name, manifest = f"manifest_{number}", json.dumps({"files": entries}, indent=2).encode()
        self._storage.make_durable()
        self._check()
        with _as_conflict(name):
            # model: create manifest
            self._storage.create(f"{self._history.folder}/{name}", manifest)
        self._storage.make_durable()
        self._move_pointer(number)  # model: move version
        self._published[number] = files
        self._head = replace(head, number=number, files=tuple(files), names=head.names | {name})

    def _move_pointer(self, number: int) -> None:
        """Write the number of a manifest to ``_version_``.

        Raises:
            WriteConflict: ``_version_`` contains a higher number, or changed in every attempt.
        """
        for _ in range(_ATTEMPTS):
            stated, version = self._history.pointer()
            if stated is not None and stated > number:
                break
            if stated == number or self._replace_pointer(number, version):
                return
        raise _conflict(VERSION_FILE)

    def _replace_pointer(self, number: int, version: str | None) -> bool:
        """Write ``_version_`` if the file is unchanged; return false if the file has changed.

        A local disk has no compare-and-swap. There the writer writes first and then lists the
        manifests again. If there is a newer manifest, the writer writes that manifest's number.

        Args:
            number: the number to write.
            version: the store's version of the file when it was read; None if it did not exist.
        """
        path = f"{self._history.folder}/{VERSION_FILE}"
        if version is None:
            with suppress(AlreadyExists):
                self._storage.create(path, str(number).encode())
                return True
        elif self._storage.supports_compare_and_swap:
            with suppress(PreconditionFailed):
                self._storage.replace(path, str(number).encode(), version)
                return True
        else:
            self._storage.put(path, str(number).encode())
            newest = max(self._history.versions())
            if newest <= number:
                return True
            self._storage.put(path, str(newest).encode())
        return False

    def _delete_old(self, manifests_kept: int) -> None:
        head = self._newest()
        kept: dict[int, Sequence[ManifestFile]] = {}
        for version in reversed(head.versions()):
            if len(kept) < manifests_kept:
                with suppress(CorruptData):  # an incomplete manifest of a dead archiver
                    known = self._published.get(version)
                    kept[version] = known or self._history.manifest(version)
        named = {file.name for files in kept.values() for file in files}
        manifests = [f"manifest_{version}" for version in head.versions() if version not in kept]
        unnamed = sorted(name for name in head.names if is_data_file(name) and name not in named)
        self._storage.make_durable()
        self._check()
        self._storage.delete([f"{self._history.folder}/{name}" for name in (*manifests, *unnamed)])


def mergeable(
    files: Iterable[ManifestFile], layer: int, settings: HistorySettings
) -> list[ManifestFile] | None:
    """Return the oldest files of a layer, to merge into one file of the next layer.

    None if there are too few files to merge. A file that alone exceeds the size limit is skipped.
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


def _first_free(wanted: ManifestFile, names: Collection[str]) -> ManifestFile:
    """Return the wanted file, or a file with a slightly longer range if the wanted name exists.

    The existing file may be that of another archiver, which died or is still running. Two archivals
    may also have the same range, because a commit and its savepoint have the same requested time.
    """
    ends = chain([wanted.last], (f"{wanted.last}{number}" for number in count()))
    files = (ManifestFile.of(wanted.first, end, wanted.layer, 0) for end in ends)
    return next(file for file in files if file.name not in names)


@contextmanager
def _as_conflict(name: str) -> Iterator[None]:
    """Raise ``WriteConflict`` if the file exists, because another archiver wrote it."""
    try:
        yield
    except AlreadyExists:
        raise _conflict(name) from None


def _conflict(name: str) -> WriteConflict:
    message = (
        f"another archiver wrote {name} of the history at the same time; the instants stay on the "
        "active timeline until the next archival"
    )
    return WriteConflict(message)


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


def _without_duplicates(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each instant once. After an archiver died, an instant may be in two files."""
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
