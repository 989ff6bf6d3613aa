"""Temporary folders on this machine's disk, for spilled rows and shuffled payloads.

A killed process cannot remove its folder, and in a stream that runs for years some workers are
killed. So a process locks its folder while the folder is in use. When another process needs a
folder, it first removes all folders that are not locked. The system releases a lock when its
process ends for any reason.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from lakemark.errors import DiskFull
from lakemark.storage.disk import FULL_DISK
from lakemark.storage.durability import forget_below

#: The folder's name contains the machine's name, because on a network file system a lock is often
#: visible only on the machine that locked the folder.
_PREFIX = f"lakemark-scratch-{os.uname().nodename}-"


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """Create an empty folder that only this user can read, and remove it at the end of the block.

    The folder is created in the folder ``TMPDIR``. Before this process creates its first folder
    there, it removes the folders of killed processes.

    Args:
        purpose: a word in the folder's name, for users who find the folder.

    Raises:
        DiskFull: the disk is full.
    """
    with temporary_writes(f"a folder for {purpose}"):
        _remove_abandoned(_temporary_folder())
        folder, lock = _new_folder(purpose)
    owner = os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == owner:  # a forked process, which also ends this block, must not remove it
            shutil.rmtree(folder, ignore_errors=True)  # the next process removes the rest
            forget_below(str(folder))
        os.close(lock)


@contextmanager
def temporary_writes(content: str) -> Iterator[None]:
    """Run a block that writes temporary files; if the disk is full, raise ``DiskFull``.

    Args:
        content: a description of the content, for the message.

    Raises:
        DiskFull: the disk of the temporary folder is full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL_DISK:
            raise
        message = (
            f"the disk of the temporary folder {_temporary_folder()} is full "
            f"({os.strerror(error.errno)} while writing {content}); free space on it, or set "
            "TMPDIR to a folder on a larger disk"
        )
        raise DiskFull(message) from error


def _temporary_folder() -> str:
    """Return the folder in ``TMPDIR``, or the system's temporary folder.

    Raises:
        DiskFull: no temporary folder can be written.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        message = (
            f"no temporary folder can be written ({error.strerror}); free space on its disk, or "
            "set TMPDIR to a folder on a larger disk"
        )
        raise DiskFull(message) from error


@cache
def scratch_of_this_process(purpose: str) -> Path:
    """Return this process's scratch folder for a purpose, which is kept until the process exits."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(scratch_folder(purpose))


def _new_folder(purpose: str) -> tuple[Path, int]:
    """Create a folder; return the folder and the file descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
        with suppress(FileNotFoundError):
            lock = _open(folder)
            with suppress(OSError):  # if the file system has no locks, no process removes folders
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)  # another process removed the folder before it was locked


@cache
def _remove_abandoned(parent: str) -> None:
    """Remove this user's folders that no process has locked. Runs only once in each process."""
    found: list[Path] = []
    with suppress(OSError):  # the parent may be writable but not listable
        found += [path for path in Path(parent).iterdir() if path.name.startswith(_PREFIX)]
    for folder in found:
        # The folder may be removed, locked, or another user's, or its disk may have no locks.
        with suppress(OSError):
            _remove_if_free(folder)


def _remove_if_free(folder: Path) -> None:
    lock = _open(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_uid == os.geteuid():
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _open(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
