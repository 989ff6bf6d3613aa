"""Folders on this machine's disk for what no process outlives: spilled rows, shuffled payloads.

A process that is killed removes nothing, and a stream that runs for years has workers killed now
and then. So a folder is locked while it is in use, and the next process that needs one first
removes those whose lock is free: the system frees it when a process ends, however it ends.
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

from lakemark.errors import StorageUnavailable
from lakemark.storage.disk import FULL_DISK

#: On a network's file system the lock of a folder is often known to its own machine only, so each
#: machine keeps to its own folders.
_PREFIX = f"lakemark-scratch-{os.uname().nodename}-"


@contextmanager
def scratch_folder(purpose: str) -> Iterator[Path]:
    """A new, empty folder that only this user can read; removed at the end.

    It lies where ``TMPDIR`` says. Before this process makes its first one there, those are removed
    that killed processes left.

    Args:
        purpose: a word for whoever finds it there.

    Raises:
        StorageUnavailable: the disk is full.
    """
    with temporary_writes(f"a folder for {purpose}"):
        _remove_abandoned(_temporary_folder())
        folder, lock = _new_folder(purpose)
    owner = os.getpid()
    try:
        yield folder
    finally:
        if os.getpid() == owner:  # the exit of a fork ends its copy of this block, too
            shutil.rmtree(folder, ignore_errors=True)  # the next process removes what is left
        os.close(lock)


@contextmanager
def temporary_writes(content: str) -> Iterator[None]:
    """A block that writes temporary files; a full disk gets an error that names the remedy.

    Args:
        content: what is written, for the message.

    Raises:
        StorageUnavailable: the disk of the temporary folder is full.
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
        raise StorageUnavailable(message) from error


def _temporary_folder() -> str:
    """The folder that ``TMPDIR`` names, or the system's.

    Raises:
        StorageUnavailable: no file can be written in any of them.
    """
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        message = (
            f"no temporary folder can be written ({error.strerror}); free space on its disk, or "
            "set TMPDIR to a folder on a larger disk"
        )
        raise StorageUnavailable(message) from error


@cache
def scratch_of_this_process(purpose: str) -> Path:
    """The same folder at every call, until this process exits."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(scratch_folder(purpose))


def _new_folder(purpose: str) -> tuple[Path, int]:
    """A folder and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-"))
        with suppress(FileNotFoundError):
            lock = _open(folder)
            with suppress(OSError):  # without locks nobody can take one that is in use for left
                fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)  # somebody found it before it was locked


@cache
def _remove_abandoned(place: str) -> None:
    """Remove the folders of this user that no process holds; once in each process."""
    found: list[Path] = []
    with suppress(OSError):  # a place where everyone may write and nobody may look
        found += [path for path in Path(place).iterdir() if path.name.startswith(_PREFIX)]
    for folder in found:
        with suppress(OSError):  # gone since, of another user, held, or not to be locked
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
