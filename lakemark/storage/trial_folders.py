"""Folders for trials on the stores of tables, which are deleted at the end of each trial.

A folder is inside the table's root, because rights are often granted for the root alone. Only for a
table that does not exist yet on a local disk, the folder is in the nearest parent folder that
exists, so that no folder of the table is created. No reader of tables reads the folder.

If the process is killed, its folders remain. The next trial at the same location deletes them when
they are old enough that no other process can be using them.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Condition
from typing import Final, Protocol
from uuid import uuid4

from lakemark.errors import HudiError, Permanent
from lakemark.storage.open_storage import canonical_url, open_storage
from lakemark.storage.storage import StorageLocation

_log = logging.getLogger(__name__)

_PREFIX = ".lakemark_doctor_"
_HOODIE = ".hoodie"
_LOCAL = "file://"

#: The age at which a folder was left by a process that no longer runs. A trial takes minutes.
_OLD_AFTER: Final = timedelta(hours=1)


class TrialStopped(Permanent):
    """The command ends, so its trials make no further requests."""


class TrialFolders:
    """The folders of all trials that one command makes, from any number of threads."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._open = dict[str, TrialFolder]()
        self._is_closed = False

    @contextmanager
    def open(self, location: StorageLocation) -> Iterator[TrialFolder]:
        """Yield a new folder, which is created when something is written to it.

        At the end, the folder is deleted, and folders that other processes have left.

        Args:
            location: the location of a table, which need not exist.

        Raises:
            TrialStopped: ``close`` was called.
        """
        folder = self._add(location)
        try:
            try:
                yield folder
            finally:
                folder.delete()
            folder.delete_old()
        except BaseException:
            for warning in folder.warnings:
                _log.warning(warning)
            raise
        finally:
            self._remove(folder)

    def close(self, within_s: float) -> tuple[str, ...]:
        """Stop all trials, and wait until their folders are deleted.

        Args:
            within_s: how long to wait, in seconds.

        Returns:
            The URLs of the folders that are still in use, and may remain if the process ends.
        """
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(lambda: not self._open, within_s)
            return tuple(self._open)

    def check(self) -> None:
        """Check that trials may continue.

        Raises:
            TrialStopped: ``close`` was called.
        """
        if self._is_closed:
            message = "the trial was stopped, because the command ends"
            raise TrialStopped(message)

    def _add(self, location: StorageLocation) -> TrialFolder:
        with self._changed:
            self.check()
            folder = TrialFolder(self, _place_at(location))
            self._open[folder.location.url] = folder
            return folder

    def _remove(self, folder: TrialFolder) -> None:
        with self._changed:
            del self._open[folder.location.url]
            self._changed.notify_all()


class TrialFolder:
    """A folder for one trial.

    Attributes:
        warnings: after the trial, what could not be deleted.
    """

    def __init__(self, folders: TrialFolders, place: _Place) -> None:
        self._folders, self._place = folders, place
        self.warnings: tuple[str, ...] = ()

    @property
    def location(self) -> StorageLocation:
        """The location of the folder."""
        return self._place.location

    def check(self) -> None:
        """Check that the trial may continue; see ``TrialFolders.check``."""
        self._folders.check()

    def delete(self) -> None:
        """Delete the folder; if this fails, add a warning."""
        try:
            self._place.delete()
        except (HudiError, OSError) as error:
            text = (
                f"{self.location.url} could not be deleted ({error}); delete it, or repeat the "
                "command in an hour, which deletes such folders"
            )
            self.warnings = (text,)

    def delete_old(self) -> None:
        """Delete folders of other processes that have ended. What cannot be deleted remains."""
        with suppress(HudiError, OSError):
            self._place.delete_old(datetime.now(UTC) - _OLD_AFTER)


class _Place(Protocol):
    """A folder on one kind of store."""

    @property
    def location(self) -> StorageLocation: ...

    def delete(self) -> None:
        """Delete the folder with its content."""
        ...

    def delete_old(self, before: datetime) -> None:
        """Delete the folders of other trials that were last changed before this time."""
        ...


def _place_at(table: StorageLocation) -> _Place:
    name, url = f"{_PREFIX}{uuid4().hex}", canonical_url(table.url)
    if url.startswith(_LOCAL):
        return _LocalPlace(Path(url.removeprefix(_LOCAL)), name, table.options)
    return _ObjectPlace(table, name)


class _ObjectPlace:
    def __init__(self, table: StorageLocation, name: str) -> None:
        self._table = table
        self.location = table.child(f"{_HOODIE}/{name}")

    def delete(self) -> None:
        storage = open_storage(self.location)
        storage.delete([one.path for one in storage.list_tree("")])

    def delete_old(self, before: datetime) -> None:
        storage = open_storage(self._table)
        for folder in storage.list_folder(_HOODIE)[0]:
            if folder.startswith(f"{_HOODIE}/{_PREFIX}"):
                objects = storage.list_tree(folder)
                if all(one.modified_at < before for one in objects):
                    storage.delete([one.path for one in objects])


class _LocalPlace:
    def __init__(self, root: Path, name: str, options: dict[str, str]) -> None:
        self._hoodie = root / _HOODIE  # the only name that an empty folder of a table may contain
        self._nearest = next((one for one in root.parents if one.exists()), root)
        self._path = (self._hoodie if root.is_dir() else self._nearest) / name
        self._removes_hoodie = root.is_dir() and _has_only_trials(self._hoodie)
        self.location = StorageLocation(str(self._path), options)

    def delete(self) -> None:
        if self._path.exists():
            shutil.rmtree(self._path)
        self._remove_hoodie()

    def delete_old(self, before: datetime) -> None:
        for parent in (self._hoodie, self._nearest):
            for folder in parent.glob(f"{_PREFIX}*"):
                if _changed_at(folder) < before:
                    shutil.rmtree(folder, ignore_errors=True)
        self._remove_hoodie()

    def _remove_hoodie(self) -> None:
        """Remove ``.hoodie`` if trials alone have created it."""
        if self._removes_hoodie:
            with suppress(OSError):  # not empty: another trial, or meanwhile a table was created
                self._hoodie.rmdir()


def _has_only_trials(hoodie: Path) -> bool:
    """Return whether a folder does not exist, or contains folders of trials and nothing else."""
    try:
        names = [one.name for one in hoodie.iterdir()]
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return bool(names) and all(name.startswith(_PREFIX) for name in names)


def _changed_at(folder: Path) -> datetime:
    newest = max(one.stat().st_mtime for one in (folder, *folder.rglob("*")))
    return datetime.fromtimestamp(newest, UTC)
