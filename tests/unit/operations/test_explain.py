"""An explanation names the file groups that a query reads, and the reason for each other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import lakemark
from lakemark import Explanation, Incremental, ReadOptimized, SkipReason, Snapshot
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.queries import Query
from lakemark.storage import StorageLocation
from tests.golden.golden_table import unpack
from tests.unit.operations.tables import create, rows

CONDITIONS = [
    None,
    "region = 'north'",
    "region = 'nowhere'",
    "v > 5",
    "v > 5 and ts < 3",
    "v is null",
    "region = 'south' or v = 1",
    "region != 'south' and v = 9",
]


@pytest.fixture(
    scope="module",
    params=[(6, "MERGE_ON_READ"), (8, "COPY_ON_WRITE"), (9, "MERGE_ON_READ")],
    ids=str,
)
def table(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> lakemark.Table:
    """A table that the tests only read."""
    version, table_type = request.param
    made = create(str(tmp_path_factory.mktemp("explained") / "orders"), table_type, version)
    made.upsert(rows(*((f"n{v}", "north", 1, v) for v in range(6))))
    made.upsert(rows(*((f"s{v}", "south", 2, v) for v in range(3, 12))))
    made.upsert(rows(("n1", "north", 3, 7), ("w", "west", 3, 1)))
    return made


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("keys", [None, ["n1"], ["s4", "unknown"]])
@pytest.mark.parametrize("query", [Snapshot(), ReadOptimized()])
def test_explanation_agrees_with_the_scan(
    table: lakemark.Table, query: Query, keys: list[str] | None, condition: str | None
) -> None:
    explanation = table.explain(query, condition, keys)
    scan = table.scan(query, where=condition, record_keys=keys)
    assert set(explanation.read) == set(scan.slices)
    assert _groups(explanation) == sorted(s.group for s in _all(table).view().latest_slices())


def test_each_reason_is_reported(table: lakemark.Table) -> None:
    explanation = table.explain(where="region in ('north', 'south') and v > 8")
    reasons = {one.file_slice.group.partition_path: one for one in explanation.skipped}
    assert reasons["west"].reason is SkipReason.PARTITION
    assert (reasons["north"].reason, reasons["north"].columns) == (SkipReason.STATISTICS, ("v",))
    assert {one.group.partition_path for one in explanation.read} == {"south"}
    assert "by partition" in str(explanation)
    assert "by statistics" in str(explanation)


@pytest.mark.parametrize(
    "by", [{"where": "id = 'n1'"}, {"where": "v > 0 and id = 'n1'"}, {"record_keys": ["n1", "n1"]}]
)
def test_buckets_without_the_key_are_skipped(table: lakemark.Table, by: dict[str, Any]) -> None:
    explanation = table.explain(**by)
    assert SkipReason.BUCKET in {one.reason for one in explanation.skipped}
    assert "by bucket" in str(explanation)
    # The key may be in the same bucket of each of the three partitions.
    assert len({one.group.file_id[:8] for one in explanation.read}) == 1
    assert table.scan(**by).to_table()["id"].to_pylist() == ["n1"]


def test_columns_that_skip_only_together_are_all_named(table: lakemark.Table) -> None:
    (skipped, *_) = table.explain(where="v = 8 and ts = 1 or v = 4 and ts = 3").skipped
    assert skipped.reason is SkipReason.STATISTICS
    assert set(skipped.columns) == {"ts", "v"}


def test_file_groups_outside_a_range_are_reported(table: lakemark.Table) -> None:
    commits = [i for i in table.timeline.completed() if i.action.is_ingest]
    south = commits[2]  # the first commit only creates the table
    end = south.requested_at if table.version == 6 else south.completed_at
    before = commits[1].requested_at if table.version == 6 else commits[1].completed_at
    assert before is not None
    assert end is not None
    explanation = table.explain(Incremental(before, end), "v > 4")
    skipped = {
        one.file_slice.group.partition_path
        for one in explanation.skipped
        if one.reason is SkipReason.QUERY
    }
    assert "west" in skipped
    assert {one.group.partition_path for one in explanation.read} == {"south"}
    past = table.explain(Snapshot(as_of=commits[1].requested_at))
    assert {one.group.partition_path for one in past.read} == {"north"}
    assert {one.reason for one in past.skipped} == {SkipReason.QUERY}
    assert str(past).endswith(f"; skips {len(past.skipped)} without a file for this query")


@pytest.mark.parametrize("name", ["v6_mor_recordindex", "v8_mor_recordindex", "v9_mor_recordindex"])
def test_record_index_skips_the_file_groups_without_the_key(name: str, tmp_path: Path) -> None:
    golden = unpack(name, tmp_path)
    expected = golden.expected("snapshot")
    key, partition = (expected.column(column)[0].as_py() for column in (RECORD_KEY, PARTITION_PATH))
    explanation = golden.table.explain(record_keys=[key])
    found = golden.table.scan(record_keys=[key]).to_table()
    assert found.num_rows == expected.filter(pc.field(RECORD_KEY) == key).num_rows
    assert partition in {one.group.partition_path for one in explanation.read}
    assert {one.reason for one in explanation.skipped} <= {
        SkipReason.RECORD_INDEX,
        SkipReason.STATISTICS,
    }
    assert SkipReason.RECORD_INDEX in {one.reason for one in explanation.skipped}
    assert _groups(explanation) == sorted(s.group for s in golden.view.latest_slices())


def _groups(explanation: Explanation) -> list[FileGroupId]:
    found = [*explanation.read, *(one.file_slice for one in explanation.skipped)]
    return sorted(one.group for one in found)


def _all(table: lakemark.Table) -> OpenTable:
    return open_table(StorageLocation(table.location))
