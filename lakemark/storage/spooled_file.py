"""Writes a file on this machine, and uploads the complete file to an object store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from tempfile import SpooledTemporaryFile
from typing import IO

from lakemark.storage.scratch import temporary_writes

# A file is kept in memory up to this size, and beyond in the temporary folder (``TMPDIR``).
_IN_MEMORY_BYTES = 16 << 20
_CONTENT = "a file before it is sent to the object store"


class SpooledFile:
    """A ``StreamingFile`` that is sent only when complete, so that no partial uploads remain.

    Args:
        send: creates the object from the file, which is at its start, and from its size in bytes.
    """

    def __init__(self, send: Callable[[IO[bytes], int], None]) -> None:
        self._send = send
        self._size_bytes = 0
        self._spool = SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)

    @property
    def closed(self) -> bool:
        """Whether the file was closed or aborted."""
        return self._spool.closed

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes."""
        with temporary_writes(_CONTENT):
            self._spool.write(data)
        written_bytes = memoryview(data).nbytes
        self._size_bytes += written_bytes
        return written_bytes

    def close(self) -> int:
        """Make the whole file visible; see ``StreamingFile.close``."""
        if not self.closed:
            with temporary_writes(_CONTENT), self._spool:
                self._spool.seek(0)
                self._send(self._spool, self._size_bytes)
        return self._size_bytes

    def abort(self) -> None:
        """Discard the file."""
        with suppress(OSError):  # closing writes buffered bytes, and may fail on a full disk
            self._spool.close()
