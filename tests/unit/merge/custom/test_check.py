"""The check accepts valid mergers, and reports each kind of invalid one."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from examples.order_merger import OrderMerger, OrderRecordMerger
from lakemark.errors import InvalidConfig
from lakemark.merge.custom import (
    BufferedRecord,
    BufferedRecordMerger,
    CustomMerger,
    RecordContext,
    Records,
    VectorMerge,
    VectorMerger,
    check_merger,
    choose_rows,
)
from lakemark.merge.custom.check import BrokenRule
from tests.unit.merge.custom.mergers import ByEventTime, ByEventTimeRecords

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
ORDERS = pa.schema(
    [
        ("id", pa.string()),
        ("state", pa.string()),
        ("order_info", pa.string()),
        ("order_info_at", pa.int64()),
        ("payment_info", pa.string()),
        ("payment_info_at", pa.int64()),
        ("at", pa.int64()),
    ]
)
ALL_KINDS = pa.schema(
    [
        pa.field("flag", pa.bool_(), nullable=False),
        ("price", pa.decimal128(9, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("time", pa.time64("us")),
        ("raw", pa.binary()),
        ("share", pa.float64()),
        ("place", pa.struct([("city", pa.string()), ("ts", pa.int32())])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
    ]
)


class BadColumns(VectorMerger):
    merging_strategy = "6c8f7f0e-54a3-4f0c-8f0c-3a1f0a4b7a05"


class BadRecords(BufferedRecordMerger):
    merging_strategy = "6c8f7f0e-54a3-4f0c-8f0c-3a1f0a4b7a06"


class FirstKeyWins(BadColumns):
    """Decides which version wins only for the first row, and applies this to all rows."""

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        wins = newer.wins_over(older)
        wins[:] = wins[0]
        deletes = np.where(wins, newer.is_delete, older.is_delete)
        return VectorMerge(choose_rows(wins, newer.rows, older.rows), ~deletes)


class Averages(BadRecords):
    """Averages values: the result depends on how merges are grouped."""

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        latest = newer if context.newer_wins(older, newer) else older
        values = [context.get_value(record, "v") for record in (older, newer)]
        known = [v for v in values if isinstance(v, int)]
        return context.merge_with_record(latest, {"v": sum(known) // max(len(known), 1)})


class EmptiesDeletedRows(BadColumns):
    """Marks a deleted record by nulls instead of the operation."""

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        wins = newer.wins_over(older)
        deletes = pa.array(np.where(wins, newer.is_delete, older.is_delete))
        rows = choose_rows(wins, newer.rows, older.rows)
        for position, name in enumerate(rows.column_names):
            if name in SCHEMA.names and name != "ts":
                column = pc.if_else(deletes, None, rows.column(name))
                rows = rows.set_column(position, rows.schema.field(name), column)
        return VectorMerge(rows, np.ones(len(older), np.bool_))


class AddsTimes(BadRecords):
    """Adds up the ordering values of both versions."""

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        times = (
            context.ordering_value(replace(r, data=context.data_of(r))) for r in (older, newer)
        )
        return context.merge_with_record(newer, {"ts": sum(t for t in times if isinstance(t, int))})


class LosesTimes(BadRecords):
    """Returns deletes without an ordering value."""

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        return replace(newer, ordering_value=None, data=None) if newer.is_delete else newer


class ReturnsNothing(BadRecords):
    """Returns None to delete a record."""

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        return None if newer.is_delete else newer  # type: ignore[return-value]


class Retypes(BadColumns):
    """Returns a column with another type."""

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        rows = newer.rows.set_column(3, "v", pc.cast(newer["v"], pa.float64()))
        return VectorMerge(rows, ~newer.is_delete)


class Renames(BadRecords):
    """Returns a record with another key."""

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        return replace(newer, record_key=f"{older.record_key}+")


@pytest.mark.parametrize(
    ("merger", "schema", "ordering"),
    [
        (ByEventTime(), SCHEMA, ("ts",)),
        (ByEventTime(), SCHEMA, ("ts", "v")),
        (ByEventTimeRecords(), SCHEMA, ("ts",)),
        (ByEventTimeRecords(), SCHEMA, ()),
        (ByEventTime(), ALL_KINDS, ("place.ts",)),
        (ByEventTimeRecords(), ALL_KINDS, ("at",)),
        (OrderMerger(), ORDERS, ("at",)),
        (OrderRecordMerger(), ORDERS, ("at",)),
    ],
)
def test_valid_mergers_pass(
    merger: CustomMerger, schema: pa.Schema, ordering: tuple[str, ...]
) -> None:
    check_merger(merger, schema, ordering, examples=15)


@pytest.mark.parametrize(
    ("merger", "rule", "seen"),
    [
        (ReturnsNothing(), "the result is", "never None"),
        (Renames(), "same key", r"'key\+' came back"),
        (Retypes(), "table's types", "v is double and must be int64"),
        (EmptiesDeletedRows(), "the result is", "an upsert without any data"),
        (LosesTimes(), "the result is", "ordering value was lost"),
        (AddsTimes(), "the ordering value is kept", "not the ordering value of a or b"),
        (Averages(), "associative", r"merge\(a, merge\(b, c\)\)"),
        (FirstKeyWins(), "does not depend on other rows", "alone"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_broken_rule_is_reported(merger: CustomMerger, rule: str, seen: str) -> None:
    with pytest.raises(BrokenRule, match=seen) as raised:
        check_merger(merger, SCHEMA, ["ts"])
    assert rule in raised.value.rule
    assert type(merger).__name__ in str(raised.value)


def test_reported_example_is_small() -> None:
    with pytest.raises(BrokenRule) as raised:
        check_merger(Averages(), SCHEMA, ["ts"])
    a, b, c = raised.value.versions
    assert [version.values.get("id") for version in (a, b, c)] == [None, None, None]
    assert str(raised.value).splitlines()[1:4] == [
        f"  {n} = {v}" for n, v in zip("abc", (a, b, c), strict=True)
    ]


@pytest.mark.parametrize(
    ("ordering", "values", "fault"),
    [
        (["zz"], {}, "'zz' is not among the columns id, ts, v"),
        (["ts"], {"stat": ["paid"]}, r"'stat'.* no such column; it has \['id', 'ts', 'v'\]"),
        (["ts"], {"v": ["paid"]}, r"values=\{'v': \['paid'\]\}: column v is int64"),
        (["ts"], {"v": [1, 1 << 70]}, "column v is int64"),
    ],
)
def test_invalid_arguments_are_not_reported_as_broken_rules(
    ordering: list[str], values: dict[str, list[object]], fault: str
) -> None:
    with pytest.raises(InvalidConfig, match=fault):
        check_merger(ByEventTime(), SCHEMA, ordering, values=values)


def test_caller_can_specify_the_values_to_try() -> None:
    days = [dt.date(1999, 12, 31), dt.date(2000, 1, 1)]
    seen: set[object] = set()

    class Watching(ByEventTime):
        def merge(self, older: Records, newer: Records) -> VectorMerge:
            seen.update(newer["day"].to_pylist())
            return super().merge(older, newer)

    schema = pa.schema([("day", pa.date32()), ("odd", pa.duration("s"))])
    with pytest.raises(InvalidConfig, match=r"values=\{'odd'"):
        check_merger(Watching(), schema)
    check_merger(Watching(), schema.remove(1), ["day"], values={"day": days}, examples=20)
    assert seen == set(days)
