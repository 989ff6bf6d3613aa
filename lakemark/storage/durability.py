"""Files that this process has written to local disks and that may not be on the disk yet.

A file is forced to the disk (``fsync``) together with its parent folders, because a power failure
may lose either. Writes are not forced one by one: ``Unsynced.sync`` forces everything written so
far, in threads, so that the file system commits its journal for many files at once. Heartbeats and
locks are not forced, because no process needs them after a power failure. A parent folder is not
forced if it has not changed since it was last forced. A publication forces only its own file and
folders (``sync_content``, ``sync_name``), because it must be short.

Unsynced files belong to the process and the root, not to one ``LocalStorage``, because tasks in
threads open a table's location again. A worker process forces its own files before its task ends
(``sync_process``), because the driver does not know them.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from stat import S_ISDIR
from threading import Lock
from typing import TypeAlias, TypeVar

from lakemark.errors import HudiError
from lakemark.storage.disk import typed_errors
from lakemark.storage.storage import NotFound

T = TypeVar("T")

#: Device, inode, and time of the last change (nanoseconds) of a folder.
_Look: TypeAlias = tuple[int, int, int]

_THREADS = 16

#: At most so many files are forced by the kept threads of the process.
_MAX_SHARED = 8

#: Folders of a table whose files are useless once all processes have ended. Markers are not among
#: them: missing markers are evidence that a commit has completed (``completion_loss``).
_OF_RUNNING_PROCESSES = re.compile(r"(/.*)?/\.hoodie/\.(heartbeat|locks)(/|\Z)")

#: Resolution of the coarsest clock of a file system: a folder may change within this time without a
#: new time of its last change.
_CLOCK_STEP_S = 2.0

#: Errors of file systems that cannot force a folder (some network and FUSE file systems).
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


@dataclass(frozen=True, eq=False, slots=True)
class _Note:
    """One note that a path must be forced; a later note of the path is another object.

    Attributes:
        is_changed: false for a folder above a change: it is forced only if its time has changed.
        turn: held while the path is forced, by one thread at a time. Linux reports a lost page to
            one of two threads, so the other one waits until the first has recorded it.
    """

    is_changed: bool
    turn: Lock


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a path could not be forced.

    Attributes:
        lost: device and inode of the file whose content may be lost. None if nothing is lost, so
            that the path may be forced again.
    """

    error: HudiError
    lost: tuple[int, int] | None


class Unsynced:
    """Files and folders below one root that changed since they were last forced to the disk.

    A path is forgotten only after it was forced. So no exception, such as an interrupt, makes the
    next ``sync`` skip it.

    If the system failed to force a file, it remains failed until its name leads to no file or to
    another one: Linux reports a failure once, and then treats the lost pages as written. A folder,
    and a file that could not be opened, are forced again by the next ``sync``: the file system
    keeps the changes of a folder in its journal, and an error of opening loses nothing.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._notes: dict[str, _Note] = {}
        self._forced: dict[str, _Look] = {}
        self._is_root_new = True
        self._failed: dict[str, _Failure] = {}
        self._changing = Lock()

    def __reduce__(self) -> tuple[Callable[[str], Unsynced], tuple[str]]:
        """Unpickle as the other process's own object for the root."""
        return unsynced_below, (self._root,)

    def note_new_file(self, full_path: str) -> None:
        """Note that a new file has this name, so that its content must be forced."""
        with self._changing:
            self._failed.pop(full_path, None)
            self._note_file(full_path)

    def note_file(self, full_path: str) -> None:
        """Note that a file must be forced that may have failed before.

        It has a new modification time, or this process found the content that it was to write.
        """
        with self._changing:
            self._note_file(full_path)

    def note_entry(self, full_path: str) -> None:
        """Note that a name was created whose content, if any, is on the disk."""
        with self._changing:
            self._failed.pop(full_path, None)
            self._note_folders_of(full_path)

    def note_removal(self, full_path: str) -> None:
        """Note that a file was deleted, so that its content need not be forced."""
        with self._changing:
            self._failed.pop(full_path, None)
            self._notes.pop(full_path, None)
            self._note_folders_of(full_path)

    def sync(self) -> None:
        """Return when everything that was noted before is on the disk.

        Raises:
            StorageUnavailable: the disk failed, or is full.
            InvalidConfig: this user may not read a file or a folder.
        """
        with self._changing:
            full_paths = {*self._notes, *self._failed}
        self._sync(full_paths)

    def sync_content(self, full_path: str) -> None:
        """Return when the content of a file is on the disk; its name need not be.

        Raises: as ``sync``.
        """
        self._sync({full_path})

    def sync_name(self, full_path: str) -> None:
        """Return when a file and its name are on the disk; other files are not forced.

        Raises: as ``sync``.
        """
        self._sync({full_path, *_folders_of(full_path)})

    def _matters(self, full_path: str) -> bool:
        """Return whether a file is needed after a power failure."""
        return not _OF_RUNNING_PROCESSES.match(full_path, len(self._root))

    def _sync(self, full_paths: Set[str]) -> None:
        """Force those of the paths that were noted."""
        with self._changing:
            notes = {p: self._notes[p] for p in full_paths if p in self._notes}
        paths = sorted(p for p in notes if self._must_force(p, notes[p]))
        errors = [error for error in _in_threads(self._sync_one, paths) if error]
        for error in errors + self._errors_of_lost_content(full_paths):
            raise error

    def _must_force(self, full_path: str, note: _Note) -> bool:
        """Return whether a noted path must be forced; if not, it is forgotten."""
        if note.is_changed or self._has_changed(full_path):
            return True
        with self._changing:
            self._forget(full_path, note)
        return False

    def _has_changed(self, folder: str) -> bool:
        """Return whether any process may have changed the names in a folder since it was forced."""
        look = _look(folder)
        return look is None or look != self._forced.get(folder)

    def _sync_one(self, full_path: str) -> HudiError | None:
        """Force a path, unless another thread has just done it; returns why it must be repeated."""
        note = self._notes.get(full_path)
        if note is None:
            return None
        with note.turn:
            note = self._notes.get(full_path)
            return None if note is None else self._force(full_path, note)

    def _force(self, full_path: str, note: _Note) -> HudiError | None:
        """Force a path and record the result at once: other threads may fail and end the sync."""
        look = None if note.is_changed else _look(full_path)  # before it is forced
        failure = self._failure_of(full_path)
        if failure is not None and failure.lost is None:
            return failure.error
        with self._changing:
            self._forget(full_path, note)
            if failure is not None:
                self._failed[full_path] = failure
            elif look is not None:
                self._forced[full_path] = look
        return None

    def _failure_of(self, full_path: str) -> _Failure | None:
        """Force a path; None if it is on the disk, or does not exist."""
        lost = None
        try:
            with (
                typed_errors(os.path.relpath(full_path, self._root), self._root),
                _opened(full_path) as descriptor,
            ):
                lost = _identity_of_file(descriptor)
                _sync_opened(descriptor)
        except NotFound:
            return None
        except HudiError as error:
            return _Failure(error, lost)
        return None

    def _errors_of_lost_content(self, full_paths: Set[str]) -> list[HudiError]:
        """Return the errors of failed files that still exist: any process may have deleted one."""
        with self._changing:
            failed = {p: self._failed[p] for p in full_paths if p in self._failed}
            for full_path, failure in failed.items():
                if not _may_be(full_path, failure.lost):
                    del self._failed[full_path]
            return [self._failed[p].error for p in failed if p in self._failed]

    def _forget(self, full_path: str, note: _Note) -> None:
        """Forget a note of a path, but not a later one."""
        if self._notes.get(full_path) is note:
            del self._notes[full_path]

    def _note_file(self, full_path: str) -> None:
        if self._matters(full_path):
            self._note(full_path)
            self._note_folders_of(full_path)

    def _note(self, full_path: str, *, is_changed: bool = True) -> None:
        earlier = self._notes.get(full_path)
        if earlier is None:
            self._notes[full_path] = _Note(is_changed, Lock())
        else:
            self._notes[full_path] = _Note(is_changed or earlier.is_changed, earlier.turn)

    def _note_folders_of(self, full_path: str) -> None:
        """Note the folder of a path, which has changed, and all its parents up to the root.

        All parents are noted, because another process may have created one and died before it
        forced it.
        """
        if not self._matters(full_path):
            return
        if self._is_root_new:  # the folders above it may be new, too
            self._is_root_new = False
            for above in _folders_leading_to(self._root):
                self._note(above, is_changed=False)
        folder = os.path.dirname(full_path)
        self._note(folder)
        while len(folder) > len(self._root):
            folder = os.path.dirname(folder)
            self._note(folder, is_changed=False)


def _folders_of(full_path: str) -> Iterator[str]:
    """Yield all folders above a path."""
    while full_path != os.path.dirname(full_path):
        full_path = os.path.dirname(full_path)
        yield full_path


def _folders_leading_to(root: str) -> Iterator[str]:
    """Yield the folders above a root, on its file system, that this user may force."""
    folder = os.path.dirname(root)
    with suppress(OSError):
        while os.stat(folder).st_dev == os.stat(root).st_dev and os.access(folder, os.R_OK):
            yield folder
            if folder == os.path.dirname(folder):
                return
            folder = os.path.dirname(folder)


def _look(folder: str) -> _Look | None:
    """Identifies the state of a folder; None if it does not exist, or changed too recently."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    is_reliable = status.st_ctime < time.time() - _CLOCK_STEP_S
    return (status.st_dev, status.st_ino, status.st_ctime_ns) if is_reliable else None


def _in_threads(function: Callable[[str], T], full_paths: Sequence[str]) -> list[T]:
    """Call a function in threads, so that the file system commits its journal for many at once."""
    if len(full_paths) <= 1:
        return list(map(function, full_paths))
    if len(full_paths) <= _MAX_SHARED:
        return list(_shared_threads(os.getpid(), _THREADS).map(function, full_paths))
    with ThreadPoolExecutor(min(_THREADS, len(full_paths))) as pool:
        return list(pool.map(function, full_paths))


@cache
def _shared_threads(_process_id: int, count: int) -> ThreadPoolExecutor:
    """Return the kept threads of a process; a forked process does not have those of its parent.

    A commit of a few records forces files about seven times, and starting threads each time took a
    seventh of its time (``docs/performance.md``). Only small sets of files use these threads, so
    that no commit waits until the files of a compaction are forced.
    """
    return ThreadPoolExecutor(count, "lakemark-sync")


@contextmanager
def _opened(full_path: str) -> Iterator[int]:
    descriptor = os.open(full_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _identity_of_file(descriptor: int) -> tuple[int, int] | None:
    """Device and inode of an open file; None for a folder."""
    status = os.fstat(descriptor)
    return None if S_ISDIR(status.st_mode) else (status.st_dev, status.st_ino)


def _sync_opened(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC or _identity_of_file(descriptor) is not None:
            raise


def _may_be(full_path: str, identity: tuple[int, int] | None) -> bool:
    """Whether a path leads to the file of this device and inode, as far as this user may see."""
    try:
        status = os.stat(full_path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return (status.st_dev, status.st_ino) == identity


_of_roots: dict[str, Unsynced] = {}
_of_roots_lock = Lock()


def unsynced_below(root: str) -> Unsynced:
    """Return the unsynced files of this process below a root."""
    with _of_roots_lock:
        return _of_roots.setdefault(root, Unsynced(root))


def sync_process() -> None:
    """Force the files of this process below every root; errors as of ``Unsynced.sync``."""
    with _of_roots_lock:
        everything = list(_of_roots.values())
    for unsynced in everything:
        unsynced.sync()
