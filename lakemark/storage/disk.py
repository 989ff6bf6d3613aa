"""File system operations for a storage on a local disk, with typed errors.

``full_path`` is a path of the operating system. ``path`` is relative to the storage's root, and is
used in messages.
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

from lakemark.errors import DiskFull, HudiError, StorageUnavailable, Unsupported
from lakemark.storage.storage import AccessDenied, AlreadyExists, InvalidPath, NotFound

# How often a step is tried, because another process may delete the folder before its first use.
_ATTEMPTS = 10

_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK)
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)
#: Errors that mean that the disk is full or that the user's quota is exhausted.
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
#: The longest file name of common file systems, in bytes.
_MAX_NAME_BYTES = 255
_BAD_NAMES = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EEXIST)

#: Folders of a table or metadata table that contain files only during a commit. If they were
#: removed after each commit, the next commit would have to create them again, and force their
#: parents to the disk. No program infers anything from their existence.
_USED_BY_EACH_COMMIT = ("/.hoodie/.aux/prepared", "/.hoodie/.temp")
_PROPERTIES = "/.hoodie/hoodie.properties"

T = TypeVar("T")


@contextmanager
def typed_errors(path: str, root: str) -> Iterator[None]:
    """Convert operating system errors to lakemark errors, whose class shows how to react.

    Args:
        path: the file's path, relative to the storage's root.
        root: the folder of the storage, for the message about a full disk.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        message = f"no file at {path}"
        raise NotFound(message) from None
    except OSError as error:
        raise _typed(error, path, root) from error


@contextmanager
def staged_file(full_path: str, data: bytes, *, is_forced: bool) -> Iterator[str]:
    """Write a complete staging file next to ``full_path``, and yield its path.

    At the end, the staging file is deleted, unless the block has renamed it.

    Args:
        full_path: the final path.
        data: the file's content.
        is_forced: whether to force the content to the disk.
    """
    staging = _staging_path(full_path)
    try:
        with in_folder_of(full_path, lambda: open(staging, "xb", buffering=0)) as file:
            _write_all(file.fileno(), data)
            if is_forced and data:
                os.fsync(file.fileno())
        yield staging
    finally:
        remove(staging)


def _staging_path(full_path: str) -> str:
    """Return a new path next to ``full_path``, whose name is no longer than file systems allow."""
    folder, name = os.path.split(full_path)
    ending = f"#{uuid4().int}"
    kept = name.encode()[: _MAX_NAME_BYTES - len(ending)].decode(errors="ignore")
    return os.path.join(folder, kept + ending)


def open_unfinished(full_path: str) -> BinaryIO:
    """Open a new staging file ``<full_path>#<n>``, with the lowest free number."""
    for number in count(1):
        with suppress(FileExistsError):
            return in_folder_of(full_path, partial(_open_new, f"{full_path}#{number}"))
    raise AssertionError(full_path)


def remove_unfinished(full_path: str) -> None:
    """Remove the files that ``open_unfinished`` created for a path."""
    for number in count(1):
        if not remove(f"{full_path}#{number}"):
            return


def link(source: str, full_path: str) -> None:
    """Create a hard link at ``full_path`` to ``source``, and its folder if it is missing.

    Raises:
        FileNotFoundError: the source does not exist.
        FileExistsError: ``full_path`` already exists.
        Unsupported: the file system has no hard links.
    """
    try:
        in_folder_of(full_path, lambda: os.link(source, full_path), given=source)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        message = (
            f"{full_path}: cannot create a hard link ({error.strerror}); keep the table on one "
            "disk that supports hard links"
        )
        raise Unsupported(message) from error


def create_empty(full_path: str) -> None:
    """Create an empty file, and its folder if it is missing.

    Raises:
        FileExistsError: ``full_path`` already exists.
    """
    in_folder_of(full_path, lambda: _open_new(full_path)).close()


def remove(full_path: str) -> bool:
    """Remove a file; return false if there is no such file."""
    try:
        os.unlink(full_path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return False
    return True


def remove_empty_folders(folder: str, root: str) -> None:
    """Remove a folder, and then each parent below the root that is empty, too.

    Folders that every commit of a table uses are kept as long as the table exists.
    """
    with suppress(OSError):
        while len(folder) > len(root) and not _is_used_by_each_commit(folder):
            os.rmdir(folder)
            folder = os.path.dirname(folder)


def folders_kept_with(full_path: str) -> list[str]:
    """Return the folders that ``remove_empty_folders`` keeps as long as a file exists."""
    if not full_path.endswith(_PROPERTIES):
        return []
    return [full_path.removesuffix(_PROPERTIES) + ending for ending in _USED_BY_EACH_COMMIT]


def _is_used_by_each_commit(folder: str) -> bool:
    ending = next((one for one in _USED_BY_EACH_COMMIT if folder.endswith(one)), None)
    return ending is not None and os.path.exists(folder.removesuffix(ending) + _PROPERTIES)


def check_not_blocked(full_path: str) -> None:
    """Check that a file can be created at a path, which exists but cannot be read as a file.

    Raises:
        InvalidPath: the path is a folder, or a link that leads nowhere.
    """
    if os.path.isdir(full_path) or os.path.islink(full_path):
        message = f"{full_path} is a folder or a broken link; remove it, so that a file can be here"
        raise InvalidPath(message)


def checksum_of(full_path: str) -> str:
    """Return the path of Hadoop's checksum file for a file."""
    folder, name = os.path.split(full_path)
    return f"{folder}/.{name}.crc"


def content_mismatch(path: str) -> AlreadyExists:
    """Return the error for a file that exists with different content."""
    return AlreadyExists(f"{path} already exists with different content")


def in_folder_of(full_path: str, step: Callable[[], T], given: str | None = None) -> T:
    """Run a step, and create the folder of ``full_path`` if the folder is missing.

    Args:
        full_path: a path in the folder.
        step: the step to run; it raises ``FileNotFoundError`` if the folder is missing.
        given: a file that the step needs. If this file is missing, ``FileNotFoundError`` is raised.
    """
    for attempt in count(1):
        try:
            return step()
        except FileNotFoundError:
            if attempt == _ATTEMPTS or (given is not None and not os.path.exists(given)):
                raise
            # ``delete`` in another process may remove the folders at the same time.
            with suppress(FileNotFoundError, FileExistsError):
                os.makedirs(os.path.dirname(full_path), exist_ok=True)
        except NotADirectoryError as error:
            message = f"{full_path}: part of the path is a file"
            raise InvalidPath(message) from error
    raise AssertionError(full_path)


def _open_new(full_path: str) -> BinaryIO:
    return open(full_path, "xb")


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _typed(error: OSError, path: str, root: str) -> HudiError:
    reason = error.strerror or type(error).__name__
    if error.errno in FULL_DISK:
        return DiskFull(
            f"the disk of {root} is full ({reason} while writing {path}); free space on it, raise "
            "the quota, or move the folder to a larger disk"
        )
    if error.errno in _REFUSALS:
        return AccessDenied(f"{path}: {reason}; give this user write permission")
    if error.errno in _BAD_NAMES:
        return InvalidPath(f"{path}: {reason}")
    return StorageUnavailable(f"{path}: {reason}")
