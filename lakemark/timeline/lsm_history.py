"""Reads the archive of table versions 8 and 9: a log-structured merge tree of Parquet files.

::

    _version_                          the number of the newest manifest, as text
    manifest_<n>                       JSON {"files": [{"fileName": …, "fileLen": …}, …]}
    <first>_<last>_<layer>.parquet     instants of that range of requested times

Archival (``lsm_writer``) adds a file to layer 0 and a manifest. When a layer has ten files, they
are merged into one of the next layer. A manifest is created, never replaced: if two archivers build
the next version from the same one, the second fails. Files that no manifest names any more are
deleted three versions later, so a slow reader may find a file of its manifest deleted. An upgrade
from version 6 copies its archive here in the order in which it reads it. So file names are no
ranges in such a table; the old archive is kept. Source: ``LSMTimeline``, ``LSMTimelineWriter``,
``ArchivedTimelineLoaderV2`` of Apache Hudi 1.2.0.

If the newest manifest is lost, the history is read from the one before it and from the data files
that no manifest names. Deletion keeps every file of the last three manifests, so all files of the
lost one exist; the next archival writes a new manifest of them. If there is no manifest, nothing
shows which data files are missing, so the history is treated as damaged. There is one exception: an
archival that died before it wrote the first manifest also leaves data files without a manifest.
Then the active timeline still has every instant in them.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakemark.errors import CorruptData, HudiError, SnapshotChanged
from lakemark.log.parquet_format import ValueCounts, check_value_counts, open_parquet
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.storage.storage import NotFound, Storage
from lakemark.timeline.archived_timeline import ArchivedTimeline, Part
from lakemark.timeline.content import Record, decode_any

#: Folders of version 6's archive by default, and the prefix of its files.
_OLD_FOLDERS = (".hoodie/archived", ".hoodie/history")
_OLD_ARCHIVE = ".commits_.archive."

#: Names the newest manifest.
VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_([0-9]+)")
_DATA_FILE = re.compile(r"([0-9]+)_([0-9]+)_([0-9]+)\.parquet")

_NAMES = ["instantTime", "completionTime", "action"]
_COMMIT_BATCH_ROWS = 64
_ACTIONS = {str(action): action for action in Action}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """A data file that a manifest names.

    Attributes:
        name: in the history's folder.
        size_bytes: of the file.
        first: the oldest requested time in it, by its name.
        last: the newest one, by its name.
        layer: 0 if archival wrote it, more if it was merged.
    """

    name: str
    size_bytes: int
    first: str
    last: str
    layer: int

    @classmethod
    def of(cls, first: str, last: str, layer: int, size_bytes: int) -> ManifestFile:
        """Return the file for a range of requested times."""
        return cls(f"{first}_{last}_{layer}.parquet", size_bytes, first, last, layer)

    @classmethod
    def parse(cls, name: str, size_bytes: int) -> ManifestFile | None:
        """Parse a file name; None if it is not that of a data file."""
        match = _DATA_FILE.fullmatch(name)
        if match is None:
            return None
        first, last, layer = match.groups()
        return cls(name, size_bytes, first, last, int(layer))


@dataclass(frozen=True, slots=True)
class HistoryHead:
    """The newest version of a history, for a writer.

    Attributes:
        number: the highest number of a manifest; 0 before the first.
        files: those that the newest readable manifest names.
        names: of all files in the folder, listed before the manifest was read.
        is_ahead: whether ``_version_`` names an older manifest or none, because the writer died.
    """

    number: int
    files: tuple[ManifestFile, ...]
    names: frozenset[str]
    is_ahead: bool = False

    def versions(self) -> list[int]:
        """Numbers of the manifests, oldest first."""
        return _versions(self.names)


class LsmHistory:
    """The history of one table; a file is read once, however often the history is loaded.

    Args:
        storage: of the table.
        folder: of the history.
        active_folder: of the active timeline.
    """

    def __init__(
        self, storage: Storage, folder: str, active_folder: str = ".hoodie/timeline"
    ) -> None:
        self._storage, self.folder, self._active_folder = storage, folder, active_folder
        self._instants: dict[str, tuple[Instant, ...]] = {}

    def load(self) -> ArchivedTimeline:
        """List the files that the newest manifest names; empty if nothing was ever archived.

        Raises:
            SnapshotChanged: the manifest was deleted at the same time; call again.
            CorruptData: the manifest is damaged, or every manifest is lost.
        """
        newest = self._newest()
        if newest is None:
            return ArchivedTimeline()
        return self.timeline_of(*newest)

    def timeline_of(self, version: int, named: Sequence[ManifestFile]) -> ArchivedTimeline:
        """The archived timeline of these files of a version; the files are read on demand."""
        are_ranges = not named or not self._was_upgraded()
        files = [self._file(file, version, are_ranges) for file in named]
        files.sort(key=lambda file: file.last, reverse=True)
        return ArchivedTimeline(tuple(files))

    def head(self) -> HistoryHead:
        """Return the version that the next one is built from.

        If a manifest is newer than the one that ``_version_`` names, or that file does not exist,
        the manifest's writer died. The manifest is complete if it can be read, because its files
        were written before it. Then it is the newest.

        Raises:
            CorruptData: the newest manifest is damaged, or every manifest is lost.
        """
        names = frozenset(self._names())
        stated, _ = self.pointer()
        number = max([stated or 0, *_versions(names)])
        for version in reversed(_versions(names)):
            if stated is not None and version > stated:
                with suppress(NotFound, CorruptData):
                    files = tuple(self._manifest(version))
                    if names.issuperset(file.name for file in files):
                        return HistoryHead(number, files, names, is_ahead=True)
        newest = self._newest_from(stated)
        if newest is None:
            return HistoryHead(number, (), names)
        is_unnamed = stated is None and newest[1] == self.manifest(newest[0])
        return HistoryHead(number, tuple(newest[1]), names, is_ahead=is_unnamed)

    def pointer(self) -> tuple[int | None, str | None]:
        """Read the number in ``_version_``, and the version of that file for a conditional put.

        Returns:
            The number is None if the file is missing or damaged; the version, if it is missing.
        """
        try:
            data, version = self._storage.read_versioned(f"{self.folder}/{VERSION_FILE}")
        except NotFound:
            return None, None
        with suppress(ValueError):
            return int(data), version
        return None, version

    def newest_version(self) -> int | None:
        """Return the number in ``_version_``; without that file, the newest manifest's number."""
        stated, _ = self.pointer()
        return max(self.versions(), default=None) if stated is None else stated

    def versions(self) -> list[int]:
        """Numbers of the existing manifests, oldest first."""
        return _versions(self._names())

    def current(self) -> list[ManifestFile]:
        """Return the files that the newest version names. Errors as for ``load``."""
        newest = self._newest()
        return [] if newest is None else newest[1]

    def manifest(self, version: int) -> list[ManifestFile]:
        """Return the files that a version names. Errors as for ``load``."""
        try:
            return self._manifest(version)
        except NotFound:
            raise self._missing(version, f"the manifest {self._path_of(version)}") from None

    def rows_of(self, file: ManifestFile, version: int) -> Iterator[pa.RecordBatch]:
        """Read a file, some rows at a time. Errors as for ``ArchiveFile.instants``."""
        with self._open(self._file(file, version, True)) as parquet:
            counts = ValueCounts()
            for batch in parquet.iter_batches(_COMMIT_BATCH_ROWS):
                counts.add(batch)
                yield batch
            counts.check(parquet)

    def instants_of(self, file: HistoryFile) -> tuple[Instant, ...]:
        """Completed instants of a file. Errors as for ``ArchiveFile.instants``."""
        if file.path not in self._instants:
            with self._open(file) as parquet:
                rows = parquet.read(columns=_NAMES)
                check_value_counts(rows, parquet)
                self._instants[file.path] = tuple(_instants(rows, file.path))
        return self._instants[file.path]

    def record_of(self, file: HistoryFile, instant: Instant, part: Part) -> Record | None:
        """Return the content of an instant in a file; reads only row groups that may contain it."""
        with self._open(file) as parquet:
            groups = [g for g in range(parquet.num_row_groups) if _spans(parquet, g, instant)]
            columns = [*_NAMES, str(part)]
            for batch in parquet.iter_batches(_COMMIT_BATCH_ROWS, groups, columns):
                named = pc.and_(
                    pc.equal(batch["instantTime"], instant.requested_at),
                    pc.equal(batch["action"], str(instant.action)),
                )
                found = batch.filter(named)
                if found.num_rows:
                    data: bytes = found[str(part)][0].as_py() or b""
                    return decode_any(data, f"{file.path}, instant {instant}") if data else {}
        return None

    def _path_of(self, version: int) -> str:
        return f"{self.folder}/manifest_{version}"

    def _manifest(self, version: int) -> list[ManifestFile]:
        path = self._path_of(version)
        return _parse_manifest(self._storage.read(path), path)

    def _newest(self) -> tuple[int, list[ManifestFile]] | None:
        """Return the newest version and its files; None before the first archival."""
        return self._newest_from(self.pointer()[0])

    def _newest_from(self, stated: int | None) -> tuple[int, list[ManifestFile]] | None:
        """Return the newest version and its files, given the number in ``_version_``."""
        if stated is not None:
            try:
                return stated, self._manifest(stated)
            except NotFound:
                if self.newest_version() != stated:
                    raise self._missing(stated, f"the manifest {self._path_of(stated)}") from None
        versions = [v for v in self.versions() if stated is None or v < stated]
        if versions:
            newest = stated or versions[-1]
            return newest, self._recovered(versions[-1], newest)
        if stated is not None:
            raise self._no_manifest(stated)
        self._check_never_published()
        return None

    def _check_never_published(self) -> None:
        """Check that every instant in data files without a manifest is still active.

        Archival deletes the oldest instant of a file first, and only after a manifest names the
        file.

        Raises:
            SnapshotChanged: the first manifest was written at the same time.
            CorruptData: the manifests are lost.
        """
        files = [file for name in self._names() if (file := ManifestFile.parse(name, 0))]
        if not files:
            return
        listed = [info.name for info in self._storage.list_folder(self._active_folder)[1]]
        active = [name for name in listed if not _DATA_FILE.fullmatch(name)]
        if all(any(name.startswith(file.first) for name in active) for file in files):
            return
        newest = self.newest_version()
        if newest is not None:
            message = f"the first manifest of {self.folder} was just written; load it again"
            raise SnapshotChanged(message)
        raise self._no_manifest(1)

    def _recovered(self, version: int, newest: int) -> list[ManifestFile]:
        """Return the files of an older manifest, and unnamed files with further instants."""
        sizes = {i.name: i.size_bytes for i in self._storage.list_folder(self.folder)[1]}
        named = self.manifest(version)
        for file in named:
            if file.name not in sizes:
                raise self._missing(newest, f"{self.folder}/{file.name}, named by its manifest")
        known = {name for file in named for name in self._instant_names(file, newest)}
        found = (ManifestFile.parse(name, size_bytes) for name, size_bytes in sizes.items())
        unnamed = [file for file in found if file is not None and file not in named]
        for file in sorted(unnamed, key=lambda file: (-file.layer, file.first)):
            if not self._instant_names(file, newest) <= known:
                known |= self._instant_names(file, newest)
                named.append(file)
        if version != newest:
            _log.warning(
                "%s/manifest_%d is lost: the history is read from manifest_%d and %d data files; "
                "the next archival writes a new manifest",
                *(self.folder, newest, version, len(named)),
            )
        return named

    def _instant_names(self, file: ManifestFile, version: int) -> set[tuple[str, Action]]:
        instants = self.instants_of(self._file(file, version, True))
        return {(instant.requested_at, instant.action) for instant in instants}

    def _no_manifest(self, version: int) -> CorruptData:
        remedy = (
            "no manifest; copy it back from a backup of the table, or write one that lists every "
            "Parquet file of the folder"
        )
        return CorruptData(
            self._path_of(version), None, '{"files": [{"fileName": …, "fileLen": …}, …]}', remedy
        )

    def _names(self) -> list[str]:
        return [info.name for info in self._storage.list_folder(self.folder)[1]]

    def _was_upgraded(self) -> bool:
        return any(
            _OLD_ARCHIVE in info.name
            for folder in _OLD_FOLDERS
            for info in self._storage.list_folder(folder)[1]
        )

    def _file(self, file: ManifestFile, version: int, is_range: bool) -> HistoryFile:
        path = f"{self.folder}/{file.name}"
        return HistoryFile(self, path, file.first, file.last, version, is_range)

    @contextmanager
    def _open(self, file: HistoryFile) -> Iterator[pq.ParquetFile]:
        try:
            with self._storage.open(file.path) as stream, open_parquet(stream) as parquet:
                yield parquet
        except NotFound:
            raise self._missing(file.version, f"{file.path}, named by its manifest") from None
        except (pa.ArrowException, ValueError, KeyError, TypeError, OSError) as error:
            if isinstance(error, HudiError) or (isinstance(error, OSError) and error.errno):
                raise  # the store failed, not the bytes
            expected = f"a Parquet file with {_NAMES}"
            raise CorruptData(file.path, None, expected, str(error)[:200]) from error

    def _missing(self, version: int, what: str) -> HudiError:
        """Return the error for a missing file: there is a newer version, or the file is lost."""
        newest = self.newest_version()
        if newest != version:
            message = (
                f"{what} was deleted: the history changed from version {version} to {newest} "
                "while it was being read; load the timeline again"
            )
            return SnapshotChanged(message)
        return CorruptData(self._path_of(version), None, what, "no such file")


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """One Parquet file of a history.

    Attributes:
        history: reads the file.
        path: from the table's root.
        first: the oldest requested time in it.
        last: the newest one.
        version: of the manifest that names it.
        is_range: whether ``first`` and ``last`` are valid; they are not after an upgrade.
    """

    history: LsmHistory
    path: str
    first: str
    last: str
    version: int
    is_range: bool = True

    def may_hold(self, since: str, until: str | None) -> bool:
        """Whether it may contain an instant requested from ``since`` on and before ``until``."""
        is_inside = since <= self.last and (until is None or self.first < until)
        return is_inside or not self.is_range

    def instants(self) -> Sequence[Instant]:
        """Completed instants in it. Errors as for ``ArchiveFile``."""
        return self.history.instants_of(self)

    def read(self, instant: Instant, part: Part) -> Record | None:
        """See ``ArchiveFile.read``."""
        return self.history.record_of(self, instant, part)


def is_data_file(name: str) -> bool:
    """Return whether a file of that name in the history's folder is a data file."""
    return _DATA_FILE.fullmatch(name) is not None


def _versions(names: Iterable[str]) -> list[int]:
    """Numbers of the manifests among these files, oldest first."""
    matches = (_MANIFEST.fullmatch(name) for name in names)
    return sorted(int(match.group(1)) for match in matches if match)


def _parse_manifest(data: bytes, path: str) -> list[ManifestFile]:
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptData(path, None, "a manifest as JSON", str(error)[:200]) from error
    entries = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(entries, list):
        raise _unlike_manifest(path, data)
    return [_parse_entry(entry, path, data) for entry in entries]


def _parse_entry(entry: object, path: str, data: bytes) -> ManifestFile:
    name = entry.get("fileName") if isinstance(entry, dict) else None
    size_bytes = entry.get("fileLen", 0) if isinstance(entry, dict) else None
    if not isinstance(name, str) or not isinstance(size_bytes, int):
        raise _unlike_manifest(path, data)
    file = ManifestFile.parse(name, size_bytes)
    if file is None:
        raise CorruptData(path, None, "file names of the form first_last_layer.parquet", repr(name))
    return file


def _unlike_manifest(path: str, data: bytes) -> CorruptData:
    return CorruptData(path, None, '{"files": [{"fileName": …}, …]}', repr(data[:80]))


def _instants(rows: pa.Table, path: str) -> Iterator[Instant]:
    columns = (rows[name].cast(pa.string()).to_pylist() for name in _NAMES)
    for requested_at, completed_at, word in zip(*columns, strict=True):
        if requested_at is None:
            raise CorruptData(path, None, "a requested time in every row", "null")
        action = _ACTIONS.get(word)
        if action is not None:
            at = completed_at or requested_at
            yield Instant(requested_at, action.completes_as, State.COMPLETED, at)


def _spans(parquet: pq.ParquetFile, group: int, instant: Instant) -> bool:
    """Return whether a row group may contain the instant, by its statistics."""
    column = parquet.schema_arrow.names.index("instantTime")
    statistics = parquet.metadata.row_group(group).column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= instant.requested_at <= statistics.max)
