"""Small tables for the tests of the specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from lakemark.config.new_table_properties import new_table_properties
from lakemark.config.table_properties import MergeMode, TableProperties, TableType
from tests.merging.written_table import KEY, WrittenTable

MERGE_ON_READ, COPY_ON_WRITE = TableType.MERGE_ON_READ, TableType.COPY_ON_WRITE

#: The record of the specification's examples of payloads.
PRICES = pa.schema(
    [(KEY, pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("price", pa.string())]
)
#: Its example of two services that write the same orders.
ORDERS = pa.schema(
    [(KEY, pa.string()), ("ts", pa.int64()), ("state", pa.string()), ("note", pa.string())]
)


def properties(
    mode: MergeMode,
    ordering: Sequence[str] = ("ts",),
    table_type: TableType = MERGE_ON_READ,
    more: Mapping[str, str] | None = None,
) -> TableProperties:
    """Return the properties of a table without partitions."""
    plain = new_table_properties("orders", table_type, (KEY,), (), ordering, mode)
    return TableProperties({**plain.values, **(more or {})})


def event_time(
    folder: Path, schema: pa.Schema = ORDERS, table_type: TableType = MERGE_ON_READ
) -> WrittenTable:
    """Create a table in ``EVENT_TIME_ORDERING`` by ``ts``."""
    return _table(folder, schema, properties(MergeMode.EVENT_TIME, table_type=table_type))


def commit_time(
    folder: Path,
    schema: pa.Schema = ORDERS,
    table_type: TableType = MERGE_ON_READ,
    ordering: Sequence[str] = (),
) -> WrittenTable:
    """Create a table in ``COMMIT_TIME_ORDERING``; it may have an ordering field nevertheless."""
    return _table(folder, schema, properties(MergeMode.COMMIT_TIME, ordering, table_type))


def _table(folder: Path, schema: pa.Schema, wanted: TableProperties) -> WrittenTable:
    path = folder / f"table-{len(list(folder.iterdir()))}"
    return WrittenTable.create(path, schema, wanted)
