"""Checks that the files of a metadata table are those that its own commits recorded.

Without this check, a missing or truncated log would look as if it had never been written, and
readers would miss its records. The write stats of the metadata table's completed commits name the
files that the newest slices of a partition must have. These are the newest base file of each file
group, and the logs of all later commits. The files are compared with the partition's listing.

The check ignores files that no active commit names. These are the first, empty log of a file group,
files of failed attempts, and files of archived commits. In table version 6, a log may be longer
than a commit recorded, because later commits append to the log. All other files must have exactly
the recorded size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakemark.errors import CorruptData
from lakemark.metadata.valid_instants import creates_partition, is_numbered
from lakemark.model.action import Action
from lakemark.model.file_slice import LogFile
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile, data_file


class FilesDiffer(Exception):
    """Files of a metadata table differ from what its commits wrote."""


@dataclass(frozen=True)
class RecordedFiles:
    """The files that the commits of one metadata table have recorded.

    Attributes:
        store: reads the metadata table's commits, each only once.
        timeline: the metadata table's timeline.
        is_valid: returns whether a commit is valid according to the data table's timeline.
        data: the data table's timeline, which shows the commits that added an index.
    """

    store: TimelineStore
    timeline: Timeline
    is_valid: Callable[[str], bool]
    data: Timeline

    def find_mismatch(self, partition: str, listed: Iterable[DataFile]) -> str | None:
        """Compare the files of a partition with the recorded ones.

        Args:
            partition: a partition of the metadata table.
            listed: files of the partition, listed after ``timeline`` was loaded.

        Returns:
            A description of the first mismatch; None if there is none.

        Raises:
            SnapshotChanged: a commit was undone in the meantime; load the timeline again.
        """
        by_path = {file.path: file for file in listed}
        later = next((path for path, file in by_path.items() if self._is_later(file)), None)
        if later is not None:
            return f"its file {later} is of an index that was created after the table was opened"
        try:
            recorded = self._recorded(partition, by_path.values())
        except CorruptData as error:
            return f"one of its commits cannot be read: {error}"
        for path, file in sorted(recorded.items()):
            found = by_path.get(path)
            if found is None:
                return f"its file {path} is missing"
            if not self._is_whole(found, file):
                return f"its file {path} has {found.size_bytes} bytes, not {file.size_bytes}"
        return None

    def _is_later(self, file: DataFile) -> bool:
        """Return whether the commit that created the partition was requested after ``data``.

        Another process has then dropped the index and created it again. Records of a base file have
        no commit, so the index may describe later rows. A delta commit writes base files only if it
        creates a partition.
        """
        if isinstance(file, LogFile) or file.name.instant <= (self.data.newest_time or ""):
            return False
        writer = self.timeline.find(file.name.instant)
        if writer is None or writer.action is not Action.DELTA_COMMIT:
            return False
        return not is_numbered(writer)  # a new table's timeline may be empty

    def _is_whole(self, found: DataFile, recorded: DataFile) -> bool:
        if self._names_slices and isinstance(found, LogFile):
            return found.size_bytes >= recorded.size_bytes
        return found.size_bytes == recorded.size_bytes

    def _recorded(self, partition: str, listed: Iterable[DataFile]) -> dict[str, DataFile]:
        """Return the files that must exist, by path, with the sizes that were recorded last."""
        listed = list(listed)
        created_at = self._created_at(listed)
        since = [i for i in self._since_compaction() if (i.completed_at or "") >= created_at]
        self.store.read_commits(since)
        logs = [
            (instant, file)
            for instant in since
            for file in self._written(instant, partition)
            if isinstance(file, LogFile)
        ]
        files = [*listed, *(log for _, log in logs)]
        bases = self._newest_bases(partition, files, created_at)
        recorded = {file.path: file for _, file in bases.values()}
        for instant, log in logs:
            base = bases.get(log.name.file_id)
            if base is None or self._is_after(instant, base[0]):
                recorded[log.path] = log
        return recorded

    def _created_at(self, listed: Sequence[DataFile]) -> str:
        """Return when the partition was created, if it was created again; otherwise "".

        An index may be dropped and created again. Commits from before name files of the dropped
        partition. The first log of each file group is named after the instant that created it. If
        that instant has the requested time of an indexing action, the index was dropped before this
        time. Writers of Apache Hudi may update the partition from this time on.
        """
        named = {file.name.instant for file in listed}
        created = [i for i in self._creations(listed) if i.requested_at in named]
        return max((self._exists_from(i) for i in created), default="")

    def _exists_from(self, creation: Instant) -> str:
        """Return a time from which on no commit names files of a dropped partition."""
        completed_at = creation.completed_at or ""
        if is_numbered(creation):
            return completed_at
        return min(creation.requested_at, completed_at)  # in version 6, without the milliseconds

    def _creations(self, files: Iterable[DataFile]) -> list[Instant]:
        """Return the commits that created partitions.

        If the indexing action of such a commit is archived, the commit is found by a base file in
        ``files``: other delta commits write only logs.
        """
        with_base = {file.name.instant for file in files if not isinstance(file, LogFile)}
        deltas = self.timeline.completed(Action.DELTA_COMMIT)
        return [i for i in deltas if i.requested_at in with_base or self._is_creation(i)]

    def _newest_bases(
        self, partition: str, files: Sequence[DataFile], created_at: str
    ) -> dict[str, tuple[Instant, DataFile]]:
        """Return the newest base file of each file group, and the instant that wrote that file.

        A compaction omits file groups without logs, so older commits are read for these groups.
        Most commits that created a partition are not read. Such a commit is read only if a base
        file of this partition is named after it, or if a file group has no base file.
        """
        groups = {file.name.file_id for file in files}
        bases = [file.name for file in files if not isinstance(file, LogFile)]
        named = {name.instant for name in bases}
        all_have_one = groups <= {name.file_id for name in bases}
        found: dict[str, tuple[Instant, DataFile]] = {}
        for instant in self._base_writers(files):
            if (instant.completed_at or "") < created_at:
                continue
            if all_have_one and self._is_creation(instant) and instant.requested_at not in named:
                continue
            for file in self._written(instant, partition):
                if not isinstance(file, LogFile):
                    found.setdefault(file.name.file_id, (instant, file))
            if groups <= found.keys():
                break
        return found

    def _base_writers(self, files: Iterable[DataFile]) -> Iterator[Instant]:
        """Yield the compactions, and the commits that created a partition, newest first."""
        writers = (*self.timeline.completed(Action.COMMIT), *self._creations(files))
        yield from sorted(writers, key=self._begins, reverse=True)

    def _since_compaction(self) -> list[Instant]:
        """Return the valid delta commits that the last compaction does not include, in order."""
        compactions = self.timeline.completed(Action.COMMIT)
        last = max(compactions, key=lambda i: i.requested_at, default=None)
        return [
            i
            for i in self.timeline.completed(Action.DELTA_COMMIT)
            if not self._is_creation(i)
            and (last is None or self._is_after(i, last))
            and self.is_valid(i.requested_at)
        ]

    def _is_after(self, instant: Instant, base: Instant) -> bool:
        """Return whether a delta commit's logs are merged onto the base files of an instant.

        ``lakemark.view.slicing`` has the rules.
        """
        read_at = instant.requested_at if self._names_slices else instant.completed_at
        return (read_at or "") > self._begins(base)

    def _begins(self, base: Instant) -> str:
        """Return the time after which logs are merged onto the base files of an instant."""
        if is_numbered(base) and not self._names_slices:
            return base.completed_at or ""
        return base.requested_at

    def _written(self, instant: Instant, partition: str) -> Iterator[DataFile]:
        """Yield the files of one partition that a commit wrote, with the sizes it recorded."""
        for stat in self.store.read_commit(instant).write_stats:
            folder, _, name = (stat.path or "").rpartition("/")
            file = data_file(folder, name, stat.file_size_in_bytes)
            if folder == partition and file is not None:
                yield file

    @property
    def _names_slices(self) -> bool:
        return self.store.version.logs_name_their_slice

    def _is_creation(self, instant: Instant) -> bool:
        return creates_partition(instant, self.data)
