"""A pool of the open log files of one slice.

As long as a slice is not compacted, it collects more and more logs. A compaction must read all of
these logs, which may be more files than a process may open at the same time.
"""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, cast

from lakemark.errors import SnapshotChanged
from lakemark.read.base_file import open_data_file
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import Storage

_MAX_OPEN = 16


class LogFilePool:
    """Opens logs when they are read, and closes the least recently used ones."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._open: OrderedDict[str, tuple[ExitStack, BinaryIO]] = OrderedDict()

    def file(self, path: str) -> BinaryIO:
        """Return a log that can be read until ``close``.

        A read raises ``SnapshotChanged`` if the log was removed.

        Args:
            path: path of the log from the table's root.
        """
        return cast(BinaryIO, _LogFile(self, path))

    def open_together(self, paths: Sequence[str]) -> None:
        """Open the first logs at the same time if the store is remote; others open when read.

        A log that does not exist is skipped, and raises an error when it is read.
        """
        if not self._storage.is_remote:
            return
        opened = request_all(self._storage, self._open_if_any, paths[:_MAX_OPEN])
        self._open.update(
            {path: one for path, one in zip(paths, opened, strict=False) if one is not None}
        )

    def _open_if_any(self, path: str) -> tuple[ExitStack, BinaryIO] | None:
        try:
            return self._open_one(path)
        except SnapshotChanged:
            return None

    def _open_one(self, path: str) -> tuple[ExitStack, BinaryIO]:
        closing = ExitStack()
        return closing, closing.enter_context(open_data_file(self._storage, path))

    def stream(self, path: str) -> BinaryIO:
        """Return the open file of a log, valid until the next call for another log."""
        if path not in self._open:
            self._close_all_but(_MAX_OPEN - 1)
            self._open[path] = self._open_one(path)
        self._open.move_to_end(path)
        return self._open[path][1]

    def close(self) -> None:
        """Close every file."""
        self._close_all_but(0)

    def _close_all_but(self, count: int) -> None:
        while len(self._open) > count:
            _, (closing, _) = self._open.popitem(last=False)
            closing.close()


@contextmanager
def open_logs(storage: Storage) -> Iterator[LogFilePool]:
    """Open a pool for logs of a table, and close it at the end of the block."""
    logs = LogFilePool(storage)
    try:
        yield logs
    finally:
        logs.close()


class _LogFile(io.RawIOBase):
    """One log, which keeps its own position, because the pool may reopen the file."""

    def __init__(self, logs: LogFilePool, path: str) -> None:
        super().__init__()
        self._logs, self._path = logs, path
        self._position = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        assert whence == io.SEEK_SET, "a log is read by ranges"
        self._position = offset
        return offset

    def read(self, size: int | None = -1, /) -> bytes:
        stream = self._logs.stream(self._path)
        stream.seek(self._position)
        data = stream.read(-1 if size is None else size)
        self._position += len(data)
        return data
