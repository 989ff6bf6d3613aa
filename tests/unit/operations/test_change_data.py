"""CDC queries of tables that lakemark creates return each change of each commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.config.table_properties import LoggingMode
from lakemark.merge import merge_stream
from lakemark.write import file_group_write
from tests.depth import examples
from tests.golden.golden_table import unpack
from tests.unit.operations.tables import FAST, SCHEMA, reopen, rows

#: Operation, key, and the values of ``v`` before and after.
Change = tuple[str, str, int | None, int | None]


class Step(NamedTuple):
    """A commit: the rows to upsert (key, ordering value, value), and the keys to delete."""

    upserts: list[tuple[str, int, int]]
    deletes: list[str]


keys = st.sampled_from("abcde")
steps = st.lists(
    st.builds(
        Step,
        st.lists(st.tuples(keys, st.integers(1, 9), st.integers(0, 99)), max_size=4),
        st.lists(keys, max_size=2),
    ),
    min_size=1,
    max_size=5,
)


def create(mode: str, table_type: str, version: int = 9, **more: str) -> lakemark.Table:
    return lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        version=version,
        cdc=mode,
        multi_writer=FAST,
        **({"buckets": 1} | more),  # type: ignore[arg-type]
    )


def listed(table: lakemark.Table, begin: str) -> list[Change]:
    changes = reopen(table.location).changes(begin).to_reader().read_all().to_pylist()
    return sorted((one["op"], *_images(one)) for one in changes)


def _images(change: Mapping[str, str]) -> tuple[str, int | None, int | None]:
    before, after = (json.loads(change[name] or "null") or {} for name in ("before", "after"))
    return (after or before)["id"], before.get("v"), after.get("v")


class Model:
    """The live rows: ordering value and value of each key."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[int, int]] = {}

    def upsert(self, changes: list[tuple[str, int, int]]) -> list[Change]:
        newest: dict[str, tuple[int, int]] = {}
        for key, ts, v in changes:
            if key not in newest or newest[key][0] <= ts:
                newest[key] = ts, v
        return [change for key, row in newest.items() for change in self._write(key, row)]

    def delete(self, names: list[str]) -> list[Change]:
        gone = sorted(set(names) & self.rows.keys())
        return [("d", key, self.rows.pop(key)[1], None) for key in gone]

    def _write(self, key: str, row: tuple[int, int]) -> list[Change]:
        before = self.rows.get(key)
        if before is not None and row[0] < before[0]:
            return []
        self.rows[key] = row
        return [("i", key, None, row[1]) if before is None else ("u", key, before[1], row[1])]


@pytest.mark.parametrize("mode", [mode.lower() for mode in LoggingMode])
@settings(max_examples=examples(5), deadline=None)
@given(history=steps)
def test_changes_equal_those_of_a_model(mode: str, history: list[Step]) -> None:
    table, model = create(mode, "copy_on_write"), Model()
    begin = reopen(table.location).timeline.completed()[-1].requested_at
    expected: list[Change] = []
    for step in history:
        if step.upserts:
            table.upsert(rows(*((key, "n", ts, v) for key, ts, v in step.upserts)))
            expected += model.upsert(step.upserts)
        if step.deletes:
            table.delete(step.deletes)
            expected += model.delete(step.deletes)
    assert listed(table, begin) == sorted(expected)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("mode", [mode.lower() for mode in LoggingMode])
def test_copy_on_write_tables_of_every_version_log_changes(mode: str, version: int) -> None:
    table = create(mode, "copy_on_write", version)
    table.upsert(rows(("a", "n", 1, 1), ("b", "n", 1, 2)))
    begin = reopen(table.location).timeline.completed()[-1].requested_at
    table.upsert(rows(("a", "n", 2, 3), ("c", "n", 2, 4)))
    table.delete(["b"])
    assert listed(table, begin) == [
        ("d", "b", 2, None),
        ("i", "c", None, 4),
        ("u", "a", 1, 3),
    ]


def test_changes_of_a_merge_that_spills_to_disk_are_logged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = create("data_before_after", "copy_on_write")
    table.upsert(rows(*((f"k{n}", "n", 1, n) for n in range(300))))
    begin = reopen(table.location).timeline.completed()[-1].requested_at
    original = merge_stream.merge_streams
    spilling = partial(original, memory_budget_bytes=1)
    monkeypatch.setattr(file_group_write, "merge_streams", spilling)
    table.upsert(rows(*((f"k{n}", "n", 2, n + 1000) for n in range(0, 300, 3))))
    assert listed(table, begin) == sorted(("u", f"k{n}", n, n + 1000) for n in range(0, 300, 3))


def test_a_late_change_is_not_logged() -> None:
    table = create("data_before_after", "copy_on_write")
    table.upsert(rows(("a", "n", 5, 1)))
    begin = reopen(table.location).timeline.completed()[-1].requested_at
    table.upsert(rows(("a", "n", 4, 2)))
    assert listed(table, begin) == []


def test_inserts_into_a_small_file_of_a_lookup_table_are_logged() -> None:
    table = create("data_before_after", "copy_on_write", index="lookup", buckets=4)  # type: ignore[arg-type]
    table.upsert(rows(("a", "n", 1, 1)))
    begin = reopen(table.location).timeline.completed()[-1].requested_at
    table.insert(rows(("b", "n", 1, 2)))
    assert listed(table, begin) == [("i", "b", None, 2)]


def test_an_insert_of_a_stored_key_is_logged_as_an_insert() -> None:
    table = create("data_before_after", "copy_on_write", index="lookup", buckets=4)  # type: ignore[arg-type]
    table.upsert(rows(("a", "n", 1, 1)))
    begin = reopen(table.location).timeline.completed()[-1].requested_at
    table.insert(rows(("a", "n", 2, 2)))
    assert listed(table, begin) == [("i", "a", None, 2)]
    assert table.scan().to_table().num_rows == 2


def test_version_6_merge_on_read_is_refused() -> None:
    with pytest.raises(lakemark.Unsupported, match="no CDC queries of merge-on-read tables"):
        create("data_before", "merge_on_read", 6)


@pytest.mark.parametrize("name", ["v9_cow_cdc", "v9_cow_cdc_op_key_only", "v6_cow_cdc_data_before"])
def test_tables_of_apache_hudi_with_change_data_are_continued(tmp_path: Path, name: str) -> None:
    golden = unpack(name, tmp_path)
    table = lakemark.open(str(golden.root), multi_writer=FAST)
    begin = table.timeline.completed()[-1].requested_at
    (row,) = table.scan().to_table().slice(0, 1).to_pylist()
    newer = {**row, "ts": row["ts"] + 1_000_000}
    own = {name: value for name, value in newer.items() if not name.startswith("_hoodie_")}
    columns = pa.schema([field for field in table.scan().schema if field.name in own])
    table.upsert(pa.Table.from_pylist([own], columns))
    (change,) = reopen(table.location).changes(begin).to_reader().read_all().to_pylist()
    before, after = (json.loads(change[image])["ts"] for image in ("before", "after"))
    assert (change["op"], before, after) == ("u", row["ts"], newer["ts"])
