"""Reads the archive of table versions 8 and 9: a log-structured merge tree of Parquet files.

::

    _version_                          the number of the newest manifest, as text
    manifest_<n>                       JSON {"files": [{"fileName": …, "fileLen": …}, …]}
    <first>_<last>_<layer>.parquet     instants requested between <first> and <last>

Each archival (``lsm_writer``) adds a file to layer 0, and a manifest. When a layer has ten files,
these files are merged into one file of the next layer. A manifest is created, never replaced. So if
two archivers create the next version at the same time, one of them fails. A file that no manifest
names any more is deleted three versions later, so a slow reader may fail to find a file. An upgrade
from version 6 keeps the old archive, and copies the old instants to Parquet files without sorting
them. So in an upgraded table, file names do not show the range of requested times. Source:
``LSMTimeline``, ``LSMTimelineWriter``, ``ArchivedTimelineLoaderV2`` of Apache Hudi 1.2.0.

If the newest manifest is lost, the history is read from the previous manifest and from the data
files that no manifest names. Every file of the last three manifests is kept, so all files of the
lost manifest exist. The next archival writes a new manifest with these files. If there is no
manifest at all, nothing shows which data files are missing, so the history is treated as damaged.
There is one exception: an archival that died before it wrote the first manifest also leaves data
files without a manifest. Then every instant in the data files is still on the active timeline.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
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
from lakemark.timeline.lsm_manifest import (
    MANIFEST_PREFIX,
    VERSION_FILE,
    ManifestFile,
    is_data_file,
    manifest_versions,
    parse_manifest,
)

#: The default folders of the archive of table version 6, and a part of its files' names.
_OLD_FOLDERS = (".hoodie/archived", ".hoodie/history")
_OLD_ARCHIVE = ".commits_.archive."

_NAMES = ["instantTime", "completionTime", "action"]
_COMMIT_BATCH_ROWS = 64
_ACTIONS = {str(action): action for action in Action}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HistoryHead:
    """The newest version of a history, from which a writer builds the next version.

    Attributes:
        number: the highest manifest number; 0 if there is no manifest.
        files: the data files of the newest readable manifest.
        names: the names of all files in the folder, listed before the manifest was read.
        is_ahead: whether ``_version_`` is missing or names an older manifest, because the writer
            of the newest manifest died.
    """

    number: int
    files: tuple[ManifestFile, ...]
    names: frozenset[str]
    is_ahead: bool = False

    def versions(self) -> list[int]:
        """Return the numbers of the manifests, oldest first."""
        return manifest_versions(self.names)


class LsmHistory:
    """Reads the history of one table. The instants of a file are read once and then kept.

    Args:
        storage: the table's storage.
        folder: the history's folder.
        active_folder: the folder of the active timeline.
    """

    def __init__(
        self, storage: Storage, folder: str, active_folder: str = ".hoodie/timeline"
    ) -> None:
        self._storage, self.folder, self._active_folder = storage, folder, active_folder
        self._instants: dict[str, tuple[Instant, ...]] = {}

    def load(self) -> ArchivedTimeline:
        """Return the archived timeline of the newest manifest.

        The timeline is empty if no instant was ever archived.

        Raises:
            SnapshotChanged: the manifest was deleted at the same time; call again.
            CorruptData: the manifest is damaged, or every manifest is lost.
        """
        newest = self._newest()
        if newest is None:
            return ArchivedTimeline()
        return self.timeline_of(*newest)

    def timeline_of(self, version: int, named: Sequence[ManifestFile]) -> ArchivedTimeline:
        """Return the archived timeline of a version's files. The files are read on demand."""
        are_ranges = not named or not self._was_upgraded()
        files = [self._file(file, version, are_ranges) for file in named]
        files.sort(key=lambda file: file.last, reverse=True)
        return ArchivedTimeline(tuple(files))

    def head(self) -> HistoryHead:
        """Return the newest version, from which a writer builds the next version.

        If the writer of the newest manifest died, ``_version_`` is missing or contains the number
        of an older manifest. Then the newest manifest is still used, if it can be read and its
        files exist. It is complete, because a writer writes the files before the manifest.

        Raises:
            CorruptData: the newest manifest is damaged, or every manifest is lost.
        """
        names = frozenset(self._names())
        stated, _ = self.pointer()
        number = max([stated or 0, *manifest_versions(names)])
        for version in reversed(manifest_versions(names)):
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
        """Read the number in ``_version_``, and the store's version of that file.

        The store's version is for a conditional replace.

        Returns:
            A pair. The number is None if the file is missing or damaged. The store's version of the
            file is None if the file is missing.
        """
        try:
            data, version = self._storage.read_versioned(f"{self.folder}/{VERSION_FILE}")
        except NotFound:
            return None, None
        with suppress(ValueError):
            return int(data), version
        return None, version

    def newest_version(self) -> int | None:
        """Return the number in ``_version_``; without it, the newest manifest's number, if any."""
        stated, _ = self.pointer()
        return max(self.versions(), default=None) if stated is None else stated

    def versions(self) -> list[int]:
        """Return the numbers of the existing manifests, oldest first."""
        return manifest_versions(self._names())

    def current(self) -> list[ManifestFile]:
        """Return the data files of the newest version. Raises what ``load`` raises."""
        newest = self._newest()
        return [] if newest is None else newest[1]

    def manifest(self, version: int) -> list[ManifestFile]:
        """Return the data files that a version's manifest names. Raises what ``load`` raises."""
        try:
            return self._manifest(version)
        except NotFound:
            raise self._missing(version, f"the manifest {self._path_of(version)}") from None

    def rows_of(self, file: ManifestFile, version: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file in batches. Raises what ``ArchiveFile.instants`` raises."""
        with self._open(self._file(file, version, True)) as parquet:
            counts = ValueCounts()
            for batch in parquet.iter_batches(_COMMIT_BATCH_ROWS):
                counts.add(batch)
                yield batch
            counts.check(parquet)

    def instants_of(self, file: HistoryFile) -> tuple[Instant, ...]:
        """Return a file's completed instants. Raises what ``ArchiveFile.instants`` raises."""
        if file.path not in self._instants:
            with self._open(file) as parquet:
                rows = parquet.read(columns=_NAMES)
                check_value_counts(rows, parquet)
                self._instants[file.path] = tuple(_instants(rows, file.path))
        return self._instants[file.path]

    def records_of(
        self, file: HistoryFile, instants: Collection[Instant], part: Part
    ) -> Iterator[tuple[Instant, Record]]:
        """Yield the plans or the metadata of instants in a file; see ``ArchiveFile.read``.

        Only row groups that may contain one of the instants are read.
        """
        left = {(one.requested_at, str(one.action)): one for one in instants}
        times = sorted({requested_at for requested_at, _ in left})
        with self._open(file) as parquet:
            groups = [g for g in range(parquet.num_row_groups) if _spans(parquet, g, times)]
            columns = [*_NAMES, str(part)]
            for batch in parquet.iter_batches(_COMMIT_BATCH_ROWS, groups, columns):
                found = batch.filter(pc.is_in(batch["instantTime"], pa.array(times)))
                for row in found.to_pylist():
                    instant = left.pop((row["instantTime"], row["action"]), None)
                    if instant is not None:
                        data: bytes = row[str(part)] or b""
                        path = f"{file.path}, instant {instant}"
                        yield instant, decode_any(data, path) if data else {}
                if not left:
                    return

    def _path_of(self, version: int) -> str:
        return f"{self.folder}/{MANIFEST_PREFIX}{version}"

    def _manifest(self, version: int) -> list[ManifestFile]:
        path = self._path_of(version)
        return parse_manifest(self._storage.read(path), path)

    def _newest(self) -> tuple[int, list[ManifestFile]] | None:
        """Return the newest version's number and files; None before the first archival."""
        return self._newest_from(self.pointer()[0])

    def _newest_from(self, stated: int | None) -> tuple[int, list[ManifestFile]] | None:
        """Return what ``_newest`` returns.

        ``stated`` is the number in ``_version_``; None if that file is missing or damaged.
        """
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
        """Check that no archival ever completed, although data files exist without a manifest.

        An archival deletes instants from the active timeline only after a manifest names their data
        file, and it deletes the oldest instant first. So the check looks for the oldest instant of
        each data file on the active timeline.

        Raises:
            SnapshotChanged: the first manifest was written at the same time.
            CorruptData: the manifests are lost.
        """
        files = [file for name in self._names() if (file := ManifestFile.parse(name, 0))]
        if not files:
            return
        listed = [info.name for info in self._storage.list_folder(self._active_folder)[1]]
        active = [name for name in listed if not is_data_file(name)]
        if all(any(name.startswith(file.first) for name in active) for file in files):
            return
        newest = self.newest_version()
        if newest is not None:
            message = f"the first manifest of {self.folder} was just written; load it again"
            raise SnapshotChanged(message)
        raise self._no_manifest(1)

    def _recovered(self, version: int, newest: int) -> list[ManifestFile]:
        """Return an older manifest's files, and unlisted files that contain further instants."""
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
            "no manifest; copy it back from a backup of the table, or write a manifest that lists "
            "every Parquet file of the folder"
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
                raise  # the store failed; the content is not damaged
            expected = f"a Parquet file with {_NAMES}"
            raise CorruptData(file.path, None, expected, str(error)[:200]) from error

    def _missing(self, version: int, what: str) -> HudiError:
        """Return the error for a missing file.

        The error is ``SnapshotChanged`` if there is a newer version; otherwise the file is lost.
        """
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
        history: the history that reads the file.
        path: the file's path, relative to the table's root.
        first: the oldest requested time in the file, according to its name.
        last: the newest requested time in the file, according to its name.
        version: the number of the manifest that names the file.
        is_range: whether ``first`` and ``last`` can be trusted; false after an upgrade.
    """

    history: LsmHistory
    path: str
    first: str
    last: str
    version: int
    is_range: bool = True

    def may_hold(self, since: str, until: str | None) -> bool:
        """See ``ArchiveFile.may_hold``."""
        is_inside = since <= self.last and (until is None or self.first < until)
        return is_inside or not self.is_range

    def instants(self) -> Sequence[Instant]:
        """See ``ArchiveFile.instants``."""
        return self.history.instants_of(self)

    def read(self, instants: Collection[Instant], part: Part) -> Iterator[tuple[Instant, Record]]:
        """See ``ArchiveFile.read``."""
        return self.history.records_of(self, instants, part)


def _instants(rows: pa.Table, path: str) -> Iterator[Instant]:
    columns = (rows[name].cast(pa.string()).to_pylist() for name in _NAMES)
    for requested_at, completed_at, word in zip(*columns, strict=True):
        if requested_at is None:
            raise CorruptData(path, None, "a requested time in every row", "null")
        action = _ACTIONS.get(word)
        if action is not None:
            at = completed_at or requested_at
            yield Instant(requested_at, action.completes_as, State.COMPLETED, at)


def _spans(parquet: pq.ParquetFile, group: int, times: Sequence[str]) -> bool:
    """Return whether a row group may contain one of these sorted times, by its statistics."""
    column = parquet.schema_arrow.names.index("instantTime")
    statistics = parquet.metadata.row_group(group).column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    next_one = bisect_left(times, statistics.min)
    return next_one < len(times) and bool(times[next_one] <= statistics.max)
