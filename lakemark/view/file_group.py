"""A file group: all files of one file id in one partition, and the slices that they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.model.format_version import FormatVersion
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile
from lakemark.view.slicing import merge_for_readers, slice_file_group


@dataclass(frozen=True, slots=True)
class FileGroup:
    """One file group at one moment.

    Attributes:
        id: partition path and file id.
        files: by name; committed or not.
        compaction: instant of the pending compaction of the group, if there is one.
        slices: oldest first; the newest may be empty, if a pending compaction opened it.
    """

    id: FileGroupId
    files: dict[str, DataFile]
    compaction: str | None
    slices: tuple[FileSlice, ...]

    @classmethod
    def of(
        cls,
        group: FileGroupId,
        files: Iterable[DataFile],
        timeline: Timeline,
        version: FormatVersion,
        compaction: str | None = None,
    ) -> FileGroup:
        """Return the group that consists of these files."""
        by_name = {str(file.name): file for file in files}
        bases = [file for file in by_name.values() if isinstance(file, BaseFile)]
        logs = [file for file in by_name.values() if isinstance(file, LogFile)]
        slices = slice_file_group(group, bases, logs, timeline, version, compaction)
        return cls(group, by_name, compaction, slices)

    def as_of(self, instant: str, version: FormatVersion) -> FileGroup:
        """The group without the slices of later instants, and without their logs in other slices.

        Instants are compared by requested time, as in Apache Hudi. In table version 6 a log holds
        several commits, so it stays, and ``VisibleInstants`` selects its blocks. From version 8 on,
        a log may be in a slice that was requested after the log's commit and before its completion.
        Such a log is omitted as of a time between the two requests, as in Apache Hudi.
        """
        slices = (s for s in self.slices if s.base_instant <= instant)
        if not version.logs_name_their_slice:
            slices = (_logs_until(file_slice, instant) for file_slice in slices)
        return replace(self, slices=tuple(slices))

    @property
    def for_readers(self) -> FileSlice | None:
        """The slice for queries: the newest one, and with a pending compaction the one before."""
        return merge_for_readers(self.slices, self.compaction)

    @property
    def for_writers(self) -> FileSlice | None:
        """The slice that a writer appends to: the newest one as it is."""
        return self.slices[-1] if self.slices else None

    @property
    def read_optimized(self) -> FileSlice | None:
        """The newest base file only."""
        with_base = (s for s in reversed(self.slices) if s.base is not None)
        newest = next(with_base, None)
        return newest and FileSlice(newest.group, newest.base_instant, newest.base)


def _logs_until(file_slice: FileSlice, instant: str) -> FileSlice:
    logs = tuple(log for log in file_slice.logs if log.name.instant <= instant)
    return file_slice if len(logs) == len(file_slice.logs) else replace(file_slice, logs=logs)
