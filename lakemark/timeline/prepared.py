"""Prepared content: files with the content of instants that are about to complete.

A writer writes the prepared content under the table's lock. Publishing then creates the completed
instant from this file (``Storage.publish``). So if another process deletes the file first, the
instant can no longer be published, however long its writer was paused. A rollback deletes the
prepared content of the instant that it rolls back. A writer that takes over an unreleased lock
deletes all prepared content.
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
PREPARED_FOLDER = ".hoodie/.aux/prepared"

#: The folders of prepared content in a table and in its metadata table. One lock protects both.
_FOLDERS = (PREPARED_FOLDER, f".hoodie/metadata/{PREPARED_FOLDER}")


#: The prepared properties of a table whose version is about to change.
ANNOUNCED_PROPERTIES = f"{PREPARED_FOLDER}/hoodie.properties"

_TAKEN_OVER = b"#The lock was taken over from a writer that was to replace these properties: "


def prepared_path(pending: Instant) -> str:
    """Return the path of an instant's prepared content, relative to the table's root.

    A savepoint has the requested time of its commit. The commit's writer may still delete the
    commit's prepared content, but must not delete the savepoint's. So the two paths differ. For the
    same reason, each attempt at a planned table service has its own path.
    """
    suffix = f"_{pending.attempt}" if pending.attempt else ""
    if pending.action is Action.SAVEPOINT:
        suffix = f".{Action.SAVEPOINT}"
    return f"{PREPARED_FOLDER}/{pending.requested_at}{suffix}"


def prepared_of(storage: Storage, requested_at: Collection[str]) -> list[str]:
    """Return the paths of the files with the prepared content of instants, for all their attempts.

    Savepoints are not included.
    """
    _, objects = storage.list_folder(PREPARED_FOLDER)
    return [info.path for info in objects if info.name.partition("_")[0] in requested_at]


def all_prepared(storage: Storage) -> Iterable[str]:
    """Return the paths of all prepared content in a table and in its metadata table."""
    return [info.path for folder in _FOLDERS for info in storage.list_folder(folder)[1]]


def withdraw_properties(storage: Storage) -> None:
    """Prevent pending requests of a previous lock holder from replacing the table's properties.

    The properties file is rewritten with another comment. So its version changes, and the pending
    conditional replace fails. On a local disk nothing is done, because a local disk has no
    conditional replace.
    """
    if not storage.supports_compare_and_swap:
        return
    with suppress(NotFound, PreconditionFailed):  # the file was already replaced or deleted
        data, version = storage.read_versioned(PROPERTIES_PATH)
        assert version is not None, storage
        kept = [one for one in data.splitlines(keepends=True) if not one.startswith(_TAKEN_OVER)]
        comment = _TAKEN_OVER + uuid4().hex.encode() + b"\n"
        storage.replace(PROPERTIES_PATH, comment + b"".join(kept), version)
