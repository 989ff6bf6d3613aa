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

What ``create`` and ``put`` write is forced to the disk before it appears, so that no power failure
leaves it cut. All else is forced by ``make_durable`` and before ``publish`` (``durability``).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from lakemark.errors import HudiError, OutcomeUnknown, StorageUnavailable, Unsupported
from lakemark.storage.disk import (
    checksum_of,
    link,
    open_unfinished,
    other_bytes,
    remove,
    remove_empty_folders,
    remove_unfinished,
    staged,
    typed_errors,
)
from lakemark.storage.durability import unsynced_below
from lakemark.storage.same_content import same_content
from lakemark.storage.storage import (
    REFUSED_IN_PATHS,
    InvalidPath,
    NotFound,
    ObjectInfo,
    StorageLocation,
    StreamingFile,
    check_folder,
    check_path,
)

# Files that are no objects: staging files, Hadoop's checksums, names outside the contract. A folder
# of such a name is listed, because it may be a partition.
_HIDDEN_FILE = re.compile(rf"\A\..*\.crc\Z|{REFUSED_IN_PATHS}")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: How often a folder is read at most that changes each time.
_SCANS = 10


class LocalStorage:
    """A folder of a local (or mounted) file system; made with the first write."""

    def __init__(self, location: StorageLocation, root: str) -> None:
        self._location = location
        self._root = root
        self._unsynced = unsynced_below(root)

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
        with typed_errors(path, self._root), open(self._place(path), "rb") as file:
            return file.read(), _version(os.fstat(file.fileno()))

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See ``Storage.open``."""
        with typed_errors(path, self._root):
            return open(self._place(path), "rb")

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Storage.head``."""
        with typed_errors(path, self._root):
            try:
                status = os.stat(self._place(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _object_info(path, status) if stat.S_ISREG(status.st_mode) else None

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        """See ``Storage.set_modified_at``."""
        nanoseconds = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
        with typed_errors(path, self._root):
            os.utime(self._place(path), ns=(nanoseconds, nanoseconds))
        self._unsynced.note_file(self._place(path))
        return True

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """See ``Storage.list_folder``."""
        _check_below_root(folder)
        with typed_errors(folder, self._root):
            folders, objects = self._scan(folder)
        return sorted(folders), sorted(objects, key=lambda info: info.path)

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """See ``Storage.list_tree``."""
        _check_below_root(folder)
        found: list[ObjectInfo] = []
        pending = [folder]
        with typed_errors(folder, self._root):
            while pending:
                folders, objects = self._scan(pending.pop())
                pending += folders
                found += objects
        return sorted(found, key=lambda info: info.path)

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """See ``Storage.create``."""
        place, is_forced = self._place(path), not may_be_cut
        with typed_errors(path, self._root), staged(place, data, is_forced=is_forced) as staging:
            while not self._link(staging, path, data):
                pass
        self._note(place, is_whole=is_forced or not data)

    def create_streaming(self, path: str) -> StreamingFile:
        """See ``Storage.create_streaming``."""
        return _LocalStreamingFile(path, self._place(path), self._root)

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """See ``Storage.put``."""
        place, is_forced = self._place(path), not may_be_cut
        with typed_errors(path, self._root), staged(place, data, is_forced=is_forced) as staging:
            remove(checksum_of(place))
            os.replace(staging, place)
        self._note(place, is_whole=is_forced or not data)

    def replace(self, path: str, data: bytes, version: str) -> str:
        """Always refused, see ``supports_compare_and_swap``."""
        message = f"{self!r} cannot replace a version of {path}; use put under the table's lock"
        raise Unsupported(message)

    def make_durable(self) -> None:
        """See ``Storage.make_durable``."""
        self._unsynced.sync()

    def publish(self, prepared: str, path: str) -> None:
        """See ``Storage.publish``; a hard link, so one step of the file system."""
        source, place = self._place(prepared), self._place(path)
        self._unsynced.sync()
        with typed_errors(path, self._root):
            try:
                link(source, place)
                self._unsynced.note_entry(place)
            except FileExistsError:
                if self.read(path) != self.read(prepared):
                    raise other_bytes(path) from None
                self._unsynced.note_file(place)
            except FileNotFoundError:
                raise self._prepared_is_gone(prepared, path) from None

    def delete(self, paths: Iterable[str]) -> None:
        """See ``Storage.delete``."""
        emptied: set[str] = set()
        for path in paths:
            place = self._place(path)
            with typed_errors(path, self._root):
                remove(checksum_of(place))
                remove(place)
                remove_unfinished(place)
            self._unsynced.note_removal(place)
            emptied.add(os.path.dirname(place))
        for folder in emptied:
            remove_empty_folders(folder, self._root)

    def make_folder(self, folder: str) -> None:
        """See ``Storage.make_folder``."""
        with typed_errors(folder, self._root):
            os.makedirs(os.path.join(self._root, check_folder(folder)), exist_ok=True)
        self._unsynced.note_entry(os.path.join(self._root, folder, ""))

    def _note(self, place: str, *, is_whole: bool) -> None:
        """Note a file that was written, or only its name if the content is on the disk already."""
        (self._unsynced.note_entry if is_whole else self._unsynced.note_file)(place)

    def _place(self, path: str) -> str:
        return os.path.join(self._root, check_path(path))

    def _scan(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """What is there at one moment, unless the folder does not stop changing.

        Names come at once, sizes one by one. A file that goes in between may have had a successor
        that is not among the names (as lock files have), so the names are read again.
        """
        for _ in range(_SCANS):
            folders, objects, is_whole = self._scan_once(folder)
            if is_whole:
                break
        return folders, objects

    def _scan_once(self, folder: str) -> tuple[list[str], list[ObjectInfo], bool]:
        folders: list[str] = []
        objects: list[ObjectInfo] = []
        is_whole = True
        with (
            suppress(FileNotFoundError, NotADirectoryError),
            os.scandir(os.path.join(self._root, folder)) as entries,
        ):
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                try:
                    if entry.is_dir():
                        if not self._leads_into_table(entry):
                            folders.append(path)
                    elif entry.is_file() and not _HIDDEN_FILE.search(entry.name):
                        objects.append(_object_info(path, entry.stat()))
                except FileNotFoundError:
                    is_whole = False
        return folders, objects, is_whole

    def _leads_into_table(self, entry: os.DirEntry[str]) -> bool:
        """Whether a folder is a link to another folder of the table, or to one that holds it.

        Its files would be listed twice, or without end. A link to a folder elsewhere is followed:
        people move partitions to other disks so.
        """
        if not entry.is_symlink():
            return False
        root, target = os.path.realpath(self._root), os.path.realpath(entry.path)
        return os.path.commonpath((root, target)) in (root, target)

    def _link(self, staging: str, path: str, data: bytes) -> bool:
        """Whether ``path`` holds the data now; if not, what was there has just been deleted."""
        try:
            link(staging, self._place(path))
        except FileExistsError:
            with suppress(NotFound):
                if self.read(path) != data:
                    raise other_bytes(path) from None
                return True
            return False
        return True

    def _prepared_is_gone(self, prepared: str, path: str) -> HudiError:
        if self.head(path) is None:
            return NotFound(f"{prepared} is gone, {path} was not made from it")
        return OutcomeUnknown(f"{prepared} is gone, but {path} is there: look whose it is")


class _LocalStreamingFile:
    """See ``StreamingFile``; the bytes go to a staging file beside the path, then it is linked.

    The staging name is ``<name>#1`` (or the next that is free), so that deleting the path also
    takes what a killed writer left, and stops one that was only paused.
    """

    def __init__(self, path: str, place: str, root: str) -> None:
        self._path, self._place, self._root = path, place, root
        self._size_bytes = 0
        self._closed = False
        with typed_errors(path, self._root):
            self._file = open_unfinished(place)

    @property
    def closed(self) -> bool:
        """Whether it takes no more bytes."""
        return self._closed

    def write(self, data: bytes | memoryview, /) -> int:
        """Append bytes."""
        with typed_errors(self._path, self._root):
            self._file.write(data)
        written_bytes = memoryview(data).nbytes
        self._size_bytes += written_bytes
        return written_bytes

    def close(self) -> int:
        """Make the whole file visible; see ``StreamingFile.close``."""
        if not self._closed:
            try:
                with typed_errors(self._path, self._root):
                    self._file.close()
                    self._link()
                unsynced_below(self._root).note_file(self._place)
            finally:
                self.abort()
        return self._size_bytes

    def abort(self) -> None:
        """Forget what was written."""
        if not self._closed:
            self._closed = True
            with suppress(OSError):  # a full disk: the last bytes are unwanted anyway
                self._file.close()
            remove(self._file.name)
            remove_empty_folders(os.path.dirname(self._place), self._root)

    def _link(self) -> None:
        try:
            link(self._file.name, self._place)
        except FileExistsError:
            with open(self._file.name, "rb") as ours, open(self._place, "rb") as theirs:
                if not same_content(ours, theirs):
                    raise other_bytes(self._path) from None
        except FileNotFoundError:
            message = f"{self._path} was deleted while it was being written; write it again"
            raise StorageUnavailable(message) from None


def _check_below_root(folder: str) -> None:
    """Pass every folder below the root, also one of a name that is never written here.

    If a partition of another writer has such a name, reading its files raises ``InvalidPath``;
    hiding the folder would hide its rows.
    """
    if folder and any(segment in ("", ".", "..") for segment in folder.split("/")):
        message = f"not a folder inside the table: {folder!r}"
        raise InvalidPath(message)


def _object_info(path: str, status: os.stat_result) -> ObjectInfo:
    modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
    return ObjectInfo(path, status.st_size, modified_at, _version(status))


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
