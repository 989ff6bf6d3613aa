"""A range of an open file, which can be read at once or opened as a separate file."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, cast

from lakemark.errors import CorruptData

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


@dataclass(frozen=True, slots=True)
class FileRange:
    """The bytes from ``offset`` to ``offset + size_bytes`` of a file.

    All ranges of one file use the position of the same file object. So do not read them from
    several threads at once, and read them before the file is closed.
    """

    file: BinaryIO
    path: str
    offset: int
    size_bytes: int

    def read(self) -> bytes:
        """Read all bytes of the range.

        Raises:
            CorruptData: the file ends before the range does.
        """
        return self.read_at(0, self.size_bytes)

    def read_at(self, offset: int, size_bytes: int) -> bytes:
        """Read ``size_bytes`` bytes from ``offset`` within the range.

        Raises:
            CorruptData: the range or the file ends before these bytes do.
        """
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self.size_bytes:
            raise self._too_short(offset, size_bytes, max(self.size_bytes - offset, 0))
        self.file.seek(self.offset + offset)
        data = _read_up_to(self.file, size_bytes)
        if len(data) < size_bytes:
            raise self._too_short(offset, size_bytes, len(data))
        return data

    def part(self, offset: int, size_bytes: int) -> FileRange:
        """Return a range within this one."""
        assert 0 <= offset <= offset + size_bytes <= self.size_bytes, (self, offset, size_bytes)
        return FileRange(self.file, self.path, self.offset + offset, size_bytes)

    def in_memory(self) -> memoryview | None:
        """Return the bytes, without a copy, if the file is held in memory; otherwise None."""
        if type(self.file) is not io.BytesIO:  # a subclass may read its bytes elsewhere
            return None
        return memoryview(self.file.getvalue())[self.offset : self.offset + self.size_bytes]

    def open(self) -> BinaryIO:
        """Return the range as a seekable file, so that readers can read only some bytes."""
        return cast(BinaryIO, _RangeFile(self))

    def _too_short(self, offset: int, size_bytes: int, available_bytes: int) -> CorruptData:
        return CorruptData(
            self.path, self.offset + offset, f"{size_bytes} bytes", f"{available_bytes} bytes"
        )


class _RangeFile(io.RawIOBase):
    """A range as a file object; positions are relative to the start of the range."""

    def __init__(self, file_range: FileRange) -> None:
        super().__init__()
        self._range = file_range
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._range.size_bytes}
        self._position = max(start[whence] + offset, 0)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        available_bytes = max(self._range.size_bytes - self._position, 0)
        wanted_bytes = available_bytes if size is None or size < 0 else min(size, available_bytes)
        data = self._range.read_at(self._position, wanted_bytes) if wanted_bytes else b""
        self._position += len(data)
        return data

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        target = memoryview(buffer).cast("B")
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)


def _read_up_to(file: BinaryIO, size_bytes: int) -> bytes:
    """Read ``size_bytes`` bytes, or fewer if the file ends.

    A single call of ``read`` may return fewer bytes although the file continues.
    """
    data = file.read(size_bytes)
    while 0 < len(data) < size_bytes:
        more = file.read(size_bytes - len(data))
        if not more:
            break
        data += more
    return data
