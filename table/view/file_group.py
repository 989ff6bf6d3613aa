"""A file group: all files of one file id in one partition, and the slices that they make."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from table.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from table.view.file_lister import DataFile
from table.view.slicing import CompletedAt, merged_for_readers, slice_file_group


@dataclass(frozen=True, slots=True)
class FileGroup:
    """One file group at one moment.

    Attributes:
        id: its name.
        files: by name; committed or not.
        compaction: instant of the pending compaction that is to rewrite it, if there is one.
        slices: oldest first; the newest may be empty, when a pending compaction has opened it.
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
        completed_at: CompletedAt,
        compaction: str | None = None,
    ) -> FileGroup:
        """The group made of these files."""
        by_name = {str(file.name): file for file in files}
        bases = [file for file in by_name.values() if isinstance(file, BaseFile)]
        logs = [file for file in by_name.values() if isinstance(file, LogFile)]
        slices = slice_file_group(group, bases, logs, completed_at, compaction)
        return cls(group, by_name, compaction, slices)

    @property
    def for_readers(self) -> FileSlice | None:
        """What a query reads: the newest slice, with the one before while a compaction pends."""
        return merged_for_readers(self.slices, self.compaction)

    @property
    def for_writers(self) -> FileSlice | None:
        """What a writer adds to: the newest slice as it is."""
        return self.slices[-1] if self.slices else None

    @property
    def read_optimized(self) -> FileSlice | None:
        """The newest base file alone."""
        with_base = (s for s in reversed(self.slices) if s.base is not None)
        newest = next(with_base, None)
        return newest and FileSlice(newest.group, newest.base_instant, newest.base)
