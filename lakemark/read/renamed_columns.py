"""Refuses tables whose columns were renamed, or dropped and added again, with schema on read.

With schema on read, Hudi keeps an id for each column, in ``latest_schema`` of a commit and in the
history under ``.hoodie/.schema``. Older files still have the old names. Lakemark reads columns by
name. So a renamed column would be null in older files, and a column that was added again would
return values of the old column.

Source: ``InternalSchema``, ``SerDeHelper`` and ``FileBasedInternalSchemaStorageManager`` of Apache
Hudi 1.2.0.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from lakemark.errors import CorruptData, Unsupported
from lakemark.storage.storage import Storage

LATEST_SCHEMA = "latest_schema"

_HISTORY_FOLDER = ".hoodie/.schema"
_HISTORY_SUFFIX = ".schemacommit"


def check_no_renamed_columns(storage: Storage, extra_metadata: Mapping[str, str]) -> None:
    """Check that no column was renamed, and that no name was given to a second column.

    Args:
        storage: the table's root.
        extra_metadata: extra metadata of the newest commit.

    Raises:
        Unsupported: a column was renamed, or dropped and added again.
        CorruptData: the history of schemas is damaged.
    """
    if not extra_metadata.get(LATEST_SCHEMA):
        return
    names: dict[int, str] = {}
    ids: dict[str, int] = {}
    for column_id, name in _columns_of_history(storage):
        before = names.setdefault(column_id, name)
        if before != name:
            raise Unsupported(_unreadable(storage, f"{before!r} was renamed to {name!r}"))
        if ids.setdefault(name, column_id) != column_id:
            raise Unsupported(_unreadable(storage, f"{name!r} was dropped and added again"))


def _unreadable(storage: Storage, what: str) -> str:
    return (
        f"column {what} in {storage.location.url} with schema on read; lakemark cannot read older "
        "files of such a column; rewrite the table, or read it with Apache Hudi"
    )


def _columns_of_history(storage: Storage) -> Iterator[tuple[int, str]]:
    """Yield the ids and names of the columns in every schema that the table had, oldest first."""
    histories = sorted(
        info.path
        for info in storage.list_tree(_HISTORY_FOLDER)
        if info.name.endswith(_HISTORY_SUFFIX)
    )
    for path in histories[-1:]:  # each file has all schemas up to its time
        try:
            schemas = json.loads(storage.read(path))["schemas"]
            for schema in sorted(schemas, key=lambda schema: int(schema["version_id"])):
                yield from _columns_of(schema["fields"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptData(path, None, "a history of schemas", repr(error)) from error


def _columns_of(fields: list[dict[str, object]], within: str = "") -> Iterator[tuple[int, str]]:
    for field in fields:
        name = f"{within}{field['name']}"
        yield int(str(field["id"])), name
        yield from _columns_inside(field["type"], f"{name}.")


def _columns_inside(kind: object, within: str) -> Iterator[tuple[int, str]]:
    """Yield the ids and names of fields inside structs, also of structs in arrays and maps."""
    if not isinstance(kind, dict):
        return
    if isinstance(kind.get("fields"), list):
        yield from _columns_of(kind["fields"], within)
    for name in ("element", "value"):
        yield from _columns_inside(kind.get(name), f"{within}{name}.")
