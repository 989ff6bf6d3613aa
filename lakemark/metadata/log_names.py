"""Names the logs that a commit adds to the file groups of a metadata table of version 6.

Such a log is named after the newest slice of its file group, so the files of the partition are
listed, once for each commit. In later versions a log is named after the instant that writes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from lakemark.errors import SnapshotChanged, WriteConflict
from lakemark.metadata.record_changes import ShardChanges
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import join
from lakemark.timeline.timeline import Timeline

_FileName: TypeAlias = BaseFileName | LogFileName


@dataclass
class SliceNames:
    """The names of the files of one partition, as of one commit.

    Attributes:
        partition: the partition of the metadata table.
        timeline: the metadata table's timeline.
        load: loads this timeline again.
    """

    partition: str
    timeline: Timeline
    load: Callable[[], Timeline]
    _names: dict[str, list[_FileName]] = field(default_factory=lambda: defaultdict(list))
    _is_current: bool = False

    @classmethod
    def of(
        cls,
        partition: str,
        names: Iterable[_FileName],
        timeline: Timeline,
        load: Callable[[], Timeline],
    ) -> SliceNames:
        """Return the names by file group."""
        found = cls(partition, timeline, load)
        for name in names:
            found._names[name.file_id].append(name)
        return found

    def next_log(self, shard: ShardChanges, instant: str, token: str) -> LogFileName:
        """Return the name of the next log of a file group.

        Args:
            shard: the file group.
            instant: the requested time of the commit.
            token: the write token of the log.

        Raises:
            SnapshotChanged: the file group has no files.
            WriteConflict: a commit that has not completed has created the file group. Logs of other
                commits would be named after its slice, or be hidden by it.
        """
        names = self._names.get(shard.file_id, [])
        starts = self._starts(names)
        if shard.is_new:
            if starts:
                raise self._was_created_by(max(starts), shard.file_id)
            return LogFileName(shard.file_id, instant, 1, token)
        if not starts:
            raise has_no_files(join(self.partition, shard.file_id))
        start = max(starts)
        logs = (name for name in names if isinstance(name, LogFileName))
        versions = (name.version for name in logs if name.instant == start)
        return LogFileName(shard.file_id, start, 1 + max(versions, default=0), token)

    def _starts(self, names: Sequence[_FileName]) -> list[str]:
        """Return the instants that begin the slices of these files.

        Instants that were removed from the timeline are omitted, because readers ignore logs in
        their slices. Such files exist if a removed compaction wrote a base file late, or if the
        store brings back a log of a dropped metadata table. If the timeline lacks an instant, the
        timeline is loaded again, because another process may have compacted the table since.
        """
        if not self._is_current and not all(self.timeline.is_committed(n.instant) for n in names):
            self.timeline, self._is_current = self.load(), True
        return [name.instant for name in names if self._begins_slice(name)]

    def _begins_slice(self, name: _FileName) -> bool:
        """Return whether a file's instant is completed, or is pending and already has logs."""
        if self.timeline.is_committed(name.instant):
            return True
        return isinstance(name, LogFileName) and self.timeline.find(name.instant) is not None

    def _was_created_by(self, pending: str, file_id: str) -> WriteConflict:
        message = (
            f"{join(self.partition, file_id)} of the metadata table was created by commit "
            f"{pending}, which has not completed, and whose writer has died; the next start of a "
            f"writer rolls it back, and so does lakemark table rollback TABLE {pending} --run; "
            "then write again"
        )
        return WriteConflict(message)


def has_no_files(path: str) -> SnapshotChanged:
    """Return the error for a path that has no files.

    A path has no files if a rollback or restore has just dropped the metadata table.
    """
    message = f"{path} of the metadata table has no file that begins a slice: the table was dropped"
    return SnapshotChanged(message)
