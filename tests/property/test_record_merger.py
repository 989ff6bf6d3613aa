"""The columnar merge compared with the rules of the format, applied record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.merge.merge_stream import merge_streams
from lakemark.merge.record_merger import RecordMerger, commit_time_merger, event_time_merger
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from tests.depth import examples

Ordering: TypeAlias = tuple[int | None, ...]


@dataclass(frozen=True)
class Change:
    key: str
    ordering: Ordering
    kind: ChangeKind
    number: int


def merge_pair(older: Change, newer: Change, *, int_zero_is_default: bool) -> Change:
    """Section 7 of the format, for one record and the current result of its key."""
    if _is_unconditional(newer, int_zero_is_default):
        return newer
    if _is_unconditional(older, int_zero_is_default):
        return older if newer.kind is ChangeKind.DELETE else newer
    return newer if _comparable(newer) >= _comparable(older) else older


def fold_model(changes: Sequence[Change], *, int_zero_is_default: bool) -> dict[str, Change]:
    folded: dict[str, Change] = {}
    for change in changes:
        older = folded.get(change.key)
        folded[change.key] = (
            change
            if older is None
            else merge_pair(older, change, int_zero_is_default=int_zero_is_default)
        )
    return folded


def _is_unconditional(change: Change, int_zero_is_default: bool) -> bool:
    if change.kind is ChangeKind.UPSERT:
        return False
    defaults = (None, 0) if int_zero_is_default else (None,)
    has_default = len(change.ordering) == 1 and change.ordering[0] in defaults
    return change.kind is ChangeKind.COMMIT_TIME_DELETE or has_default


def _comparable(change: Change) -> list[tuple[bool, int]]:
    return [(value is not None, value or 0) for value in change.ordering]


_ORDERING_VALUES = st.none() | st.integers(-2, 3)


@st.composite
def sequences(draw: st.DrawFn, fields: int, kinds: Sequence[ChangeKind]) -> list[Change]:
    parts = st.tuples(
        st.sampled_from("abc"),
        st.tuples(*[_ORDERING_VALUES] * fields),
        st.sampled_from(kinds),
    )
    drawn = draw(st.lists(parts, max_size=14))
    return [Change(k, o, kind, number) for number, (k, o, kind) in enumerate(drawn)]


def table_of(changes: Sequence[Change], fields: int, kind: pa.DataType) -> pa.Table:
    orderings = {
        f"o{i}": pa.array([c.ordering[i] for c in changes], pa.int8()).cast(kind)
        for i in range(fields)
    }
    return pa.table(
        {
            RECORD_KEY: pa.array([c.key for c in changes], pa.string()),
            **orderings,
            "number": pa.array([c.number for c in changes], pa.int64()),
        }
    ).append_column(CHANGE_KIND_FIELD, pa.array([c.kind for c in changes], pa.int8()))


#: Types that have the values -2..3; a reader's zero of the first types is the integer 0.
_INT_TYPES = [pa.int32(), pa.int8()]
_OTHER_TYPES = [pa.int64(), pa.float64(), pa.decimal128(9, 2), pa.decimal128(30, 2)]
_LIVE = [ChangeKind.UPSERT]


@pytest.mark.parametrize("kind", [*_INT_TYPES, *_OTHER_TYPES], ids=str)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_fold_equals_the_sequential_fold(kind: pa.DataType, data: st.DataObject) -> None:
    fields = data.draw(st.integers(1, 2))
    changes = data.draw(sequences(fields, list(ChangeKind)))
    merger = event_time_merger([f"o{i}" for i in range(fields)])
    folded = merger.fold(table_of(changes, fields, kind))
    expected = fold_model(changes, int_zero_is_default=kind in _INT_TYPES)
    assert folded[RECORD_KEY].to_pylist() == list(expected)
    assert folded["number"].to_pylist() == [c.number for c in expected.values()]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.decimal128(30, 2)], ids=str)
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_apply_equals_the_pair_rule_with_the_base_row_as_older(
    kind: pa.DataType, data: st.DataObject
) -> None:
    int_zero = kind in _INT_TYPES
    merger = event_time_merger(["o0"])
    base = list(fold_model(data.draw(sequences(1, _LIVE)), int_zero_is_default=False).values())
    changes = fold_model(data.draw(sequences(1, list(ChangeKind))), int_zero_is_default=int_zero)
    merged = merger.apply(
        table_of(base, 1, kind).drop_columns([CHANGE_KIND]),
        table_of(list(changes.values()), 1, kind),
    )

    outcomes = [
        merge_pair(row, changes[row.key], int_zero_is_default=int_zero)
        if row.key in changes
        else row
        for row in base
    ]
    new = [change for key, change in changes.items() if key not in {row.key for row in base}]
    live = [c for c in [*outcomes, *new] if c.kind is ChangeKind.UPSERT]
    assert _keys_and_orderings(merged.rows) == [(c.key, c.ordering[0]) for c in live]
    updated = [c for row, c in zip(base, outcomes, strict=True) if c is not row]
    assert merged.counts.updated == len([c for c in updated if c.kind is ChangeKind.UPSERT])
    assert merged.counts.inserted == len([c for c in new if c.kind is ChangeKind.UPSERT])
    assert merged.counts.deleted == len([c for c in outcomes if c.kind is not ChangeKind.UPSERT])


@settings(deadline=None, max_examples=examples(60))
@given(changes=sequences(1, list(ChangeKind)), base=sequences(1, _LIVE))
def test_last_change_wins_by_commit_time(changes: list[Change], base: list[Change]) -> None:
    merger = commit_time_merger()
    last = {change.key: change for change in changes}
    folded = merger.fold(table_of(changes, 1, pa.int64()))
    assert folded[RECORD_KEY].to_pylist() == list(dict.fromkeys(c.key for c in changes))
    assert set(folded["number"].to_pylist()) == {change.number for change in last.values()}
    rows = list({row.key: row for row in base}.values())
    merged = merger.apply(table_of(rows, 1, pa.int64()).drop_columns([CHANGE_KIND]), folded)
    live = {**{row.key: row for row in rows}, **last}
    assert sorted(_keys_and_orderings(merged.rows), key=str) == sorted(
        ((c.key, c.ordering[0]) for c in live.values() if c.kind is ChangeKind.UPSERT), key=str
    )


@pytest.mark.parametrize("merger", [event_time_merger(["o0"]), commit_time_merger()], ids=repr)
@pytest.mark.parametrize("memory_budget_bytes", [1, 200, 1 << 20])
@pytest.mark.parametrize("keeps_order", [True, False])
@settings(deadline=None, max_examples=examples(25))
@given(changes=sequences(1, list(ChangeKind)), base=sequences(1, _LIVE), cut=st.integers(1, 5))
def test_result_does_not_depend_on_memory_budget_and_order(
    merger: RecordMerger,
    memory_budget_bytes: int,
    keeps_order: bool,
    changes: list[Change],
    base: list[Change],
    cut: int,
) -> None:
    newer = table_of(changes, 1, pa.int64())
    rows = list({row.key: row for row in base}.values())
    older = table_of(rows, 1, pa.int64()).drop_columns([CHANGE_KIND])
    expected = merger.apply(older, merger.fold(newer))

    stream = merge_streams(
        _pieces(older, cut),
        _pieces(newer, cut),
        merger,
        memory_budget_bytes,
        keeps_order=keeps_order,
    )
    batches = list(stream)

    assert all(batch.num_rows for batch in batches)
    assert stream.counts == expected.counts
    found = pa.concat_tables([older.slice(0, 0), *batches])
    assert sorted(found.to_pylist(), key=str) == sorted(expected.rows.to_pylist(), key=str)


def _pieces(table: pa.Table, rows: int) -> list[pa.Table]:
    return [table.slice(start, rows) for start in range(0, table.num_rows, rows)]


def _keys_and_orderings(rows: pa.Table) -> list[tuple[str, int | None]]:
    keys, orderings = rows[RECORD_KEY].to_pylist(), rows["o0"].to_pylist()
    return [(key, None if o is None else int(o)) for key, o in zip(keys, orderings, strict=True)]
