"""``table.partition_change``: rows whose key exists in another partition are counted or refused."""

from __future__ import annotations

from uuid import uuid4

import pytest

from lakemark.operations.open_table import open_table
from lakemark.operations.stored_rows import repeated_keys
from lakemark.storage import StorageLocation
from sinks.hudi.partition_rule import PartitionChange
from sinks.reject_limit import RejectLimit, TooManyRejects
from tests.json_stream import JsonStream

COLUMNS = {"id": "string", "ts": "bigint", "region": "string"}


def _stream(rule: PartitionChange, max_share: float = 1.0) -> JsonStream:
    return JsonStream(
        StorageLocation(f"memory://{uuid4().hex}/orders"),
        columns=COLUMNS,
        partition_by=("region",),
        partition_change=rule,
        limit=RejectLimit(max_share),
    )


def _row(key: str, region: str, ts: int = 0) -> dict[str, object]:
    return {"id": key, "ts": ts, "region": region}


def _rows(stream: JsonStream) -> set[tuple[object, object]]:
    rows = (
        open_table(stream.location)
        .scan(columns=["id", "region"])
        .to_reader()
        .read_all()
        .to_pylist()
    )
    assert len({(row["id"], row["region"]) for row in rows}) == len(rows)
    return {(row["id"], row["region"]) for row in rows}


def test_partition_changes_are_written_and_counted() -> None:
    stream = _stream(PartitionChange.COUNT)
    assert stream.write([_row("a", "north"), _row("b", "north")]).partition_changes == 0
    result = stream.write([_row("a", "south"), _row("b", "north", 1), _row("c", "south")])
    assert result.partition_changes == 1
    found = "record key 'a' exists in partition 'north', but this row is in 'south'"
    assert result.first_partition_change == found
    assert stream.write([_row("a", "south", 1), _row("a", "north", 1)]).partition_changes == 0
    assert len(stream.exchange.attempts) == 3
    expected = {("a", "north"), ("a", "south"), ("b", "north"), ("c", "south")}
    assert _rows(stream) == expected


def test_partition_changes_are_dead_letters_with_both_partitions() -> None:
    stream = _stream(PartitionChange.REJECT)
    stream.write([_row("a", "north"), _row("b", "north")])
    result = stream.write([_row("c", "north"), _row("a", "south"), _row("c", "west")])
    assert (result.records, result.rejected, result.partition_changes) == (3, 2, 0)
    assert _rows(stream) == {("a", "north"), ("b", "north"), ("c", "north")}
    assert stream.reasons() == {
        3: "record key 'a' exists in partition 'north', but this row is in 'south'; "
        "table.partition_change: reject refuses this row",
        4: "record key 'c' exists in partition 'north', but this row is in 'west'; "
        "table.partition_change: reject refuses this row",
    }
    assert not repeated_keys(open_table(stream.location)).keys


def test_batch_with_more_refused_rows_than_allowed_is_not_published() -> None:
    stream = _stream(PartitionChange.REJECT, max_share=0.4)
    stream.write([_row("a", "north")])
    with pytest.raises(TooManyRejects, match="exists in partition 'north'"):
        stream.write([_row("a", "south")])
    assert _rows(stream) == {("a", "north")}
    stream.write([_row("a", "north", 1)])


def test_partition_changes_are_not_looked_for_by_default() -> None:
    stream = _stream(PartitionChange.ALLOW)
    stream.write([_row("a", "north")])
    assert stream.write([_row("a", "south")]).partition_changes == 0
    assert _rows(stream) == {("a", "north"), ("a", "south")}
