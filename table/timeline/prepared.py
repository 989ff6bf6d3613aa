"""Content of instants that are about to complete, laid aside under the table's lock.

Publishing makes the completed instant out of it (``Storage.publish``), so whoever removes it first
stops its writer for good, however long that stood still. A rollback removes that of its target; who
takes the lock over from a writer that did not release it removes everybody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from table.model.action import Action
from table.model.instant import Instant
from table.storage.storage import Storage

# Not below ``.hoodie/.temp/<instant>``: Apache's rollback takes every file there for a marker.
_FOLDER = ".hoodie/.aux/prepared"

#: A table's own, and that of its metadata table, which is changed under the same lock.
_FOLDERS = (_FOLDER, f".hoodie/metadata/{_FOLDER}")


def prepared_path(pending: Instant) -> str:
    """Where the content of an instant lies, from the table's root.

    A savepoint has the requested time of its commit. The commit's writer may still be about to
    remove what it prepared, and must not remove what the savepoint's writer prepared. For the same
    reason each attempt at a planned service has content of its own.
    """
    suffix = f"_{pending.attempt}" if pending.attempt else ""
    if pending.action is Action.SAVEPOINT:
        suffix = f".{Action.SAVEPOINT}"
    return f"{_FOLDER}/{pending.requested_at}{suffix}"


def prepared_of(storage: Storage, requested_at: Collection[str]) -> list[str]:
    """Paths of what is prepared of these instants, by whichever attempt; not of savepoints."""
    _, objects = storage.list_folder(_FOLDER)
    return [info.path for info in objects if info.name.partition("_")[0] in requested_at]


def all_prepared(storage: Storage) -> Iterable[str]:
    """Paths of what is prepared in a table and in its metadata table."""
    return [info.path for folder in _FOLDERS for info in storage.list_folder(folder)[1]]
