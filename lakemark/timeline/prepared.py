"""Prepared content of instants that are about to complete, written under the table's lock.

Publishing creates the completed instant from it (``Storage.publish``). So a process that deletes it
first stops its writer for good, however long that writer was paused. A rollback deletes the content
of its target. A writer that takes over a lock that was not released deletes all prepared content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from uuid import uuid4

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.model.action import Action
from lakemark.model.instant import Instant
from lakemark.storage.storage import NotFound, PreconditionFailed, Storage

# Not in ``.hoodie/.temp/<instant>``: Apache Hudi's rollback treats every file there as a marker.
_FOLDER = ".hoodie/.aux/prepared"

#: The folders of a table and of its metadata table, which is changed under the same lock.
_FOLDERS = (_FOLDER, f".hoodie/metadata/{_FOLDER}")


#: New properties of a table whose version is about to change.
ANNOUNCED_PROPERTIES = f"{_FOLDER}/hoodie.properties"

_TAKEN_OVER = b"#The lock was taken over from a writer that was to replace these properties: "


def prepared_path(pending: Instant) -> str:
    """Return the path of an instant's prepared content, from the table's root.

    A savepoint has the requested time of its commit. The commit's writer may still delete its own
    content, and must not delete that of the savepoint. For the same reason each attempt at a
    planned service has its own content.
    """
    suffix = f"_{pending.attempt}" if pending.attempt else ""
    if pending.action is Action.SAVEPOINT:
        suffix = f".{Action.SAVEPOINT}"
    return f"{_FOLDER}/{pending.requested_at}{suffix}"


def prepared_of(storage: Storage, requested_at: Collection[str]) -> list[str]:
    """Paths of the prepared content of these instants, of all attempts; not of savepoints."""
    _, objects = storage.list_folder(_FOLDER)
    return [info.path for info in objects if info.name.partition("_")[0] in requested_at]


def all_prepared(storage: Storage) -> Iterable[str]:
    """Return the paths of all prepared content in a table and in its metadata table."""
    return [info.path for folder in _FOLDERS for info in storage.list_folder(folder)[1]]


def withdraw_properties(storage: Storage) -> None:
    """Prevent requests that were sent before from replacing the table's properties.

    The table's properties are rewritten with another comment, so that a conditional replace fails.
    This has no effect on a local disk, which cannot compare.
    """
    if not storage.supports_compare_and_swap:
        return
    with suppress(NotFound, PreconditionFailed):  # replaced by now, with another version
        data, version = storage.read_versioned(PROPERTIES_PATH)
        assert version is not None, storage
        kept = [one for one in data.splitlines(keepends=True) if not one.startswith(_TAKEN_OVER)]
        comment = _TAKEN_OVER + uuid4().hex.encode() + b"\n"
        storage.replace(PROPERTIES_PATH, comment + b"".join(kept), version)
