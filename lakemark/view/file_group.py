"""A file group: all files with one file id in one partition, and their file slices."""

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
    """A file group as of one state of the timeline.

    Attributes:
        id: partition path and file id.
        files: all files of the group by name, committed or not.
        compaction: instant of a pending compaction of the group; None if there is none.
        slices: file slices, oldest first. If a pending compaction opened the newest slice, that
            slice may have no files.
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
        """Divide the files of a group into slices, and return the group."""
        by_name = {str(file.name): file for file in files}
        bases = [file for file in by_name.values() if isinstance(file, BaseFile)]
        logs = [file for file in by_name.values() if isinstance(file, LogFile)]
        slices = slice_file_group(group, bases, logs, timeline, version, compaction)
        return cls(group, by_name, compaction, slices)

    def as_of(self, instant: str, version: FormatVersion) -> FileGroup:
        """Return the group without slices and logs that were requested after an instant.

        Instants are compared by requested time, as in Apache Hudi. In table version 6, a log may
        contain several commits, so it is kept, and ``VisibleInstants`` selects its blocks.

        From version 8 on, a slice may have been requested after the commit of a log that it
        contains, but before the commit completed. If ``instant`` is after the request of the commit
        and before the request of the slice, neither the slice nor the log is returned. Apache Hudi
        omits such a log, too.
        """
        slices = (s for s in self.slices if s.base_instant <= instant)
        if not version.logs_name_their_slice:
            slices = (_logs_until(file_slice, instant) for file_slice in slices)
        return replace(self, slices=tuple(slices))

    @property
    def for_readers(self) -> FileSlice | None:
        """The slice for queries; None if the group is empty.

        This is the newest slice. If a pending compaction opened the newest slice, the files of the
        slice before are included.
        """
        return merge_for_readers(self.slices, self.compaction)

    @property
    def for_writers(self) -> FileSlice | None:
        """The slice to which a writer appends, which is always the newest slice."""
        return self.slices[-1] if self.slices else None

    @property
    def read_optimized(self) -> FileSlice | None:
        """A slice with only the group's newest base file; None if the group has no base file."""
        with_base = (s for s in reversed(self.slices) if s.base is not None)
        newest = next(with_base, None)
        return newest and FileSlice(newest.group, newest.base_instant, newest.base)


def _logs_until(file_slice: FileSlice, instant: str) -> FileSlice:
    logs = tuple(log for log in file_slice.logs if log.name.instant <= instant)
    return file_slice if len(logs) == len(file_slice.logs) else replace(file_slice, logs=logs)
