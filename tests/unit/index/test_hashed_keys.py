"""Queries by key read only the buckets of the keys, and find what a query without them finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark import SkipReason
from lakemark.config import keys
from tests.depth import sample
from tests.unit.operations.tables import FAST

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("v", pa.int64())])
IDS = ["a", "b", "a,b", "id:a", "é", "", "0001"]
EVERY = [{"id": id, "n": n, "x": n / 2, "v": 1} for id in IDS for n in (-1, 0, 7, 2**40)]


def make(path: Path, record_key: list[str], **options: Any) -> lakemark.Table:
    table = lakemark.create(
        str(path),
        schema=SCHEMA,
        record_key=record_key,
        ordering="v",
        buckets=16,
        multi_writer=FAST,
        **options,
    )
    given = [row for row in EVERY if record_key != ["id"] or row["id"]]
    by_key = {tuple(row[name] for name in record_key): row for row in given}
    table.upsert(pa.Table.from_pylist(list(by_key.values()), schema=SCHEMA))
    return table


def found(table: lakemark.Table, condition: pc.Expression) -> tuple[list[str], set[SkipReason]]:
    rows = table.scan(where=condition).to_table().select(SCHEMA.names).to_pylist()
    reasons = {one.reason for one in table.explain(where=condition).skipped}
    return sorted(map(str, rows)), reasons


def equal(values: dict[str, Any]) -> pc.Expression:
    condition = pc.scalar(value=True)
    for name, value in values.items():
        condition &= pc.field(name) == value
    return condition


@pytest.mark.parametrize(
    ("record_key", "options"),
    [
        (["id"], {}),
        (["n"], {}),
        (["id", "n"], {}),
        (["n", "id"], {"metadata_table": False, "table_type": "copy_on_write", "version": 6}),
    ],
    ids=str,
)
def test_equalities_of_the_key_find_its_rows_in_one_bucket(
    tmp_path: Path, record_key: list[str], options: dict[str, Any]
) -> None:
    table = make(tmp_path / "t", record_key, **options)
    rows = table.scan().to_table().select(SCHEMA.names)
    for row in sample(rows.to_pylist(), one_in=2, name=str(record_key)):
        condition = equal({name: row[name] for name in record_key})
        texts, reasons = found(table, condition)
        assert texts == sorted(map(str, rows.filter(condition).to_pylist()))
        assert SkipReason.BUCKET in reasons
        assert found(table, condition & (pc.field("v") > 1))[0] == []


@pytest.mark.parametrize(
    "condition",
    [
        (pc.field("id") == "a") | (pc.field("n") == 7),
        ~(pc.field("id") == "a"),
        pc.field("id").isin(["a", "b"]),
        pc.field("n") == 7,
        pc.field("id").is_null(),
    ],
    ids=str,
)
def test_conditions_that_demand_no_key_skip_no_bucket(
    tmp_path: Path, condition: pc.Expression
) -> None:
    table = make(tmp_path / "t", ["id"])
    rows = table.scan().to_table().select(SCHEMA.names)
    texts, reasons = found(table, condition)
    assert texts == sorted(map(str, rows.filter(condition).to_pylist()))
    assert SkipReason.BUCKET not in reasons


def test_equality_with_a_number_of_another_type_finds_the_row(tmp_path: Path) -> None:
    table = make(tmp_path / "t", ["n"])
    for number in (7, pa.scalar(7, pa.int8())):
        (row,) = table.scan(where=pc.field("n") == number).to_table()["n"].to_pylist()
        assert row == 7


def test_buckets_are_not_skipped_after_a_commit_of_another_writer(tmp_path: Path) -> None:
    path, condition = tmp_path / "t", pc.field("id") == "a"
    table = make(path, ["id"], version=6, metadata_table=False)
    assert SkipReason.BUCKET in found(table, condition)[1]
    commit = max((path / ".hoodie").glob("*.deltacommit"))
    metadata = json.loads(commit.read_text())
    del metadata["extraMetadata"][keys.BUCKET_COUNT]
    commit.write_text(json.dumps(metadata))
    texts, reasons = found(lakemark.open(path), condition)
    assert len(texts) == 1
    assert SkipReason.BUCKET not in reasons
