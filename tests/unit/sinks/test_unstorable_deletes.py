"""A delete whose ordering value a log cannot store is a dead letter; its batch is written."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pytest

from lakemark.config.table_properties import TableType
from lakemark.storage import StorageLocation
from tests.json_stream import JsonStream

WIDE = [("decimal(20,0)", 10**18), ("decimal(20,18)", "1.000000000000000001")]


def deleted(table_type: TableType, ts_type: str, ts: object) -> JsonStream:
    """Write two rows, and then a batch that deletes the first and updates the second."""
    columns = {"id": "string", "ts": ts_type, "n": "int"}
    location = StorageLocation(f"memory://{uuid4().hex}/t")
    stream = JsonStream(location, columns=columns, table_type=table_type)
    stream.write([{"id": "a", "ts": 1, "n": 1}, {"id": "b", "ts": 1, "n": 1}])
    stream.write([{"id": "a", "ts": ts, "_hoodie_is_deleted": True}, {"id": "b", "ts": ts, "n": 2}])
    return stream


@pytest.mark.parametrize(("ts_type", "ts"), WIDE)
def test_delete_that_no_log_can_store_is_a_dead_letter(ts_type: str, ts: object) -> None:
    stream = deleted(TableType.MERGE_ON_READ, ts_type, ts)
    (reason,) = stream.reasons().values()
    assert "the ordering value (ts) of a delete has more than 15 digits" in reason
    assert stream.letters()[2]["code"] == "ordering_too_long"
    rows = stream.read()
    assert (rows["a"]["n"], rows["b"]["n"]) == (1, 2)


@pytest.mark.parametrize(("ts_type", "ts"), WIDE)
def test_delete_of_a_table_without_logs_has_any_ordering_value(ts_type: str, ts: object) -> None:
    stream = deleted(TableType.COPY_ON_WRITE, ts_type, ts)
    assert not stream.reasons()
    assert stream.read() == {"b": {"id": "b", "ts": Decimal(str(ts)), "n": 2}}


def test_delete_with_a_decimal_that_a_log_can_store_deletes() -> None:
    stream = deleted(TableType.MERGE_ON_READ, "decimal(38,15)", "999999999999999.999999999999999")
    assert not stream.reasons()
    assert list(stream.read()) == ["b"]
