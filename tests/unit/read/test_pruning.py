"""File statistics skip every slice that they can, and no slice with a matching row."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.merger_name import MergerName
from lakemark.config.table_properties import TableType
from lakemark.config.table_spec import TableSpec
from lakemark.merge.custom import BufferedRecord, BufferedRecordMerger, RecordContext
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.read import range_search
from lakemark.read.index_protocols import statistics_schema
from lakemark.read.pruning import SlicePruner
from lakemark.read.row_filter import filter_rows, may_match
from lakemark.read.where import parse_where
from lakemark.storage import StorageLocation, open_storage
from lakemark.view.file_lister import FILE_NAMES
from tests.depth import examples
from tests.merging.written_table import WrittenTable
from tests.tables import Row, commit, make, writer
from tests.unit.read.conditions import CONDITIONS, ON_A, ROWS, SCHEMA

Rows = list[dict[str, Any]]
_SETTINGS = settings(max_examples=examples(100), deadline=None)


@dataclass(frozen=True)
class Known:
    """The statistics that a metadata table has for files with these rows, by path."""

    files: dict[str, Rows]

    def by_path(self, column: str, data_type: pa.DataType, partitions: Sequence[str]) -> pa.Table:
        schema, found = statistics_schema("path", data_type), []
        for name, rows in self.files.items():
            values = [row.get(column) for row in rows]
            there = [value for value in values if value is not None]
            low, high = min(there, default=None), max(there, default=None)
            found.append((name, low, high, len(values) - len(there), len(values)))
        return pa.Table.from_pylist(
            [dict(zip(schema.names, f, strict=True)) for f in found], schema
        )


def sliced(number: int, log_files: int, path: str = "") -> FileSlice:
    group = f"g{number}"
    base = BaseFile(path, BaseFileName(group, "0-1-2", "10"), 1)
    logs = [LogFile(path, LogFileName(group, str(11 + n), 1, "0-1-2"), 1) for n in range(log_files)]
    return FileSlice(FileGroupId(path, group), "10", base, tuple(logs))


def left_of(
    slices: Sequence[Sequence[Rows]], condition: pc.Expression, unknown: Container[int] = ()
) -> list[bool]:
    """Return for each slice whether a query with this condition reads it.

    Args:
        slices: for each slice, the rows of each of its files.
        condition: condition of the query.
        unknown: indexes within each slice of the files without statistics.
    """
    made = [sliced(number, len(files) - 1) for number, files in enumerate(slices)]
    known = Known(
        {
            name: rows
            for one, files in zip(made, slices, strict=True)
            for position, (name, rows) in enumerate(zip(names(one), files, strict=True))
            if position not in unknown
        }
    )
    left = SlicePruner(SCHEMA, statistics=known).select(made, condition)
    return [one in left for one in made]


def names(one: FileSlice) -> list[str]:
    assert one.base is not None
    return [str(one.base.name), *(str(log.name) for log in one.logs)]


class Summing(BufferedRecordMerger):
    """A merger that adds up the amounts of both records."""

    merging_strategy = "7b1d6c1e-0a53-4b38-9d2f-6f9f3c0a4e21"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        first, second = (context.get_value(one, "amount") for one in (older, newer))
        assert isinstance(first, int) and isinstance(second, int)
        return context.merge_with_record(newer, {"amount": first + second})


@_SETTINGS
@given(CONDITIONS, st.lists(st.lists(ROWS, min_size=1, max_size=2), min_size=1, max_size=3))
def test_skipped_slice_has_no_match_however_its_files_merge(
    condition: pc.Expression, slices: list[list[Rows]]
) -> None:
    for files, is_left in zip(slices, left_of(slices, condition), strict=True):
        values = [{row[name] for rows in files for row in rows} for name in ("a", "b")]
        merged = [{"a": a, "b": b} for a, b in product(*values)]
        found = filter_rows(pa.Table.from_pylist(merged, SCHEMA), condition).num_rows
        assert is_left or not found


@_SETTINGS
@given(CONDITIONS, st.lists(ROWS, min_size=1, max_size=3), st.sets(st.integers(0, 2)))
def test_slice_is_read_if_a_file_without_statistics_may_match(
    condition: pc.Expression, files: list[Rows], unknown: set[int]
) -> None:
    matches = [
        filter_rows(pa.Table.from_pylist(rows, SCHEMA), condition).num_rows for rows in files
    ]
    (is_left,) = left_of([files], condition, unknown)
    assert is_left or not any(matches)


@pytest.mark.parametrize("unknown", [0, 1], ids=["base file", "log"])
def test_slice_is_read_if_one_of_its_files_has_no_statistics(unknown: int) -> None:
    files: list[Rows] = [[{"a": 1}], [{"a": 9}]]
    condition = pc.field("a") == files[unknown][0]["a"]
    assert left_of([files], condition, {unknown}) == [True]
    assert left_of([files], condition, {1 - unknown}) == [True]


@_SETTINGS
@given(ON_A, st.lists(st.lists(ROWS, min_size=1, max_size=2), min_size=1, max_size=3))
def test_slice_is_read_only_if_a_value_in_its_range_or_a_null_matches(
    condition: pc.Expression, slices: list[list[Rows]]
) -> None:
    for files, is_left in zip(slices, left_of(slices, condition), strict=True):
        values = {row["a"] for rows in files for row in rows}
        there = values - {None}
        may_be = [*range(min(there), max(there) + 1)] if there else []
        rows = [{"a": a} for a in [*may_be, *([None] if None in values else [])]]
        found = filter_rows(pa.Table.from_pylist(rows, SCHEMA), condition).num_rows
        assert is_left == bool(found)


def test_slice_is_read_for_nulls_if_one_of_its_files_has_a_null() -> None:
    files: list[Rows] = [[{"a": 1}], [{"a": 1}, {"a": None}]]
    for ordered in (files, files[::-1]):
        assert left_of([ordered], pc.field("a").is_null()) == [True]
    assert left_of([[files[0], files[0]]], pc.field("a").is_null()) == [False]


@pytest.mark.parametrize(
    ("values", "is_left"), [((5,), False), ((5, None), False), ((None,), False), ((5, 6), True)]
)
def test_slice_is_skipped_if_each_of_its_values_is_in_an_excluded_list(
    values: tuple[int | None, ...], is_left: bool
) -> None:
    condition = parse_where("a not in (3, 5)", SCHEMA)
    assert left_of([[[{"a": value} for value in values]]], condition) == [is_left]


def test_files_with_the_same_name_in_two_partitions_are_told_apart() -> None:
    """Writers of Apache Flink may give the file groups of a bucket the same id everywhere."""
    slices = [sliced(0, 0), sliced(0, 0, "p")]
    known = Known({"p/" + names(slices[1])[0]: [{"a": 9}], names(slices[0])[0]: [{"a": 1}]})
    for value, left in ((1, slices[:1]), (9, slices[1:]), (5, [])):
        pruner = SlicePruner(SCHEMA, statistics=known)
        assert pruner.select(slices, pc.field("a") == value) == left


@_SETTINGS
@given(CONDITIONS, st.lists(st.lists(ROWS, min_size=1, max_size=2), min_size=1, max_size=12))
def test_slices_searched_in_blocks_are_those_found_one_by_one(
    condition: pc.Expression, slices: list[list[Rows]]
) -> None:
    one_by_one = [left_of([files], condition)[0] for files in slices]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(range_search, "_FANOUT", 2)
        assert left_of(slices, condition) == one_by_one


def test_few_blocks_are_examined_to_find_one_of_many_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = [sliced(number, 0) for number in range(5000)]
    known = Known({names(one)[0]: [{"a": at}] for at, one in enumerate(made)})
    examined: list[int] = []

    def count(
        condition: pc.Expression, guarantees: Sequence[pc.Expression], schema: pa.Schema
    ) -> list[bool]:
        examined.append(len(guarantees))
        return may_match(condition, guarantees, schema)

    monkeypatch.setattr(range_search, "may_match", count)
    pruner = SlicePruner(SCHEMA, statistics=known)
    assert pruner.select(made, pc.field("a") == 4321) == [made[4321]]
    assert sum(examined) < 300


@pytest.mark.parametrize("unknown", [0, 5, 39])
def test_slice_without_statistics_is_found_among_many(
    unknown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_search, "_FANOUT", 3)
    made = [sliced(number, 0) for number in range(40)]
    known = Known({names(one)[0]: [{"a": at}] for at, one in enumerate(made) if at != unknown})
    found = SlicePruner(SCHEMA, statistics=known).select(made, pc.field("a") == -1)
    assert found == [made[unknown]]


@_SETTINGS
@given(CONDITIONS, st.lists(st.lists(ROWS, min_size=1, max_size=3), min_size=1, max_size=4))
def test_file_group_is_kept_if_one_of_its_slices_is(
    condition: pc.Expression, groups: list[list[Rows]]
) -> None:
    """A group has the files of its older slices and of changes (CDC), too."""
    made = [sliced(number, len(files) - 1) for number, files in enumerate(groups)]
    known = {
        name: rows
        for one, files in zip(made, groups, strict=True)
        for name, rows in zip(names(one), files, strict=True)
    }
    cdc = [f".{one.group.file_id}_50.log.1_0-1-2.cdc" for one in made]
    listed = [*known, *cdc]
    files = pa.table([[""] * len(listed), listed, [1] * len(listed)], schema=FILE_NAMES)
    pruner = SlicePruner(SCHEMA, statistics=Known(known))
    kept = set(pruner.select_file_groups(files, condition)["name"].to_pylist())
    for one, name in zip(made, cdc, strict=True):
        assert {*names(one), name} <= kept or not {*names(one), name} & kept
    slices = {one for one in made if kept.issuperset(names(one))}
    assert slices.issuperset(SlicePruner(SCHEMA, statistics=Known(known)).select(made, condition))


def test_file_group_with_logs_is_kept_if_merging_creates_values() -> None:
    made = [sliced(0, 0), sliced(1, 1)]
    listed = [name for one in made for name in names(one)]
    files = pa.table([[""] * len(listed), listed, [1] * len(listed)], schema=FILE_NAMES)
    known = Known({name: [{"a": 5}] for name in listed})
    for makes_values, left in ((False, []), (True, names(made[1]))):
        pruner = SlicePruner(SCHEMA, statistics=known, merging_makes_values=makes_values)
        found = pruner.select_file_groups(files, pc.field("a") > 10)
        assert found["name"].to_pylist() == left


def test_conditions_on_several_columns_are_combined() -> None:
    rows: Rows = [{"a": 1, "b": "x"}, {"a": None, "b": None}]
    either = (pc.field("a") > 5) | (pc.field("b") == "z")
    assert left_of([[rows]], either) == [False]
    assert left_of([[rows]], either | pc.field("b").is_null()) == [True]


def test_statistics_are_ignored_if_merging_creates_values() -> None:
    base: Rows = [{"a": 5}]
    slices, condition = [sliced(0, 0), sliced(1, 1)], pc.field("a") > 10
    known = Known({name: base for one in slices for name in names(one)})
    for makes_values, left in ((False, []), (True, slices[1:])):
        pruning = SlicePruner(SCHEMA, statistics=known, merging_makes_values=makes_values)
        assert pruning.select(slices, condition) == left


def test_row_with_a_value_created_by_merging_is_found(tmp_path: Path) -> None:
    merger_class = f"{Summing.__module__}:{Summing.__qualname__}"
    name = MergerName(merger_class, Summing.merging_strategy)
    spec = TableSpec(
        name="sums",
        record_key=("id",),
        table_type=TableType.MERGE_ON_READ,
        ordering=("ts",),
        merger=name,
    )
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("amount", pa.int64())])
    table = WrittenTable.create(tmp_path, schema, spec.to_properties(), merger_class)
    keep_metadata_table(table.open())
    table.upsert({"id": "a", "ts": 1, "amount": 5})
    table.compact()
    table.upsert({"id": "a", "ts": 2, "amount": 7})
    found = table.open().scan(columns=["amount"], where="amount > 10").to_reader().read_all()
    assert found["amount"].to_pylist() == [12]


def test_query_does_not_open_skipped_files(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage)
    rows = [Row(str(key), ts, v=100 * ts) for ts in (1, 2) for key in range(8)]
    for ts in (1, 2):
        commit(writer(storage), [row for row in rows if row.ts == ts])
    commit(writer(storage), [Row("elsewhere", 1, v=900, region="south")])
    table = writer(storage).table
    everywhere, some = table.scan(), table.scan(where="v > 500")
    assert (len(everywhere.slices), len(some.slices)) == (3, 1)
    assert some.to_reader().read_all()["id"].to_pylist() == ["elsewhere"]


def test_partition_value_that_begins_with_its_column_name_is_found(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage)
    commit(writer(storage), [Row("a", region="region=north"), Row("b", region="north")])
    table = writer(storage).table
    for value, key in (("region=north", "a"), ("north", "b")):
        found = table.scan(columns=["id"], where=f"region = '{value}'").to_reader().read_all()
        assert found["id"].to_pylist() == [key]


def test_statistics_of_times_beyond_python_years_skip_slices() -> None:
    """Statistics skip slices also for years that Python lacks, but Spark writes (up to 294247)."""
    at, day = pa.timestamp("us", "UTC"), pa.date32()
    schema = pa.schema([("at", at), ("day", day)])
    files = {"at": (-(10**17), 10**18), "day": (-(10**6), 10**7)}

    class Ranges:
        def by_path(
            self, column: str, data_type: pa.DataType, partitions: Sequence[str]
        ) -> pa.Table:
            bounds = [pa.scalar(number, data_type) for number in files[column]]
            columns = [[names(one)[0]], *([bound] for bound in bounds), [0], [2]]
            fields = statistics_schema("path", data_type)
            arrays = [pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)]
            return pa.table(arrays, fields)

    one = sliced(0, 0)
    pruning = SlicePruner(schema, statistics=Ranges())
    for column, data_type in (("at", at), ("day", day)):
        low, high = files[column]
        for number, left in ((low - 1, []), (low, [one]), (high, [one]), (high + 1, [])):
            condition = pc.field(column) == pa.scalar(number, data_type)
            assert pruning.select([one], condition) == left


@dataclass(frozen=True)
class Bounds:
    """Statistics of the only file of a slice: bounds, null count and value count."""

    low: object
    high: object
    nulls: int | None = 0
    values: int | None = 2

    def by_path(self, column: str, data_type: pa.DataType, partitions: Sequence[str]) -> pa.Table:
        names_of = [[names(sliced(0, 0))[0]], [self.low], [self.high], [self.nulls], [self.values]]
        fields = statistics_schema("path", data_type)
        arrays = [pa.array(c, f.type) for c, f in zip(names_of, fields, strict=True)]
        return pa.table(arrays, fields)


@pytest.mark.parametrize(
    ("bounds", "condition"),
    [
        # The number of nulls is unknown.
        (Bounds(1, 2, nulls=None), pc.field("a").is_null()),
        # Bounds of floats omit NaN, which is unlike any number.
        (Bounds(1.0, 1.0), ~(pc.field("f") <= 1.0)),
        # In Java's order, by UTF-16 units, the first of these texts is the smaller one.
        (Bounds("\U0001f600", "\uff5e"), pc.field("b") == "\uff70"),
        (Bounds("\U0001f600", "\uff5e"), pc.field("b") == "\U0001f601"),
    ],
)
def test_file_is_read_if_its_bounds_are_incomplete(
    bounds: Bounds, condition: pc.Expression
) -> None:
    schema = SCHEMA.append(pa.field("f", pa.float64()))
    assert SlicePruner(schema, statistics=bounds).select([sliced(0, 0)], condition)
