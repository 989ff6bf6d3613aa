"""Content of instants that are about to complete, laid aside under the table's lock.

Publishing makes the completed instant out of it (``Storage.publish``), so whoever removes it first
stops its writer for good, however long that stood still. A rollback removes that of its target; who
takes the lock over from a writer that did not release it removes everybody's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from uuid import uuid4

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.storage.storage import NotFound, PreconditionFailed, Storage

# Not below ``.hoodie/.temp/<instant>``: Apache's rollback takes every file there for a marker.
_FOLDER = ".hoodie/.aux/prepared"

#: A table's own, and that of its metadata table, which is changed under the same lock.
_FOLDERS = (_FOLDER, f".hoodie/metadata/{_FOLDER}")


#: New properties of a table whose version is about to change.
ANNOUNCED_PROPERTIES = f"{_FOLDER}/hoodie.properties"

_TAKEN_OVER = b"#The lock was taken over from a writer that was to replace these properties: "


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


def withdraw_properties(storage: Storage) -> None:
    """Keep announced properties from replacing those of the table: these become another version.

    Their content stays, but for a comment. A store that does not compare replaces them all the
    same.
    """
    if not storage.supports_compare_and_swap:
        return
    with suppress(NotFound, PreconditionFailed):  # replaced by now, with another version
        data, version = storage.read_versioned(PROPERTIES_PATH)
        assert version is not None, storage
        kept = [one for one in data.splitlines(keepends=True) if not one.startswith(_TAKEN_OVER)]
        comment = _TAKEN_OVER + uuid4().hex.encode() + b"\n"
        storage.replace(PROPERTIES_PATH, comment + b"".join(kept), version)
