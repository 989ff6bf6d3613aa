"""Columnar partial updates give the same rows as Apache Hudi's rules applied record by record."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.merge_settings import MergeSettings, PartialUpdateMode, Payload
from lakemark.config.table_properties import MergeMode
from lakemark.merge.merge_stream import merge_streams
from lakemark.merge.record_merger import RecordMerger, commit_time_merger, event_time_merger
from lakemark.merge.table_merger import table_merger
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import COMMIT_TIME, RECORD_KEY
from lakemark.model.written_columns import pack
from tests.depth import examples
from tests.merging.rules import (
    UNAVAILABLE,
    Record,
    Rule,
    Value,
    by_commit_time,
    by_event_time,
    by_payload,
    folded,
    is_null,
    is_unavailable,
    is_unwritten,
)

FLAGGED = ChangeKind.FLAGGED_DELETE
COLUMNS = (COMMIT_TIME, "a", "b")
ALL_COLUMNS = frozenset(COLUMNS)


def merger_of(
    mode: MergeMode, partial: PartialUpdateMode | None = None, payload: Payload | None = None
) -> RecordMerger:
    return table_merger(
        MergeSettings(
            mode=mode,
            ordering_fields=("ts",),
            partial_update=partial,
            unavailable_value=UNAVAILABLE,
            payload=payload,
        )
    )


EVENT, COMMIT = MergeMode.EVENT_TIME, MergeMode.COMMIT_TIME
DEFAULTS, TEXT = PartialUpdateMode.IGNORE_DEFAULTS, PartialUpdateMode.FILL_UNAVAILABLE
CASES: dict[str, tuple[RecordMerger, Rule]] = {
    "event time, defaults": (
        merger_of(EVENT, DEFAULTS),
        by_event_time(is_null, late_fills=True, blocks_win=False),
    ),
    "event time, unavailable": (
        merger_of(EVENT, TEXT),
        by_event_time(is_unavailable, late_fills=True, blocks_win=False),
    ),
    "commit time, defaults": (merger_of(COMMIT, DEFAULTS), by_commit_time(is_null)),
    "payload overwrites non-defaults": (
        merger_of(COMMIT, DEFAULTS, Payload.OVERWRITE_NON_DEFAULTS),
        by_payload(is_null, is_ordered=False),
    ),
    "payload updates in part": (
        merger_of(EVENT, DEFAULTS, Payload.PARTIAL_UPDATE),
        by_payload(is_null, is_ordered=True),
    ),
    "payload of Debezium": (
        merger_of(EVENT, TEXT, Payload.POSTGRES_DEBEZIUM),
        by_event_time(is_unavailable, late_fills=False, blocks_win=True),
    ),
    "event time, written in part": (
        event_time_merger(["ts"]),
        by_event_time(is_unwritten, late_fills=True, blocks_win=False),
    ),
    "commit time, written in part": (commit_time_merger(), by_commit_time(is_unwritten)),
}
each_case = pytest.mark.parametrize(("merger", "rule"), CASES.values(), ids=CASES)


@st.composite
def records(draw: st.DrawFn, *, in_part: bool, kinds: Sequence[ChangeKind]) -> list[Record]:
    value = st.sampled_from([None, UNAVAILABLE, "1", "2", "3"])
    # Every row of a file has a commit time.
    times = st.sampled_from(["1", "2", "3"])
    values = st.fixed_dictionaries({c: times if c == COMMIT_TIME else value for c in COLUMNS})
    some = st.frozensets(st.sampled_from(COLUMNS)).map(lambda names: names | {COMMIT_TIME})
    written = some if in_part else st.just(ALL_COLUMNS)
    one = st.builds(
        Record,
        st.sampled_from("xy"),
        st.integers(0, 3),
        st.sampled_from(kinds),
        values,
        written,
    )
    return [_blanked(record) for record in draw(st.lists(one, max_size=9))]


def _blanked(record: Record) -> Record:
    """Drop the values of a record of a delete block, and of columns that were not written."""
    if record.kind in (ChangeKind.DELETE, ChangeKind.COMMIT_TIME_DELETE):
        return replace(record, values=dict.fromkeys(COLUMNS), written=ALL_COLUMNS)
    values = {c: None if is_unwritten(record, c) else v for c, v in record.values.items()}
    return replace(record, values=values)


def table_of(rows: Sequence[Record], *, in_part: bool) -> pa.Table:
    columns = {
        COMMIT_TIME: pa.array([r.values[COMMIT_TIME] for r in rows], pa.string()),
        RECORD_KEY: pa.array([r.key for r in rows], pa.string()),
        "ts": pa.array([r.ts for r in rows], pa.int32()),
        **{c: pa.array([r.values[c] for r in rows], pa.string()) for c in COLUMNS[1:]},
    }
    table = pa.table(columns)
    kinds = pa.array([r.kind for r in rows], pa.int8())
    changes = table.append_column(CHANGE_KIND_FIELD, kinds)
    if not in_part:
        return changes
    bits = [
        np.packbits(
            [not is_unwritten(r, c) or c in (RECORD_KEY, "ts") for c in table.column_names],
            bitorder="little",
        ).tobytes()
        for r in rows
    ]
    return changes.append_column(WRITTEN_COLUMNS, pa.array(bits, pa.binary(1)))


def seen(rows: Sequence[Record]) -> list[tuple[object, ...]]:
    return sorted(
        ((r.key, r.ts, *(r.values[c] for c in COLUMNS)) for r in rows if not r.is_delete), key=str
    )


def seen_in(rows: pa.Table) -> list[tuple[object, ...]]:
    names = (RECORD_KEY, "ts", *COLUMNS)
    return sorted((tuple(row[name] for name in names) for row in rows.to_pylist()), key=str)


@each_case
@settings(deadline=None, max_examples=examples(50))
@given(data=st.data())
def test_fold_and_apply_equal_the_record_by_record_model(
    merger: RecordMerger, rule: Rule, data: st.DataObject
) -> None:
    in_part = merger.partial_update is None
    changes = data.draw(records(in_part=in_part, kinds=list(ChangeKind)))
    base = data.draw(records(in_part=False, kinds=[ChangeKind.UPSERT]))
    base = list({row.key: row for row in base}.values())
    expected = folded(rule, changes)
    outcome = {row.key: row for row in base}
    for key, change in expected.items():
        outcome[key] = rule(outcome[key], change) if key in outcome else change

    table = table_of(changes, in_part=in_part)
    found = merger.fold(table)
    assert found.schema == table.schema
    assert found[RECORD_KEY].to_pylist() == list(expected)
    upserts = found.filter(pa.array(np.asarray(found[CHANGE_KIND]) == ChangeKind.UPSERT))
    assert seen_in(upserts) == seen(list(expected.values()))

    cut = data.draw(st.integers(0, len(changes)))
    again = merger.fold(pa.concat_tables([merger.fold(table.slice(0, cut)), table.slice(cut)]))
    assert again.select([RECORD_KEY, CHANGE_KIND]) == found.select([RECORD_KEY, CHANGE_KIND])

    older = table_of(base, in_part=False).drop_columns([CHANGE_KIND])
    merged = merger.apply(older, again)
    assert seen_in(merged.rows) == seen(list(outcome.values()))


#: The cases, and whether rows are partial; without partial rows, also mergers that fill nothing.
EXHAUSTED = {name: (*case, case[0].partial_update is None) for name, case in CASES.items()}
EXHAUSTED |= {
    name.removesuffix(", written in part"): (merger, rule, False)
    for name, (merger, rule) in CASES.items()
    if merger.partial_update is None
}
each_exhausted = pytest.mark.parametrize(
    ("merger", "rule", "in_part"), EXHAUSTED.values(), ids=EXHAUSTED
)


def every_sequence(length: int, *, in_part: bool) -> list[Record]:
    """List all sequences of this length whose changes differ for a merger.

    Each sequence has its own key.

    Ordering values are Hudi's default and two others; each column is missing in some changes.
    """
    missing_values: list[Value] = [None, UNAVAILABLE]
    kinds = [
        (kind, value)
        for kind in ChangeKind
        for value in ("value", *(missing_values if kind in (ChangeKind.UPSERT, FLAGGED) else []))
    ]
    changes = [(kind, value, ts) for kind, value in kinds for ts in range(3)]
    sequences = enumerate(product(changes, repeat=length))
    return [
        _blanked(
            Record(
                f"{key}",
                ts,
                kind,
                {COMMIT_TIME: f"{at}", "a": f"{at}" if value == "value" else value, "b": f"{at}"},
                frozenset({COMMIT_TIME, "b"}) if in_part and value is None else ALL_COLUMNS,
            )
        )
        for key, sequence in sequences
        for at, (kind, value, ts) in enumerate(sequence)
    ]


@each_exhausted
def test_fold_of_every_sequence_of_three_changes_equals_the_model(
    merger: RecordMerger, rule: Rule, in_part: bool
) -> None:
    changes = every_sequence(3, in_part=in_part)
    expected = folded(rule, changes)

    found = merger.fold(table_of(changes, in_part=in_part))

    assert found[CHANGE_KIND].to_pylist() == [one.kind for one in expected.values()]
    upserts = found.filter(pa.array(np.asarray(found[CHANGE_KIND]) == ChangeKind.UPSERT))
    assert seen_in(upserts) == seen(list(expected.values()))


@each_exhausted
def test_merge_of_every_change_with_every_stored_row_equals_the_model(
    merger: RecordMerger, rule: Rule, in_part: bool
) -> None:
    pairs = every_sequence(2, in_part=in_part)
    met = [
        (base, change)
        for base, change in zip(pairs[::2], pairs[1::2], strict=True)
        if not base.is_delete and base.written == ALL_COLUMNS
    ]
    expected = [rule(base, change) for base, change in met]
    stored = table_of([base for base, _ in met], in_part=False).drop_columns([CHANGE_KIND])

    merged = merger.apply(stored, table_of([change for _, change in met], in_part=in_part))

    assert seen_in(merged.rows) == seen(expected)


@each_case
@settings(deadline=None, max_examples=examples(3))
@given(data=st.data())
def test_missing_columns_are_filled_alike_when_changes_spill_to_disk(
    merger: RecordMerger, rule: Rule, data: st.DataObject
) -> None:
    in_part = merger.partial_update is None
    table = table_of(data.draw(records(in_part=in_part, kinds=list(ChangeKind))), in_part=in_part)
    base = data.draw(records(in_part=False, kinds=[ChangeKind.UPSERT]))
    rows = {row.key: row for row in base}.values()
    older = table_of(list(rows), in_part=False).drop_columns([CHANGE_KIND])
    in_memory = pa.concat_tables([older.slice(0, 0), *merge_streams([older], [table], merger)])
    on_disk = pa.concat_tables([older.slice(0, 0), *merge_streams([older], [table], merger, 1)])
    assert seen_in(on_disk) == seen_in(in_memory)


@pytest.mark.parametrize("merger", [event_time_merger(["ts"]), commit_time_merger()], ids=repr)
def test_each_of_many_columns_is_taken_from_the_row_that_has_it(merger: RecordMerger) -> None:
    """Each of twenty columns is filled correctly; their flags need three bytes."""
    values = [f"c{number}" for number in range(18)]
    names = [RECORD_KEY, "ts", *values]

    def changes_of(*rows: tuple[int, Sequence[str]]) -> pa.Table:
        columns = {RECORD_KEY: pa.array(["x"] * len(rows)), "ts": pa.array([ts for ts, _ in rows])}
        for name in values:
            own_values = [ts if name in own else None for ts, own in rows]
            columns[name] = pa.array(own_values, pa.int64())
        bits = [[name in {RECORD_KEY, "ts", *own} for name in names] for _, own in rows]
        kinds = pa.array([ChangeKind.UPSERT] * len(rows), pa.int8())
        table = pa.table(columns).append_column(CHANGE_KIND_FIELD, kinds)
        return table.append_column(WRITTEN_COLUMNS, pack(np.array(bits)))

    # A slice, because flags are read from the buffer of a column, which has the row before it, too.
    changes = changes_of((1, values), (2, values[2:9]), (3, values[9:])).slice(1)
    base = changes_of((1, values)).select(names)
    expected = {RECORD_KEY: "x", "ts": 3}
    expected |= {name: 1 + (n >= 2) + (n >= 9) for n, name in enumerate(values)}

    folded = merger.fold(changes)

    partial = {**expected, **dict.fromkeys(values[:2])}
    assert folded.select(names).to_pylist() == [partial]
    assert merger.apply(base, folded).rows.to_pylist() == [expected]


def test_partial_update_merger_can_be_pickled() -> None:
    for merger, _ in CASES.values():
        assert pickle.loads(pickle.dumps(merger)) == merger


def test_late_record_that_fills_a_column_counts_as_an_update() -> None:
    merger = merger_of(EVENT, DEFAULTS)
    older = Record("x", 3, values={COMMIT_TIME: "1", "a": None, "b": "1"})
    newer = Record("x", 2, values={COMMIT_TIME: "2", "a": "2", "b": "2"})
    base = table_of([older], in_part=False).drop_columns([CHANGE_KIND])
    merged = merger.apply(base, table_of([newer], in_part=False))
    assert seen_in(merged.rows) == [("x", 3, "1", "2", "1")]
    assert (merged.counts.updated, merged.counts.inserted) == (1, 0)


NOT_NULL_DEFAULTS = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": RECORD_KEY, "type": "string"},
        {"name": "flag", "type": "boolean", "default": False},
        {"name": "small", "type": "int", "default": 7},
        {"name": "large", "type": "long", "default": 1000},
        {"name": "text", "type": "string", "default": "none"},
        {"name": "open", "type": ["string", "null"], "default": "none"},
    ],
}


@pytest.mark.parametrize(
    ("payload", "filled"),
    [
        (None, ["flag", "small"]),
        (Payload.OVERWRITE_NON_DEFAULTS, ["flag", "small", "large", "text"]),
    ],
)
def test_defaults_other_than_null_are_compared_as_in_java(
    payload: Payload | None, filled: list[str]
) -> None:
    """A value that equals the default is filled as in Java.

    Tables of version 9 compare by reference, so that only some equal values count as the default.
    The payload of older tables compares by value.
    """
    names = ["flag", "small", "large", "text", "open"]
    older = [True, 1, 1, "1", "1"]
    defaults = [False, 7, 1000, "none", "none"]
    base = pa.table({RECORD_KEY: ["x"]} | {n: [v] for n, v in zip(names, older, strict=True)})
    newer = pa.table({RECORD_KEY: ["x"]} | {n: [v] for n, v in zip(names, defaults, strict=True)})
    kinds = pa.array([ChangeKind.UPSERT], pa.int8())
    table_settings = MergeSettings(
        mode=COMMIT, ordering_fields=(), partial_update=DEFAULTS, payload=payload
    )
    merger = table_merger(table_settings, NOT_NULL_DEFAULTS)
    merged = merger.apply(base, newer.append_column(CHANGE_KIND_FIELD, kinds)).rows.to_pylist()[0]
    assert [n for n, v in zip(names, older, strict=True) if merged[n] == v] == filled


@pytest.mark.parametrize(
    ("older", "newer", "time"),
    [
        (Record("x", 1, values={"a": "1", "b": "1"}), Record("x", 2, values={"a": "2"}), None),
        (Record("x", 2, values={"a": None, "b": "1"}), Record("x", 1, values={"a": "2"}), None),
        (Record("x", 2, values={"a": "1", "b": "1"}), Record("x", 1, values={"a": "2"}), "1"),
    ],
    ids=["led", "filled", "not touched"],
)
def test_filled_row_has_no_commit_time_yet(older: Record, newer: Record, time: Value) -> None:
    """The writer sets the new commit time.

    With the old one, an incremental query would miss the row.
    """
    stored = replace(older, values={COMMIT_TIME: "1", **older.values})
    arriving = replace(newer, values={COMMIT_TIME: None, "b": None, **newer.values})
    base = table_of([stored], in_part=False).drop_columns([CHANGE_KIND])
    merged = merger_of(EVENT, DEFAULTS).apply(base, table_of([arriving], in_part=False))
    assert merged.rows[COMMIT_TIME].to_pylist() == [time]
