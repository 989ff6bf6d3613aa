"""Random access to an object by requests for byte ranges."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable

# Each request reads at least this much. A footer, a log block's header or an index block has only a
# few KiB, and often the bytes after it are read next.
_READ_AHEAD_BYTES = 256 << 10


class SizedReader(io.RawIOBase, ABC):
    """A read-only file of a known size, which reads ranges of its bytes.

    Args:
        size_bytes: the size of the file.
    """

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self._size_bytes = size_bytes
        self._position = 0

    @abstractmethod
    def _range(self, start: int, length_bytes: int) -> bytes:
        """Read a range, which is not empty and inside the file."""

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an offset, without a request; return the new offset.

        Raises:
            ValueError: the offset is before the start.
        """
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        if base + offset < 0:
            message = f"cannot seek to {base + offset}, before the start of the file"
            raise ValueError(message)
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read ``size`` bytes, or all remaining bytes if ``size`` is None or negative.

        Fewer bytes are returned at the end of the file.

        Raises:
            NotFound: the object was deleted after it was opened.
        """
        remaining_bytes = max(0, self._size_bytes - self._position)
        wanted_bytes = remaining_bytes if size is None or size < 0 else min(size, remaining_bytes)
        data = self._range(self._position, wanted_bytes) if wanted_bytes else b""
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """Read all remaining bytes."""
        return self.read()

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Read the next bytes into a buffer; return their number."""
        target = memoryview(buffer).cast("B")
        data = self.read(len(target))
        target[: len(data)] = data
        return len(data)


class RangeReader(SizedReader):
    """A file that calls ``fetch(start, length_bytes)`` and keeps the last range."""

    def __init__(self, fetch: Callable[[int, int], bytes], size_bytes: int) -> None:
        super().__init__(size_bytes)
        self._fetch = fetch
        self._window = b""
        self._window_start = 0

    def _range(self, start: int, length_bytes: int) -> bytes:
        at = start - self._window_start
        if not (0 <= at and at + length_bytes <= len(self._window)):
            ahead_bytes = min(max(length_bytes, _READ_AHEAD_BYTES), self._size_bytes - start)
            self._window, self._window_start, at = self._fetch(start, ahead_bytes), start, 0
        return self._window[at : at + length_bytes]
