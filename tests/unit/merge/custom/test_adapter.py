"""A custom merger gives the same rows as its rule applied record by record."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.merge.custom import Records, VectorMerge
from lakemark.merge.custom.adapter import custom_record_merger
from lakemark.merge.custom.api import CustomMerger
from lakemark.merge.merge_stream import merge_streams
from lakemark.merge.partial_update.missing_columns import MissingIfNotWritten
from lakemark.merge.partial_update.partial_rows import resolve_partial_rows
from lakemark.merge.record_merger import RecordMerger, event_time_merger
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import COMMIT_TIME, RECORD_KEY
from lakemark.model.written_columns import pack
from tests.depth import examples
from tests.unit.merge.custom.mergers import (
    Appending,
    AppendingRecords,
    ByEventTime,
    ByEventTimeRecords,
)

_DATA = (ChangeKind.UPSERT, ChangeKind.FLAGGED_DELETE)
COLUMNS = (COMMIT_TIME, RECORD_KEY, "ts", "text", "other")

each_appending = pytest.mark.parametrize(
    "merger", [Appending(), AppendingRecords()], ids=["columns", "records"]
)
each_by_event_time = pytest.mark.parametrize(
    "merger", [ByEventTime(), ByEventTimeRecords()], ids=["columns", "records"]
)


@dataclass(frozen=True)
class Change:
    key: str
    ts: int = 1
    text: str | None = "a"
    kind: ChangeKind = ChangeKind.UPSERT
    other: str | None = None
    commit: str = "1"
    written: tuple[bool, bool] = (True, True)

    @property
    def row(self) -> tuple[object, ...]:
        if self.kind in _DATA:
            text, other = (
                v if w else None for v, w in zip((self.text, self.other), self.written, strict=True)
            )
            return (self.commit, self.key, self.ts, text, other)
        ts = self.ts if self.kind is ChangeKind.DELETE else None
        return (None, self.key, ts, None, None)


def table_of(changes: Sequence[Change], *, in_part: bool = False) -> pa.Table:
    kinds = (pa.string(), pa.string(), pa.int32(), pa.string(), pa.string())
    rows = [change.row for change in changes]
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    table = pa.table(columns, names=list(COLUMNS))
    table = table.append_column(
        CHANGE_KIND_FIELD, pa.array([change.kind for change in changes], pa.int8())
    )
    if in_part:
        flags = np.ones((len(rows), len(COLUMNS)), np.bool_)
        for row, change in enumerate(changes):
            flags[row, 3:] = change.written if change.kind in _DATA else True
        table = table.append_column(WRITTEN_COLUMNS, pack(flags))
    return table


def base_of(rows: Sequence[Change]) -> pa.Table:
    return table_of(rows).drop_columns([CHANGE_KIND])


@st.composite
def histories(
    draw: st.DrawFn, kinds: Sequence[ChangeKind] = tuple(ChangeKind), *, in_part: bool = False
) -> tuple[list[Change], list[Change]]:
    """Draw rows of a base file, and changes."""
    flags = st.tuples(st.booleans(), st.booleans()) if in_part else st.just((True, True))
    one = st.builds(
        Change,
        st.sampled_from("wxyz"),
        st.integers(0, 3),
        st.one_of(st.none(), st.sampled_from("abc")),
        st.sampled_from(kinds),
        st.one_of(st.none(), st.sampled_from("de")),
        st.sampled_from("12"),
        flags,
    )
    changes = draw(st.lists(one, max_size=12))
    base = draw(st.lists(one, max_size=5))
    rows = [replace(r, kind=ChangeKind.UPSERT, written=(True, True)) for r in base]
    return list({row.key: row for row in rows}.values()), changes


def appended(older: Change, newer: Change) -> Change:
    """Merge two changes as ``Appending`` does."""
    older_deletes, newer_deletes = (c.kind is not ChangeKind.UPSERT for c in (older, newer))
    before = "" if older_deletes or newer_deletes else older.text or ""
    own = (newer.text or "") if newer.kind in _DATA else ""
    return replace(newer, text=before + own)


def outcome(base: Sequence[Change], changes: Sequence[Change]) -> list[tuple[object, ...]]:
    folded: dict[str, Change] = {}
    for change in changes:
        older = folded.get(change.key)
        folded[change.key] = change if older is None else appended(older, change)
    rows = {row.key: row for row in base}
    for key, change in folded.items():
        rows[key] = appended(rows[key], change) if key in rows else change
    live = [row for row in rows.values() if row.kind is ChangeKind.UPSERT]
    return sorted(((row.key, row.ts, row.text, row.other) for row in live), key=str)


def seen(rows: pa.Table, *names: str) -> list[tuple[object, ...]]:
    wanted = names or (RECORD_KEY, "ts", "text", "other")
    return sorted((tuple(row[n] for n in wanted) for row in rows.to_pylist()), key=str)


def upserts(rows: pa.Table) -> pa.Table:
    return rows.filter(pa.array(np.asarray(rows[CHANGE_KIND]) == ChangeKind.UPSERT))


@each_appending
@settings(deadline=None, max_examples=examples(30))
@given(history=histories())
def test_fold_equals_merging_record_by_record_in_order_of_arrival(
    merger: CustomMerger, history: tuple[list[Change], list[Change]]
) -> None:
    base, changes = history
    expected = outcome(base, changes)
    adapted = custom_record_merger(merger, ["ts"])
    folded = adapted.fold(table_of(changes))
    assert folded.schema == table_of(changes).schema
    assert folded[RECORD_KEY].to_pylist() == list(dict.fromkeys(c.key for c in changes))
    merged = adapted.apply(base_of(base), folded)
    assert seen(merged.rows) == expected
    assert merged.counts.inserted == len(
        {*seen(merged.rows, RECORD_KEY)} - {(b.key,) for b in base}
    )


@each_appending
@settings(deadline=None, max_examples=examples(4))
@given(history=histories())
def test_result_is_the_same_when_changes_spill_to_disk(
    merger: CustomMerger, history: tuple[list[Change], list[Change]]
) -> None:
    base, changes = history
    adapted, older = custom_record_merger(merger, ["ts"]), base_of(base)
    parts = [table_of(changes[i : i + 3]) for i in range(0, len(changes), 3)]
    spilled = merge_streams([older], parts, adapted, memory_budget_bytes=1)
    rows = pa.concat_tables([older.slice(0, 0), *spilled])
    assert seen(rows) == outcome(base, changes)


@each_by_event_time
@settings(deadline=None, max_examples=examples(30))
@given(history=histories())
def test_custom_event_time_merger_equals_built_in_one(
    merger: CustomMerger, history: tuple[list[Change], list[Change]]
) -> None:
    base, changes = history
    own, hudi = custom_record_merger(merger, ["ts"]), event_time_merger(["ts"])
    table = table_of(changes)
    folded, expected = own.fold(table), hudi.fold(table)
    assert seen(upserts(folded), *COLUMNS) == seen(upserts(expected), *COLUMNS)
    assert folded[RECORD_KEY].equals(expected[RECORD_KEY])
    one, other = (m.apply(base_of(base), m.fold(table)) for m in (own, hudi))
    assert seen(one.rows, *COLUMNS) == seen(other.rows, *COLUMNS)
    assert one.counts == other.counts


@each_by_event_time
@settings(deadline=None, max_examples=examples(30))
@given(history=histories([ChangeKind.UPSERT], in_part=True))
def test_partial_rows_complete_each_other(
    merger: CustomMerger, history: tuple[list[Change], list[Change]]
) -> None:
    base, changes = history
    table = table_of(changes, in_part=True)
    mergers: list[RecordMerger] = [custom_record_merger(merger, ["ts"]), event_time_merger(["ts"])]
    (own, found), (hudi, expected) = [(m, m.fold(table)) for m in mergers]
    compared = [*COLUMNS[1:], WRITTEN_COLUMNS]
    assert seen(found, *compared) == seen(expected, *compared)
    one, other = own.apply(base_of(base), found), hudi.apply(base_of(base), expected)
    assert seen(one.rows) == seen(other.rows)


@each_by_event_time
def test_row_after_delete_takes_no_values_from_before_it(merger: CustomMerger) -> None:
    delete = Change("x", 2, kind=ChangeKind.DELETE)
    later = Change("x", 3, text="new", written=(True, False))
    adapted = custom_record_merger(merger, ["ts"])
    folded = adapted.fold(table_of([delete, later], in_part=True))
    merged = adapted.apply(base_of([Change("x", 1, "old", other="old")]), folded)
    assert seen(merged.rows) == [("x", 3, "new", None)]


def test_record_merger_is_called_only_for_keys_with_several_changes() -> None:
    merger = AppendingRecords()
    adapted = custom_record_merger(merger)
    lone = [Change(f"k{n}") for n in range(1000)]
    folded = adapted.fold(table_of([*lone, Change("k7", text="b"), Change("k7", text="c")]))
    assert merger.calls == 2
    base = base_of([Change("k7"), Change("k8"), *(Change(f"b{n}") for n in range(1000))])
    merged = adapted.apply(base, folded)
    assert merger.calls == 4
    assert {row["text"] for row in merged.rows.to_pylist() if row[RECORD_KEY] == "k7"} == {"aabc"}
    assert (merged.counts.updated, merged.counts.inserted) == (2, 998)


class Counting(Appending):
    def __init__(self) -> None:
        self.calls: list[int] = []

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        self.calls.append(len(older))
        return super().merge(older, newer)


def test_changes_of_a_key_are_merged_in_halves() -> None:
    merger = Counting()
    keys = [f"k{n}" for n in range(50)]
    changes = [Change(key, text=str(n)) for n in range(3) for key in keys]
    folded = custom_record_merger(merger).fold(table_of([*changes, Change("k0", text="!")]))
    assert merger.calls == [51, 50]
    assert folded["text"].to_pylist() == ["012!", *["012"] * 49]


@each_appending
def test_merging_in_halves_equals_merging_one_by_one(merger: CustomMerger) -> None:
    changes = [Change("x" if n % 7 else f"k{n}", text=f"{n} ") for n in range(300)]
    folded = custom_record_merger(merger).fold(table_of(changes))
    assert seen(folded) == outcome([], changes)


def test_key_with_many_changes_needs_few_calls() -> None:
    merger = Counting()
    custom_record_merger(merger).fold(table_of([Change("x")] * 1000))
    assert merger.calls == [500, 250, 125, 62, 31, 16, 8, 4, 2, 1]


@pytest.mark.parametrize(
    "delete", [ChangeKind.COMMIT_TIME_DELETE, ChangeKind.DELETE, ChangeKind.FLAGGED_DELETE]
)
def test_deletes_of_a_key_are_merged_in_sequence(delete: ChangeKind) -> None:
    merger = Counting()
    changes = [Change("x", text=str(n % 10)) for n in range(64)]
    changes[32] = Change("x", kind=delete, text=None)
    folded = custom_record_merger(merger, ["ts"]).fold(table_of(changes))
    assert folded["text"].to_pylist() == ["".join(str(n % 10) for n in range(33, 64))]
    assert merger.calls == [31, 16, 8, 4, 2, 1, 1]


def test_keys_with_partial_rows_are_merged_one_by_one() -> None:
    parts = [Change("x", ts, text, written=(True, False)) for ts, text in ((2, "new"), (1, "old"))]
    whole = [Change("x", 1, other="d"), Change("x", 1, other="e")]
    table = table_of([*parts, *whole], in_part=True)
    own, hudi = custom_record_merger(ByEventTime(), ["ts"]), event_time_merger(["ts"])
    assert seen(own.fold(table)) == seen(hudi.fold(table)) == [("x", 2, "new", "d")]


@each_by_event_time
def test_unchanged_rows_keep_their_commit_time(merger: CustomMerger) -> None:
    base = base_of([Change("x", 2), Change("y", 1)])
    changes = table_of([Change("x", 1, "late", commit="2"), Change("y", 1, "new", commit="2")])
    merged = custom_record_merger(merger, ["ts"]).apply(base, changes)
    assert seen(merged.rows, RECORD_KEY, COMMIT_TIME) == [("x", "1"), ("y", "2")]
    assert merged.counts.updated == 1


def test_merger_can_be_pickled() -> None:
    adapted = custom_record_merger(ByEventTime(), ["ts"])
    again = pickle.loads(pickle.dumps(adapted))
    assert again.ordering_fields == ("ts",)
    table = table_of([Change("x", 2), Change("x", 1)])
    assert again.fold(table).equals(adapted.fold(table))


def test_partial_row_of_new_record_is_written_whole() -> None:
    part = [Change(key, 2, "new", written=(True, False)) for key in ("x", "y", "z")]
    current = base_of([Change("x"), Change("other")])

    def keys_of(keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table:
        return current.select(list(columns))

    merger = custom_record_merger(ByEventTime(), ["ts"])
    parts = [table_of([Change("y")], in_part=True), table_of(part, in_part=True)]
    *_, found = resolve_partial_rows(parts, merger, keys_of)
    is_open = MissingIfNotWritten()(found, "other").tolist()
    assert dict(zip(found[RECORD_KEY].to_pylist(), is_open, strict=True)) == {
        "x": True,
        "y": True,
        "z": False,
    }
