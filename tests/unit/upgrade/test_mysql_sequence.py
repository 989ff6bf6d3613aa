"""A table of MySQL's payload leaves version 9 only with the column that orders it before."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

from sinks.hudi.version_change import take_to_version
from table.config.table_spec import TableSpec
from table.errors import Refused
from table.execution.runner import LocalRunner
from table.hudi_table import HudiTable, create_on
from table.index.bucket import BucketIndex
from table.model.format_version import FormatVersion
from table.storage import StorageLocation, open_storage
from tests.unit.index.test_stored_rows import opened, write

ROWS = pa.table(
    {
        "id": ["a", "b"],
        "_change_operation_type": ["c", "c"],
        "_event_bin_file": ["f1", "f1"],
        "_event_pos": [1, 2],
        "_event_seq": ["f1.1", "f1.2"],
    }
)


def table_of(rows: pa.Table) -> HudiTable:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
    create_on(storage, TableSpec("t", ("id",), payload="MySqlDebeziumAvroPayload"))
    write(storage, BucketIndex(1, ("id",)), rows=rows)
    return opened(storage)


def test_version_8_is_refused_without_the_sequence_column() -> None:
    table = table_of(ROWS.drop_columns(["_event_seq"]))
    before = table.properties.version
    with pytest.raises(Refused, match="no column _event_seq, by which version 8 orders"):
        take_to_version(table, FormatVersion.V8, LocalRunner(1))
    assert opened(table.storage).properties.version == before


def test_version_8_orders_by_the_sequence_column() -> None:
    table = table_of(ROWS)
    take_to_version(table, FormatVersion.V8, LocalRunner(1))
    changed = opened(table.storage)
    assert changed.properties.ordering_fields == ("_event_seq",)
    assert changed.snapshot(["id"]).read_all()["id"].to_pylist() == ["a", "b"]
