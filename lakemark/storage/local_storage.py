"""A storage of files on a local disk.

Invariants:
- A file is written under a staging name next to its path (``<name>#<digits>``, never listed). Then
  it is linked or renamed, so that readers see the complete file or no file. An empty file is
  created without a staging name, because it is complete as soon as it exists.
- A link fails if the name exists, so ``create`` and ``publish`` never replace a file.
- If ``delete`` removes the last file of a folder, it also removes the folder, as on an object
  store, except folders that each commit of a table uses.
- Hadoop's checksum of a file, ``.<name>.crc``, is deleted before the file changes. Apache Hudi
  would refuse the file because of a stale checksum, but it accepts a file without a checksum.

The code calls the operating system directly, and does not use obstore's ``LocalStore``. That class
cannot stream into a create-only file, and hides the error number. It fails to list a folder if one
file name contains a control character. For a small file, ``LocalStore`` took 2.5 times as long.

``create`` and ``put`` force a file to the disk before the file becomes visible, so that no power
failure truncates the file. All other changes are forced by ``make_durable`` (``durability``).
``publish`` forces only its prepared file, and then the new name.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import BinaryIO

from lakemark.errors import HudiError, OutcomeUnknown, StorageUnavailable, Unsupported
from lakemark.storage.disk import (
    check_not_blocked,
    checksum_of,
    content_mismatch,
    create_empty,
    folders_kept_with,
    link,
    open_unfinished,
    remove,
    remove_empty_folders,
    remove_unfinished,
    staged_file,
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

# Files that are not objects: staging files, Hadoop's checksums, and files with names that objects
# must not have. A folder with such a name is listed, because it may be a partition.
_HIDDEN_FILE = re.compile(rf"\A\..*\.crc\Z|{REFUSED_IN_PATHS}")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: How often a listing of a folder is repeated if the folder keeps changing.
_SCANS = 10


class LocalStorage:
    """A folder of a local (or mounted) file system. The first write creates the folder."""

    def __init__(self, location: StorageLocation, root: str) -> None:
        self._location = location
        self._root = root
        self._unsynced = unsynced_below(root)

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    @property
    def location(self) -> StorageLocation:
        """The location that opens the same root in another process."""
        return self._location

    @property
    def supports_compare_and_swap(self) -> bool:
        """False, because a file system has no conditional rename."""
        return False

    @property
    def is_remote(self) -> bool:
        """False."""
        return False

    def read(self, path: str) -> bytes:
        """See ``Storage.read``."""
        with self.open(path) as file:
            return file.read()

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        """See ``Storage.read_versioned``."""
        with typed_errors(path, self._root), open(self._full_path(path), "rb") as file:
            return file.read(), _version(os.fstat(file.fileno()))

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See ``Storage.open``."""
        with typed_errors(path, self._root):
            return open(self._full_path(path), "rb")

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Storage.head``."""
        with typed_errors(path, self._root):
            try:
                status = os.stat(self._full_path(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return _object_info(path, status) if stat.S_ISREG(status.st_mode) else None

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        """See ``Storage.set_modified_at``. If the time is already set, nothing is changed."""
        full_path = self._full_path(path)
        nanoseconds = (moment - _EPOCH) // timedelta(microseconds=1) * 1000
        with typed_errors(path, self._root):
            if os.stat(full_path).st_mtime_ns == nanoseconds:
                return True
            os.utime(full_path, ns=(nanoseconds, nanoseconds))
        self._unsynced.note_file(full_path)
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
        full_path, is_forced = self._full_path(path), not may_be_cut
        with typed_errors(path, self._root), ExitStack() as staged:
            if data:
                file = staged_file(full_path, data, is_forced=is_forced)
                step = partial(link, staged.enter_context(file), full_path)
            else:  # an empty file is complete as soon as its name exists
                step = partial(create_empty, full_path)
            while (is_ours := self._made(step, path, data)) is None:
                pass
        if is_ours:
            self._note(full_path, is_whole=is_forced or not data)
        else:
            self._unsynced.note_file(full_path)

    def create_streaming(self, path: str) -> StreamingFile:
        """See ``Storage.create_streaming``."""
        return _LocalStreamingFile(path, self._full_path(path), self._root)

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """See ``Storage.put``."""
        full_path, is_forced = self._full_path(path), not may_be_cut
        staged = staged_file(full_path, data, is_forced=is_forced)
        with typed_errors(path, self._root), staged as staging:
            remove(checksum_of(full_path))
            os.replace(staging, full_path)
        self._note(full_path, is_whole=is_forced or not data)

    def replace(self, path: str, data: bytes, version: str) -> str:
        """Raise ``Unsupported``; see ``supports_compare_and_swap``."""
        message = f"{self!r} cannot replace a version of {path}; use put under the table's lock"
        raise Unsupported(message)

    def make_durable(self, path: str | None = None) -> None:
        """See ``Storage.make_durable``."""
        if path is None:
            self._unsynced.sync()
        else:
            self._unsynced.sync_name(self._full_path(path))

    def publish(self, prepared: str, path: str) -> None:
        """See ``Storage.publish``. The file is created by a hard link, which is atomic."""
        source, full_path = self._full_path(prepared), self._full_path(path)
        self._unsynced.sync_content(source)
        with typed_errors(path, self._root):
            try:
                link(source, full_path)
                self._unsynced.note_entry(full_path)
            except FileExistsError:
                if self.read(path) != self.read(prepared):
                    raise content_mismatch(path) from None
                self._unsynced.note_file(full_path)
            except FileNotFoundError:
                raise self._missing_prepared(prepared, path) from None
        self._unsynced.sync_name(full_path)

    def delete(self, paths: Iterable[str]) -> None:
        """See ``Storage.delete``."""
        emptied: set[str] = set()
        for path in paths:
            full_path = self._full_path(path)
            with typed_errors(path, self._root):
                remove(checksum_of(full_path))
                remove(full_path)
                remove_unfinished(full_path)
            self._unsynced.note_removal(full_path)
            emptied |= {os.path.dirname(full_path), *folders_kept_with(full_path)}
        for folder in emptied:
            remove_empty_folders(folder, self._root)

    def make_folder(self, folder: str) -> None:
        """See ``Storage.make_folder``."""
        with typed_errors(folder, self._root):
            os.makedirs(os.path.join(self._root, check_folder(folder)), exist_ok=True)
        self._unsynced.note_entry(os.path.join(self._root, folder, ""))

    def _note(self, full_path: str, *, is_whole: bool) -> None:
        """Note a written file as unsynced, or only its name if the content is on the disk."""
        (self._unsynced.note_entry if is_whole else self._unsynced.note_new_file)(full_path)

    def _full_path(self, path: str) -> str:
        return os.path.join(self._root, check_path(path))

    def _scan(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """List a folder as it was at one moment, unless the folder keeps changing.

        All names are read first, and then the size of each file. If a file was deleted in between,
        a file with another name may have replaced it: each new holder of a lock creates such a
        file. The names do not contain the new file, so the folder is listed again.
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
        """Return whether a folder is a link to a folder in the table, or to a parent of the table.

        The files behind such a link would be listed twice, or endlessly. Any other link is
        followed, because users move partitions to other disks in this way.
        """
        if not entry.is_symlink():
            return False
        root, target = os.path.realpath(self._root), os.path.realpath(entry.path)
        return os.path.commonpath((root, target)) in (root, target)

    def _made(self, step: Callable[[], None], path: str, data: bytes) -> bool | None:
        """Make a file by a step; return false if a file with the same content exists.

        None if the existing file was deleted in between, so that the step must be tried again.
        """
        try:
            step()
        except FileExistsError:
            with suppress(NotFound):
                if self.read(path) != data:
                    raise content_mismatch(path) from None
                return False
            check_not_blocked(self._full_path(path))
            return None
        return True

    def _missing_prepared(self, prepared: str, path: str) -> HudiError:
        if self.head(path) is None:
            return NotFound(f"{prepared} does not exist, and {path} was not created from it")
        return OutcomeUnknown(
            f"{prepared} does not exist, but {path} exists; check which writer created it"
        )


class _LocalStreamingFile:
    """A ``StreamingFile`` that writes a staging file next to the path, and then links it.

    The staging name is ``<name>#1`` (or the next free number), so ``delete`` of the path finds and
    deletes the staging file. This cleans up after a killed writer, and stops a paused writer.
    """

    def __init__(self, path: str, full_path: str, root: str) -> None:
        self._path, self._full_path, self._root = path, full_path, root
        self._size_bytes = 0
        self._closed = False
        with typed_errors(path, self._root):
            self._file = open_unfinished(full_path)

    @property
    def closed(self) -> bool:
        """Whether the file was closed or aborted."""
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
                    is_ours = self._link()
                unsynced = unsynced_below(self._root)
                (unsynced.note_new_file if is_ours else unsynced.note_file)(self._full_path)
            finally:
                self.abort()
        return self._size_bytes

    def abort(self) -> None:
        """Discard the file."""
        if not self._closed:
            self._closed = True
            with suppress(OSError):  # flushing fails on a full disk, but the file is discarded
                self._file.close()
            remove(self._file.name)
            remove_empty_folders(os.path.dirname(self._full_path), self._root)

    def _link(self) -> bool:
        """Link the written file to the path; return false if the same content exists there."""
        try:
            link(self._file.name, self._full_path)
        except FileExistsError:
            with open(self._file.name, "rb") as ours, open(self._full_path, "rb") as theirs:
                if not same_content(ours, theirs):
                    raise content_mismatch(self._path) from None
            return False
        except FileNotFoundError:
            message = f"{self._path} was deleted while it was being written; write it again"
            raise StorageUnavailable(message) from None
        return True


def _check_below_root(folder: str) -> None:
    """Check that a folder is below the root. Names that lakemark never writes are allowed.

    A partition of another writer may have such a name. Reading its files raises ``InvalidPath``.
    If the folder were hidden instead, queries would silently miss the partition's rows.
    """
    if folder and any(segment in ("", ".", "..") for segment in folder.split("/")):
        message = f"not a folder inside the table: {folder!r}"
        raise InvalidPath(message)


def _object_info(path: str, status: os.stat_result) -> ObjectInfo:
    modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
    return ObjectInfo(path, status.st_size, modified_at, _version(status))


def _version(status: os.stat_result) -> str:
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
