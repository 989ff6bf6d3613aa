"""Steps of the file system that a storage on a local disk is made of, with typed errors.

``place`` is a full path of the operating system, ``path`` the storage's own, for messages.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import BinaryIO, TypeVar
from uuid import uuid4

from lakemark.errors import HudiError, InvalidConfig, StorageUnavailable, Unsupported
from lakemark.storage.storage import AlreadyExists, InvalidPath, NotFound

# How often a folder may vanish, by a delete in another process, between its making and its use.
_ATTEMPTS = 10

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)
#: The disk has no more room, or the quota does not allow more.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_BAD_NAMES = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EEXIST)

T = TypeVar("T")


@contextmanager
def typed_errors(path: str, root: str) -> Iterator[None]:
    """ClockTurn what the operating system raises into errors that say what the caller may do.

    Args:
        path: of the file, relative to the storage's root.
        root: folder of the storage, which the message about a full disk names.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        message = f"no file at {path}"
        raise NotFound(message) from None
    except OSError as error:
        raise _typed(error, path, root) from error


@contextmanager
def staged(place: str, data: bytes, *, is_forced: bool) -> Iterator[str]:
    """A whole file beside ``place``, gone at the end unless it was renamed.

    Args:
        place: where it is to appear.
        data: its content.
        is_forced: whether its content is on the disk before it appears.
    """
    staging = f"{place}#{uuid4().int}"
    try:
        with in_folder_of(place, lambda: open(staging, "xb", buffering=0)) as file:
            _write_all(file.fileno(), data)
            if is_forced and data:
                os.fsync(file.fileno())
        yield staging
    finally:
        remove(staging)


def open_unfinished(place: str) -> BinaryIO:
    """A new staging file ``<place>#<n>``, with the lowest number that is free."""
    for number in count(1):
        with suppress(FileExistsError):
            return in_folder_of(place, partial(_open_new, f"{place}#{number}"))
    raise AssertionError(place)


def remove_unfinished(place: str) -> None:
    """Remove what ``open_unfinished`` made for a place."""
    for number in count(1):
        if not remove(f"{place}#{number}"):
            return


def link(source: str, place: str) -> None:
    """Give a file a second name, unless that is taken; makes the folder.

    Raises:
        FileNotFoundError: no source.
        FileExistsError: the name is taken.
        Unsupported: the file system cannot.
    """
    try:
        in_folder_of(place, lambda: os.link(source, place), given=source)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        message = f"{place}: no hard link ({error.strerror}); keep the table on one disk with them"
        raise Unsupported(message) from error


def remove(place: str) -> bool:
    """Whether there was a file to remove."""
    try:
        os.unlink(place)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return True


def remove_empty_folders(folder: str, root: str) -> None:
    """Remove a folder and those above it, below the root, as long as they are empty."""
    with suppress(OSError):
        while len(folder) > len(root):
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def checksum_of(place: str) -> str:
    """Where Hadoop keeps the checksum of a file."""
    folder, name = os.path.split(place)
    return f"{folder}/.{name}.crc"


def other_bytes(path: str) -> AlreadyExists:
    """The error of a name that is taken by something else."""
    return AlreadyExists(f"{path} is there already, with other bytes")


def in_folder_of(place: str, step: Callable[[], T], given: str | None = None) -> T:
    """``step``, once the folder is there; a missing ``given`` is the caller's to explain."""
    for attempt in count(1):
        try:
            return step()
        except FileNotFoundError:
            if attempt == _ATTEMPTS or (given is not None and not os.path.exists(given)):
                raise
            with suppress(FileNotFoundError, FileExistsError):  # a delete takes folders, too
                os.makedirs(os.path.dirname(place), exist_ok=True)
        except NotADirectoryError as error:
            message = f"{place}: part of the path is a file"
            raise InvalidPath(message) from error
    raise AssertionError(place)


def _open_new(place: str) -> BinaryIO:
    return open(place, "xb")


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _typed(error: OSError, path: str, root: str) -> HudiError:
    reason = error.strerror or type(error).__name__
    if error.errno in FULL_DISK:
        return StorageUnavailable(
            f"the disk of {root} is full ({reason} while writing {path}); free space on it, raise "
            "the quota, or move the folder to a larger disk"
        )
    if error.errno in _REFUSALS:
        return InvalidConfig(f"{path}: {reason}; give this user the right to write there")
    if error.errno in _BAD_NAMES:
        return InvalidPath(f"{path}: {reason}")
    return StorageUnavailable(f"{path}: {reason}")
