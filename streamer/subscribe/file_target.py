"""Appends changes as JSON lines to a local file, exactly once.

The cursor is in ``FILE.cursor``, with the size that the file has after the last delivered commit.
To deliver a commit, the target

1. appends the lines of the commit, and forces them to the disk,
2. writes the new cursor to ``FILE.cursor.part``, forces it to the disk, and renames it.

The commit is delivered when the cursor is renamed. If the process or the machine stops earlier, the
next start truncates the file to the size in the cursor, and appends the lines of the commit again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakemark.errors import CorruptData
from streamer.subscribe.cursor import Cursor, parse_object
from streamer.subscribe.errors import TargetRefused, TargetUnavailable
from streamer.subscribe.target import ChangeText

#: Lines are passed to the system in blocks of this size.
_BLOCK_BYTES = 1 << 20

_RIGHTS = "give this user the right to write to the file and to its folder, or name another file"

#: What to do about errors that remain until a user does something.
_REFUSALS = {
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: "name a file on a disk that is not read-only",
    errno.ENOENT: "create its folder, or correct the path",
    errno.ENOTDIR: "a part of the path is a file; correct the path",
    errno.EISDIR: "it is a folder; remove it, or name another file",
    errno.ELOOP: "correct the symbolic links in the path",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EFBIG: "a larger file is not allowed by the file system or the limit of the process "
    "(ulimit -f); name another file, or raise the limit",
}

#: What to do about errors that may end by themselves, so that the delivery is tried again.
_FAILURES = {
    errno.ENOSPC: "free space on its disk",
    errno.EDQUOT: "delete files of this user on its disk, or raise the quota",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files",
}


class FileTarget:
    """Appends one line for each change to a file, which only one process may do at a time."""

    def __init__(self, path: Path) -> None:
        """Open the file, and create it if it does not exist.

        Args:
            path: the file.

        Raises:
            TargetRefused: the file cannot be opened; or another process delivers to it; or its
                content is not that of a subscription.
            CorruptData: the file with the cursor is damaged.
        """
        self._path, self._cursor_path = path, path.with_name(f"{path.name}.cursor")
        self._file = self._open()
        try:
            self._cursor, self._size = self._load_cursor()
            self._check_content()
            with self._translating("write"):
                os.ftruncate(self._file, self._size)
        except BaseException:
            self.close()
            raise

    def __str__(self) -> str:
        return str(self._cursor_path)

    def peek_cursor(self) -> Cursor | None:
        """Return the stored cursor; no other process can deliver while the file is open."""
        return self._cursor

    def take_over(self) -> None:
        """Do nothing: ``__init__`` has locked the file."""

    def read_cursor(self) -> Cursor | None:
        """Return the stored cursor; None if nothing was delivered yet."""
        return self._cursor

    def check_continuous(self) -> None:
        """Do nothing: ``__init__`` and ``deliver`` check the file, also after a restart."""

    def deliver(self, changes: Iterable[ChangeText], cursor: Cursor) -> int:
        """Append the changes of one commit; see ``Target.deliver``."""
        self._check_same_file()
        size, count = self._size, 0
        for block, lines in _blocks(changes):
            with self._translating("write"):
                _write_at(self._file, block, size)
            size, count = size + len(block), count + lines
        with self._translating("write"):
            os.fsync(self._file)
            self._store(cursor, size)
        self._cursor, self._size = cursor, size
        return count

    def close(self) -> None:
        """Close the file. Other processes may then deliver to it."""
        os.close(self._file)

    def _load_cursor(self) -> tuple[Cursor | None, int]:
        """Return the stored cursor, and the size of the file that belongs to it."""
        path = str(self._cursor_path)
        with self._translating("read"):
            try:
                stored = parse_object(self._cursor_path.read_bytes(), path)
            except FileNotFoundError:
                return None, 0
        size = stored.get("size_bytes")
        if not isinstance(size, int) or size < 0:
            raise CorruptData(path, None, "size_bytes", repr(size))
        return Cursor.from_json(stored, path), size

    def _open(self) -> int:
        with self._translating("open"):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            message = (
                f"{self._path} is no regular file, so that its lines cannot be taken back; name a "
                "file, or deliver to standard output: --to -"
            )
            raise TargetRefused(message)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            message = f"another process delivers changes to {self._path}; stop it first"
            raise TargetRefused(message) from None
        return file

    def _check_content(self) -> None:
        found = os.fstat(self._file).st_size
        if self._cursor is None and found > 0:
            message = (
                f"{self._path} exists, but {self._cursor_path.name}, which a subscription keeps "
                "next to it, does not; name another file"
            )
            raise TargetRefused(message)
        if found < self._size:
            message = (
                f"{self._path} has {found:,} bytes, but the changes that were delivered are "
                f"{self._size:,} bytes; restore the file, or name another file"
            )
            raise TargetRefused(message)

    def _check_same_file(self) -> None:
        """Check that no program has replaced, removed or shortened the file since it was opened."""
        with self._translating("read"):
            own = os.fstat(self._file)
            try:
                named = os.stat(self._path)
            except FileNotFoundError:
                named = None
        if named is None or not os.path.samestat(own, named):
            message = (
                f"{self._path} was removed or replaced while changes were delivered to it; restore "
                "the file, or name another file"
            )
            raise TargetRefused(message)
        self._check_content()

    def _store(self, cursor: Cursor, size: int) -> None:
        part = self._cursor_path.with_name(f"{self._cursor_path.name}.part")
        text = json.dumps({**cursor.to_json(), "size_bytes": size})
        with _opened(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            _write_at(file, text.encode(), 0)
            os.fsync(file)
        os.replace(part, self._cursor_path)
        with _opened(self._path.parent, os.O_RDONLY) as folder:
            os.fsync(folder)

    @contextmanager
    def _translating(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._typed(verb, error) from error

    def _typed(self, verb: str, error: OSError) -> TargetRefused | TargetUnavailable:
        reason = os.strerror(error.errno) if error.errno else str(error)
        failed = f"cannot {verb} {error.filename or self._path}: {reason}"
        number = error.errno or 0
        if number in _REFUSALS:
            return TargetRefused(f"{failed}; {_REFUSALS[number]}")
        remedy = _FAILURES.get(number, "check the disk, or name a file on another one")
        return TargetUnavailable(f"{failed}; {remedy}")


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write_at(file: int, data: bytes, position: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], position + written)


def _blocks(changes: Iterable[ChangeText]) -> Iterator[tuple[bytes, int]]:
    """Yield lines in blocks, each with its number of lines."""
    block, lines = bytearray(), 0
    for change in changes:
        block += change.value.encode() + b"\n"
        lines += 1
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block), lines
            block, lines = bytearray(), 0
    if lines:
        yield bytes(block), lines
