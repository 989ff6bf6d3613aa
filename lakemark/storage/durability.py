"""Keeps track of files that this process wrote to local disks, and forces them to the disk.

A file is forced to the disk (``fsync``) together with its parent folders, because a power failure
may lose the content or the name. Files are not forced one by one. ``Unsynced.sync`` forces all
files written so far, in threads, so that the file system commits its journal for many files at
once. Heartbeats and locks are not forced, because no process needs them after a power failure. A
parent folder is not forced if it has not changed since it was last forced. A publication must be
short, so it forces only its own file and folders (``sync_content``, ``sync_name``).

A process has one ``Unsynced`` for each root. All ``LocalStorage`` objects of the root share this
``Unsynced``, because tasks in threads open a table's location again. A worker process forces its
own files before its task ends (``sync_process``), because the driver does not know these files.
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
from functools import cache, lru_cache
from stat import S_ISDIR
from threading import Lock
from typing import TypeAlias, TypeVar

from lakemark.errors import HudiError
from lakemark.storage.disk import typed_errors
from lakemark.storage.storage import NotFound

T = TypeVar("T")

#: The device, the inode and the time of the last change (in nanoseconds) of a folder.
_Look: TypeAlias = tuple[int, int, int]

_THREADS = 16

#: The largest number of files that are forced by the shared threads of the process.
_MAX_SHARED = 32

#: The largest number of paths that a shared thread forces one after the other.
_PATHS_OF_THREAD = 2

#: The number of folders whose parents are remembered.
_KNOWN_FOLDERS = 4096

#: Folders of a table whose files are useless once all processes have ended. Markers are not in
#: these folders, because missing markers show that a commit has completed (``completion_loss``).
_OF_RUNNING_PROCESSES = re.compile(r"(/.*)?/\.hoodie/\.(heartbeat|locks)(/|\Z)")

#: Resolution of the coarsest file system clock. If a folder changes twice within this time, both
#: changes may have the same time.
_CLOCK_STEP_S = 2.0

#: Errors of file systems that cannot force a folder (some network and FUSE file systems).
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


@dataclass(frozen=True, eq=False, slots=True)
class _Note:
    """A note that a path must be forced. A later note of the same path is another object.

    Attributes:
        is_changed: whether the path itself has changed. False for the parents of a changed folder;
            a parent is forced only if the time of the parent's last change differs.
        lock: the lock of the thread that forces the path. If two threads force a file, Linux
            reports a lost page to only one of them. So the second thread waits until the first has
            recorded the error.
    """

    is_changed: bool
    lock: Lock


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason why a path could not be forced.

    Attributes:
        error: the error to raise.
        lost: the device and inode of the file whose content may be lost. None if nothing is lost;
            then the path may be forced again.
    """

    error: HudiError
    lost: tuple[int, int] | None


class Unsynced:
    """Files and folders below one root that changed since they were last forced to the disk.

    A path is forgotten only after it was forced. So after an exception, such as an interrupt, the
    next ``sync`` still forces the path.

    If the system failed to force a file, every ``sync`` raises the error until the file is deleted
    or replaced. The reason is that Linux reports a failure only once, and then treats the lost
    pages as written. In contrast, the next ``sync`` forces a folder again, because the file system
    keeps a folder's changes in its journal. A file that could not be opened is also forced again,
    because nothing was lost.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._notes: dict[str, _Note] = {}
        self._forced: dict[str, _Look] = {}
        self._is_root_new = True
        self._failed: dict[str, _Failure] = {}
        self._changing = Lock()

    def __reduce__(self) -> tuple[Callable[[str], Unsynced], tuple[str]]:
        """Unpickle to the other process's own ``Unsynced`` of the same root."""
        return unsynced_below, (self._root,)

    def note_new_file(self, full_path: str) -> None:
        """Note that a new file was created at this path, so that its content must be forced."""
        with self._changing:
            self._failed.pop(full_path, None)
            self._note_file(full_path)

    def note_file(self, full_path: str) -> None:
        """Note that an existing file must be forced. Earlier failures of the file still count.

        Call this if the file has a new modification time, or already had the content to be written.
        """
        with self._changing:
            self._note_file(full_path)

    def note_entry(self, full_path: str) -> None:
        """Note that a name was created. The content of its file, if any, is already on the disk."""
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
        """Force everything that was noted before to the disk.

        Raises:
            StorageUnavailable: the disk failed, or is full.
            InvalidConfig: this user may not read a file or a folder.
        """
        with self._changing:
            full_paths = {*self._notes, *self._failed}
        self._sync(full_paths)

    def sync_content(self, full_path: str) -> None:
        """Force the content of a file to the disk, not its name. Raises what ``sync`` raises."""
        self._sync({full_path})

    def sync_name(self, full_path: str) -> None:
        """Force only this file and its name to the disk. Raises what ``sync`` raises."""
        self._sync({full_path, *_folders_of(full_path)})

    def _matters(self, full_path: str) -> bool:
        """Return whether a file is needed after a power failure."""
        return not _OF_RUNNING_PROCESSES.match(full_path, len(self._root))

    def _sync(self, full_paths: Set[str]) -> None:
        """Force those of the given paths that have a note."""
        with self._changing:
            notes = {p: self._notes[p] for p in full_paths if p in self._notes}
        paths = sorted(p for p in notes if self._must_force(p, notes[p]))
        errors = [error for error in _in_threads(self._sync_one, paths) if error]
        for error in errors + self._errors_of_lost_content(full_paths):
            raise error

    def _must_force(self, full_path: str, note: _Note) -> bool:
        """Return whether a noted path must be forced; if not, forget the note."""
        if note.is_changed or self._has_changed(full_path):
            return True
        with self._changing:
            self._forget(full_path, note)
        return False

    def _has_changed(self, folder: str) -> bool:
        """Return whether a folder may have changed since this process last forced it."""
        look = _look(folder)
        return look is None or look != self._forced.get(folder)

    def _sync_one(self, full_path: str) -> HudiError | None:
        """Force a path, unless another thread has just forced it.

        Return the error if the path must be forced again.
        """
        note = self._notes.get(full_path)
        if note is None:
            return None
        with note.lock:
            note = self._notes.get(full_path)
            return None if note is None else self._force(full_path, note)

    def _force(self, full_path: str, note: _Note) -> HudiError | None:
        """Force a path, and record the result at once, so that an end of the sync does not lose it.

        Return the error if the path must be forced again.
        """
        look = None if note.is_changed else _look(full_path)  # before the folder is forced
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
        """Force a path; return None if the path is now on the disk, or does not exist."""
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
        """Return the errors of failed files that still exist.

        Failures of files that any process has deleted or replaced are forgotten.
        """
        with self._changing:
            failed = {p: self._failed[p] for p in full_paths if p in self._failed}
            for full_path, failure in failed.items():
                if not _may_be(full_path, failure.lost):
                    del self._failed[full_path]
            return [self._failed[p].error for p in failed if p in self._failed]

    def _forget(self, full_path: str, note: _Note) -> None:
        """Forget a note of a path, unless there is a later note of the path."""
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
            self._notes[full_path] = _Note(is_changed or earlier.is_changed, earlier.lock)

    def _note_folders_of(self, full_path: str) -> None:
        """Note the folder of a path as changed, and note all its parents up to the root.

        All parents are noted, because another process may have created a parent and died before it
        forced that folder.
        """
        if not self._matters(full_path):
            return
        if self._is_root_new:  # the folders above the root may be new, too
            self._is_root_new = False
            for above in _folders_leading_to(self._root):
                self._note(above, is_changed=False)
        folder, *parents = _folders_up_to(os.path.dirname(full_path), self._root)
        self._note(folder)
        for parent in parents:
            self._note(parent, is_changed=False)


def _folders_of(full_path: str) -> Iterator[str]:
    """Yield all folders above a path."""
    while full_path != os.path.dirname(full_path):
        full_path = os.path.dirname(full_path)
        yield full_path


@lru_cache(_KNOWN_FOLDERS)
def _folders_up_to(folder: str, root: str) -> tuple[str, ...]:
    """Return a folder, and all its parents up to the root."""
    found = [folder]
    while len(found[-1]) > len(root):
        found.append(os.path.dirname(found[-1]))
    return tuple(found)


def _folders_leading_to(root: str) -> Iterator[str]:
    """Yield the folders above a root that are on the same file system and that we may force."""
    folder = os.path.dirname(root)
    with suppress(OSError):
        while os.stat(folder).st_dev == os.stat(root).st_dev and os.access(folder, os.R_OK):
            yield folder
            if folder == os.path.dirname(folder):
                return
            folder = os.path.dirname(folder)


def _look(folder: str) -> _Look | None:
    """Return the identity and change time of a folder, to detect later changes.

    None if the folder does not exist, or if it changed so recently that the next change could have
    the same time.
    """
    try:
        status = os.stat(folder)
    except OSError:
        return None
    is_reliable = status.st_ctime < time.time() - _CLOCK_STEP_S
    return (status.st_dev, status.st_ino, status.st_ctime_ns) if is_reliable else None


def _in_threads(function: Callable[[str], T], full_paths: Sequence[str]) -> list[T]:
    """Call a function for all paths in threads, so that the file system can group its commits."""
    if len(full_paths) <= 1:
        return list(map(function, full_paths))
    if len(full_paths) <= _MAX_SHARED:
        return _in_shared_threads(function, full_paths)
    with ThreadPoolExecutor(min(_THREADS, len(full_paths))) as pool:
        return list(pool.map(function, full_paths))


def _in_shared_threads(function: Callable[[str], T], full_paths: Sequence[str]) -> list[T]:
    """Call a function for some paths, in this thread and in shared threads.

    The results are in another order than the paths. Each thread gets several paths, because it
    takes more processor time to hand over a path to a thread, and to wait for it, than to force the
    path. The paths in a folder come before the folder, because forcing them mostly writes the
    changes of the folder to the journal, too.
    """
    count = -(-len(full_paths) // _PATHS_OF_THREAD)
    ordered = sorted(full_paths, reverse=True)
    own, *others = (ordered[at::count] for at in range(count))
    threads = _shared_threads(os.getpid(), _THREADS)
    waiting = [threads.submit(lambda share: list(map(function, share)), one) for one in others]
    done = list(map(function, own))
    return [*done, *(one for share in waiting for one in share.result())]


@cache
def _shared_threads(_process_id: int, count: int) -> ThreadPoolExecutor:
    """Return the shared threads of a process, which a forked process does not inherit.

    A commit of a few records forces files about seven times, and starting threads each time took a
    seventh of the commit's time (``docs/performance.md``). Only small sets of files use the shared
    threads, so that no commit waits for the many files of a compaction.
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
    """Return the device and inode of an open file; None for a folder."""
    status = os.fstat(descriptor)
    return None if S_ISDIR(status.st_mode) else (status.st_dev, status.st_ino)


def _sync_opened(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC or _identity_of_file(descriptor) is not None:
            raise


def _may_be(full_path: str, identity: tuple[int, int] | None) -> bool:
    """Return whether a path may be the file of this device and inode; true if unknown."""
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


def forget_below(folder: str) -> None:
    """Forget the files of all roots in a folder that was removed, such as a temporary folder.

    No process needs these files after a power failure. Otherwise a process that runs for years
    would remember each of them.

    Args:
        folder: an absolute path.
    """
    with _of_roots_lock:
        for root in [one for one in _of_roots if f"{one}/".startswith(f"{folder}/")]:
            del _of_roots[root]


def sync_process() -> None:
    """Force the files of this process below every root. Raises what ``Unsynced.sync`` raises."""
    with _of_roots_lock:
        everything = list(_of_roots.values())
    for unsynced in everything:
        unsynced.sync()
