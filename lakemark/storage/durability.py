"""What this process has written to local disks and the system may not have forced there yet.

A file is forced to the disk together with the folders that lead to it, since a power failure may
lose either. Nothing is forced with each write: ``Unsynced.sync`` forces everything written so far,
in threads, so that the file system commits its journal for many files at once. Left out is what
no process relies on after a power failure (heartbeats, locks), and each folder above that has not
changed since it was last forced.

What is unsynced belongs to the process and the root, not to one ``LocalStorage``: tasks in threads
open a table's location again. A worker process forces what it wrote before its task ends
(``sync_process``), because the driver cannot know of it.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TypeAlias, TypeVar

from lakemark.errors import HudiError
from lakemark.storage.disk import typed_errors

T = TypeVar("T")

#: Device, inode, and time of the last change (nanoseconds) of a folder.
_Look: TypeAlias = tuple[int, int, int]

_THREADS = 16

#: Folders of a table in which nothing is of use once all processes have ended. Markers are of use:
#: that they are gone is taken for proof that a commit had completed (``completion_loss``).
_OF_RUNNING_PROCESSES = re.compile(r"(/.*)?/\.hoodie/\.(heartbeat|locks)(/|\Z)")

#: How long the time of a folder's last change stays the same at most, however often it changes: the
#: coarsest clock of a file system.
_CLOCK_STEP_S = 2.0

#: Answers of file systems that cannot force a folder (some network and FUSE file systems).
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)


class Unsynced:
    """Files and folders below one root that changed since they were last forced to the disk.

    A file or folder that the system failed to force stays failed until it is replaced or deleted:
    Linux reports a failure once and then takes the lost pages for written.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._places: set[str] = set()
        self._folders_above: set[str] = set()
        self._forced: dict[str, _Look] = {}
        self._is_root_new = True
        self._failed: dict[str, HudiError] = {}
        self._changing, self._syncing = Lock(), Lock()

    def __reduce__(self) -> tuple[Callable[[str], Unsynced], tuple[str]]:
        """In another process, that process's own for the root."""
        return unsynced_below, (self._root,)

    def note_file(self, place: str) -> None:
        """A file at this full path has new content, or a new time."""
        with self._changing:
            self._failed.pop(place, None)
            if self._matters(place):
                self._places.add(place)
                self._note_folders_of(place)

    def note_entry(self, place: str) -> None:
        """A name appeared or went: its folder changed, and perhaps those above it."""
        with self._changing:
            self._note_folders_of(place)

    def note_removal(self, place: str) -> None:
        """A file was deleted: its content matters no more."""
        with self._changing:
            self._failed.pop(place, None)
            self._places.discard(place)
            self._note_folders_of(place)

    def sync(self) -> None:
        """Return once everything that was noted before is on the disk.

        Raises:
            StorageUnavailable: the disk failed, or is full.
            InvalidConfig: this user may not read a file or a folder.
        """
        with self._syncing:  # what another thread is forcing may be ours
            with self._changing:
                above = self._folders_above - self._places
                places, self._places, self._folders_above = self._places, set(), set()
            places |= set(filter(self._has_changed, above))
            looks = {place: _look(place) for place in above & places}  # before it is forced
            failed = dict(filter(None, _in_threads(self._sync_one, sorted(places))))
            self._forced |= {
                place: look for place, look in looks.items() if look and place not in failed
            }
            with self._changing:
                self._failed |= failed
                errors = list(self._failed.values())
        if errors:
            raise errors[0]

    def _matters(self, place: str) -> bool:
        """Whether anybody relies on a file after a power failure."""
        return not _OF_RUNNING_PROCESSES.match(place, len(self._root))

    def _has_changed(self, folder: str) -> bool:
        """Whether a folder may have got or lost a name since it was forced, by any process."""
        look = _look(folder)
        return look is None or look != self._forced.get(folder)

    def _sync_one(self, place: str) -> tuple[str, HudiError] | None:
        try:
            with typed_errors(os.path.relpath(place, self._root), self._root):
                sync_place(place)
        except HudiError as error:
            return place, error
        return None

    def _note_folders_of(self, place: str) -> None:
        """Note the folder of a place, which changed, and those above it, up to the root.

        All of them: another process may have made one, and stopped before it forced that.
        """
        if not self._matters(place):
            return
        if self._is_root_new:  # the folders that lead to it may be new, too
            self._is_root_new = False
            self._folders_above.update(_folders_leading_to(self._root))
        folder = os.path.dirname(place)
        self._places.add(folder)
        while len(folder) > len(self._root):
            folder = os.path.dirname(folder)
            self._folders_above.add(folder)


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
    """How a folder looks until it changes; None if it is gone, or changed too recently to tell."""
    try:
        status = os.stat(folder)
    except OSError:
        return None
    is_settled = status.st_ctime < time.time() - _CLOCK_STEP_S
    return (status.st_dev, status.st_ino, status.st_ctime_ns) if is_settled else None


def _in_threads(function: Callable[[str], T], places: Sequence[str]) -> list[T]:
    """The file system then commits its journal once for many of them."""
    if len(places) <= 1:
        return list(map(function, places))
    with ThreadPoolExecutor(min(_THREADS, len(places))) as pool:
        return list(pool.map(function, places))


def sync_place(place: str) -> None:
    """Force a file or a folder to the disk, whichever process wrote it; nothing if it is gone.

    Raises:
        OSError: the system could not.
    """
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC or not os.path.isdir(place):
            raise
    finally:
        os.close(descriptor)


_of_roots: dict[str, Unsynced] = {}
_of_roots_lock = Lock()


def unsynced_below(root: str) -> Unsynced:
    """What this process has to force below a root."""
    with _of_roots_lock:
        return _of_roots.setdefault(root, Unsynced(root))


def sync_process() -> None:
    """Force what this process wrote, below every root; errors as of ``Unsynced.sync``."""
    with _of_roots_lock:
        everything = list(_of_roots.values())
    for unsynced in everything:
        unsynced.sync()
