"""Files on a local disk.

Invariants:
- a file is written under a staging name beside its path (``<name>#<digits>``, never listed) and
  then linked or renamed into place, so that it appears whole;
- linking refuses a name that is taken, which makes ``create`` and ``publish`` create-only;
- a folder that ``delete`` empties goes away with its last file, as on an object store;
- Hadoop's checksum of a file, ``.<name>.crc``, goes before the file changes: a stale one would make
  Apache Hudi refuse the file, a missing one is not missed.

The calls are the operating system's own rather than obstore's ``LocalStore``, which cannot stream
into a create-only file, hides the error number, fails a whole listing for one foreign name with a
control character, and took 2.5 times as long for a small file.

Nothing is forced to the disk itself: a power failure may lose what was written just before.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import PurePosixPath
from typing import BinaryIO, TypeVar
from uuid import uuid4

from table.errors import HudiError, InvalidConfig, OutcomeUnknown, StorageUnavailable, Unsupported
from table.storage.same_content import same_content
from table.storage.storage import (
    AlreadyExists,
    InvalidPath,
    NotFound,
    ObjectInfo,
    StorageLocation,
    StreamingFile,
    check_path,
)

#: Names that are not objects of the table: staging files and Hadoop's checksums.
_HIDDEN = re.compile(r"#[0-9]+\Z|\A\..*\.crc\Z", re.DOTALL)

# How often a folder may vanish, by a delete in another process, between its making and its use.
_ATTEMPTS = 10

_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS)
_BAD_NAMES = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ)

T = TypeVar("T")


class LocalStorage:
    """A folder of a local (or mounted) file system; made with the first write."""

    def __init__(self, location: StorageLocation, root: str) -> None:
        self._location = location
        self._root = root

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    @property
    def location(self) -> StorageLocation:
        """What opens the same root elsewhere."""
        return self._location

    @property
    def supports_compare_and_swap(self) -> bool:
        """Never: a file system has no conditional rename."""
        return False

    def read(self, path: str) -> bytes:
        """See ``Storage.read``."""
        with self.open(path) as file:
            return file.read()

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        """See ``Storage.read_versioned``."""
        with _typed_errors(path), open(self._place(path), "rb") as file:
            return file.read(), _version(os.fstat(file.fileno()))

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See ``Storage.open``."""
        with _typed_errors(path):
            return open(self._place(path), "rb")

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Storage.head``."""
        with _typed_errors(path):
            try:
                status = os.stat(self._place(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _object_info(path, status) if stat.S_ISREG(status.st_mode) else None

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """See ``Storage.list_folder``."""
        with _typed_errors(folder):
            folders, objects = self._scan(folder)
        return sorted(folders), sorted(objects, key=lambda info: info.path)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """See ``Storage.list_tree``."""
        found: list[ObjectInfo] = []
        pending = [folder]
        with _typed_errors(folder):
            while pending:
                folders, objects = self._scan(pending.pop())
                pending += folders
                found += objects
        return sorted(found, key=lambda info: info.path)

    def create(self, path: str, data: bytes) -> None:
        """See ``Storage.create``."""
        place = self._place(path)
        with _typed_errors(path), self._staged(place, data) as staging:
            try:
                os.link(staging, place)
            except FileExistsError:
                self._settle(path, data)

    def create_streaming(self, path: str) -> StreamingFile:
        """See ``Storage.create_streaming``."""
        return LocalStreamingFile(path, self._place(path))

    def put(self, path: str, data: bytes) -> None:
        """See ``Storage.put``."""
        place = self._place(path)
        with _typed_errors(path), self._staged(place, data) as staging:
            _remove(_checksum_of(place))
            os.replace(staging, place)

    def replace(self, path: str, data: bytes, version: str) -> str:
        """Always refused, see ``supports_compare_and_swap``."""
        message = f"{self!r} cannot replace a version of {path}; use put under the table's lock"
        raise Unsupported(message)

    def publish(self, prepared: str, path: str) -> None:
        """See ``Storage.publish``; a hard link, so one step of the file system."""
        source, place = self._place(prepared), self._place(path)
        with _typed_errors(path):
            try:
                _in_folder_of(place, lambda: os.link(source, place), given=source)
            except FileExistsError:
                self._settle(path, self.read(prepared))
            except FileNotFoundError:
                raise self._prepared_is_gone(prepared, path) from None

    def delete(self, paths: Iterable[str]) -> None:
        """See ``Storage.delete``."""
        emptied: set[str] = set()
        for path in paths:
            place = self._place(path)
            with _typed_errors(path):
                _remove(_checksum_of(place))
                _remove(place)
                _remove_unfinished(place)
            emptied.add(os.path.dirname(place))
        for folder in emptied:
            self._remove_empty(folder)

    def _place(self, path: str) -> str:
        return os.path.join(self._root, check_path(path))

    def _scan(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        place = self._place(folder) if folder else self._root
        folders: list[str] = []
        objects: list[ObjectInfo] = []
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if _HIDDEN.search(entry.name) or not _is_path(path):
                    continue
                with suppress(FileNotFoundError):  # deleted since the folder was read
                    if entry.is_dir():
                        folders.append(path)
                    else:
                        objects.append(_object_info(path, entry.stat()))
        return folders, objects

    @contextmanager
    def _staged(self, place: str, data: bytes) -> Iterator[str]:
        staging = f"{place}#{uuid4().int}"
        try:
            with _in_folder_of(place, lambda: open(staging, "xb", buffering=0)) as file:
                _write_all(file.fileno(), data)
            yield staging
        finally:
            _remove(staging)

    def _settle(self, path: str, data: bytes) -> None:
        if self.read(path) != data:
            raise _other_bytes(path)

    def _prepared_is_gone(self, prepared: str, path: str) -> HudiError:
        if self.head(path) is None:
            return NotFound(f"{prepared} is gone, {path} was not made from it")
        return OutcomeUnknown(f"{prepared} is gone, but {path} is there: look whose it is")

    def _remove_empty(self, folder: str) -> None:
        with suppress(OSError):
            while len(folder) > len(self._root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)


class LocalStreamingFile:
    """See ``StreamingFile``; the bytes go to a staging file beside the path, then it is linked.

    The staging name is ``<name>#1`` (or the next that is free), so that deleting the path also
    takes what a killed writer left, and stops one that was only paused.
    """

    def __init__(self, path: str, place: str) -> None:
        self._path, self._place = path, place
        self._size_bytes = 0
        with _typed_errors(path):
            self._file = _open_unfinished(place)

    @property
    def closed(self) -> bool:
        """Whether it takes no more bytes."""
        return self._file.closed

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes."""
        with _typed_errors(self._path):
            self._file.write(data)
        written_bytes = memoryview(data).nbytes
        self._size_bytes += written_bytes
        return written_bytes

    def close(self) -> int:
        """Make the whole file visible; see ``StreamingFile.close``."""
        if self.closed:
            return self._size_bytes
        try:
            with _typed_errors(self._path):
                self._file.close()
                self._link()
        finally:
            self.abort()
        return self._size_bytes

    def abort(self) -> None:
        """Forget what was written."""
        with suppress(OSError):  # the disk is full: the last bytes are unwanted anyway
            self._file.close()
        _remove(self._file.name)

    def _link(self) -> None:
        try:
            os.link(self._file.name, self._place)
        except FileExistsError:
            with open(self._file.name, "rb") as ours, open(self._place, "rb") as theirs:
                if not same_content(ours, theirs):
                    raise _other_bytes(self._path) from None
        except FileNotFoundError:
            message = f"{self._path} was deleted while it was being written; write it again"
            raise StorageUnavailable(message) from None


def _open_unfinished(place: str) -> BinaryIO:
    for number in count(1):
        with suppress(FileExistsError):
            return _in_folder_of(place, lambda n=number: open(f"{place}#{n}", "xb"))
    raise AssertionError(place)


def _remove_unfinished(place: str) -> None:
    for number in count(1):
        if not _remove(f"{place}#{number}"):
            return


def _in_folder_of(place: str, step: Callable[[], T], given: str | None = None) -> T:
    """``step``, once the folder is there; a missing ``given`` is the caller's to explain."""
    for attempt in count(1):
        try:
            return step()
        except FileNotFoundError:
            if attempt == _ATTEMPTS or (given is not None and not os.path.exists(given)):
                raise
            os.makedirs(os.path.dirname(place), exist_ok=True)
    raise AssertionError(place)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _remove(place: str) -> bool:
    """Whether there was something to remove."""
    try:
        os.unlink(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _checksum_of(place: str) -> str:
    folder, name = os.path.split(place)
    return f"{folder}/.{name}.crc"


def _is_path(path: str) -> bool:
    try:
        check_path(path)
    except InvalidPath:
        return False
    return True


def _object_info(path: str, status: os.stat_result) -> ObjectInfo:
    modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
    return ObjectInfo(path, status.st_size, modified_at, _version(status))


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _other_bytes(path: str) -> AlreadyExists:
    return AlreadyExists(f"{path} is there already, with other bytes")


@contextmanager
def _typed_errors(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        message = f"no file at {path}"
        raise NotFound(message) from None
    except OSError as error:
        raise _typed(error, path) from error


def _typed(error: OSError, path: str) -> HudiError:
    reason = error.strerror or type(error).__name__
    if error.errno in _REFUSALS:
        return InvalidConfig(f"{path}: {reason}; give this user the right to write there")
    if error.errno in _BAD_NAMES:
        return InvalidPath(f"{path}: {reason}")
    return StorageUnavailable(f"{path}: {reason}")
