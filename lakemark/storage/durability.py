"""Files that this process has written to local disks and that may not be on the disk yet.

A file is forced to the disk (``fsync``) together with its parent folders, because a power failure
may lose either. Writes are not forced one by one: ``Unsynced.sync`` forces everything written so
far, in threads, so that the file system commits its journal for many files at once. Heartbeats and
locks are not forced, because no process needs them after a power failure. A parent folder is not
forced if it has not changed since it was last forced.

Unsynced files belong to the process and the root, not to one ``LocalStorage``, because tasks in
threads open a table's location again. A worker process forces its own files before its task ends
(``sync_process``), because the driver does not know them.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TypeAlias, TypeVar

from lakemark.errors import HudiError
from lakemark.storage.disk import typed_errors

T = TypeVar("T")

#: Device, inode, and time of the last change (nanoseconds) of a folder.
_Look: TypeAlias = tuple[int, int, int]

_THREADS = 16

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


class Unsynced:
    """Files and folders below one root that changed since they were last forced to the disk.

    A path is forgotten only after it was forced. So no exception, such as an interrupt, makes the
    next ``sync`` skip it.

    If the system failed to force a file or folder, it remains failed until it is replaced or
    deleted: Linux reports a failure once, and then treats the lost pages as written.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._notes: dict[str, _Note] = {}
        self._forced: dict[str, _Look] = {}
        self._is_root_new = True
        self._failed: dict[str, HudiError] = {}
        self._changing = Lock()

    def __reduce__(self) -> tuple[Callable[[str], Unsynced], tuple[str]]:
        """Unpickle as the other process's own object for the root."""
        return unsynced_below, (self._root,)

    def note_file(self, full_path: str) -> None:
        """Note that a file has new content, or a new modification time."""
        with self._changing:
            self._failed.pop(full_path, None)
            if self._matters(full_path):
                self._note(full_path)
                self._note_folders_of(full_path)

    def note_entry(self, full_path: str) -> None:
        """Note that a name was created or removed, so that its folder has changed."""
        with self._changing:
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
            notes = dict(self._notes)
        _in_threads(self._sync_one, sorted(p for p in notes if self._must_force(p, notes[p])))
        with self._changing:
            errors = list(self._failed.values())
        if errors:
            raise errors[0]

    def _matters(self, full_path: str) -> bool:
        """Whether a file is needed after a power failure."""
        return not _OF_RUNNING_PROCESSES.match(full_path, len(self._root))

    def _must_force(self, full_path: str, note: _Note) -> bool:
        """Whether a noted path must be forced; if not, it is forgotten."""
        if note.is_changed or self._has_changed(full_path):
            return True
        with self._changing:
            self._forget(full_path, note)
        return False

    def _has_changed(self, folder: str) -> bool:
        """Whether any process may have changed the names in a folder since it was forced."""
        look = _look(folder)
        return look is None or look != self._forced.get(folder)

    def _sync_one(self, full_path: str) -> None:
        """Force a path, unless another thread has just done it."""
        note = self._notes.get(full_path)
        if note is None:
            return
        with note.turn:
            note = self._notes.get(full_path)
            if note is not None:
                self._force(full_path, note)

    def _force(self, full_path: str, note: _Note) -> None:
        """Force a path and record the result at once: other threads may fail and end the sync."""
        look = None if note.is_changed else _look(full_path)  # before it is forced
        error = self._error_of(full_path)
        with self._changing:
            self._forget(full_path, note)
            if error is not None:
                self._failed[full_path] = error
            elif look is not None:
                self._forced[full_path] = look

    def _error_of(self, full_path: str) -> HudiError | None:
        try:
            with typed_errors(os.path.relpath(full_path, self._root), self._root):
                sync_path(full_path)
        except HudiError as error:
            return error
        return None

    def _forget(self, full_path: str, note: _Note) -> None:
        """Forget a note of a path, but not a later one."""
        if self._notes.get(full_path) is note:
            del self._notes[full_path]

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


def _folders_leading_to(root: str) -> Iterator[str]:
    """The folders above a root, on its file system, that this user may force."""
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
    with ThreadPoolExecutor(min(_THREADS, len(full_paths))) as pool:
        return list(pool.map(function, full_paths))


def sync_path(full_path: str) -> None:
    """Force a file or a folder of any process to the disk; does nothing if it does not exist.

    Raises:
        OSError: the system could not force it.
    """
    try:
        descriptor = os.open(full_path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC or not os.path.isdir(full_path):
            raise
    finally:
        os.close(descriptor)


_of_roots: dict[str, Unsynced] = {}
_of_roots_lock = Lock()


def unsynced_below(root: str) -> Unsynced:
    """The unsynced files of this process below a root."""
    with _of_roots_lock:
        return _of_roots.setdefault(root, Unsynced(root))


def sync_process() -> None:
    """Force the files of this process below every root; errors as of ``Unsynced.sync``."""
    with _of_roots_lock:
        everything = list(_of_roots.values())
    for unsynced in everything:
        unsynced.sync()
