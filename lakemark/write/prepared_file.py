"""A file of a file group on this machine's disk, which is published later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId

_COPIED_AT_ONCE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file in a folder on this machine's disk.

    Attributes:
        folder: the folder.
        stat: the write stat, with the path of the file below the folder.
    """

    folder: Path
    stat: WriteStat

    @property
    def group(self) -> FileGroupId:
        """The file group of the file."""
        return FileGroupId(self.stat.partition_path or "", self.stat.file_id)

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return self.folder / (self.stat.path or "")

    def copy(self, write: Callable[[bytes], object]) -> None:
        """Copy the content.

        Args:
            write: appends bytes to the copy.
        """
        with open(self.path, "rb") as source:
            while data := source.read(_COPIED_AT_ONCE_BYTES):
                write(data)
