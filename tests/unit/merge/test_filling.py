"""Partial updates by columns against the rules told record by record, as Apache's mergers go."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from table.config.merge_settings import MergeSettings, PartialUpdateMode, Payload
from table.config.table_properties import MergeMode
from table.merge.merge_stream import merge_streams
from table.merge.record_merger import RecordMerger, commit_time_merger, event_time_merger
from table.merge.table_merger import table_merger
from table.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from table.model.meta_columns import COMMIT_TIME, RECORD_KEY

Value: TypeAlias = str | None

COLUMNS = (COMMIT_TIME, "a", "b")
ALL_COLUMNS = frozenset(COLUMNS)
UNAVAILABLE = "?"


@dataclass(frozen=True)
class Record:
    key: str
    ts: int
    kind: ChangeKind = ChangeKind.UPSERT
    values: dict[str, Value] = field(default_factory=dict)
    written: frozenset[str] = ALL_COLUMNS

    @property
    def is_delete(self) -> bool:
        return self.kind is not ChangeKind.UPSERT

    @property
    def is_unconditional(self) -> bool:
        """The ordering column is an int, of which Hudi's default is 0."""
        return self.is_delete and (self.kind is ChangeKind.COMMIT_TIME_DELETE or self.ts == 0)


Merge: TypeAlias = Callable[[Record, Record], Record]
IsHole: TypeAlias = Callable[[Record, str], bool]


def is_null(record: Record, column: str) -> bool:
    return record.values[column] is None


def is_unavailable(record: Record, column: str) -> bool:
    return record.values[column] == UNAVAILABLE


def is_unwritten(record: Record, column: str) -> bool:
    return column not in record.written


def fill(high: Record, low: Record, is_hole: IsHole) -> Record:
    """``PartialUpdateHandler.partialMerge``."""
    if high.is_delete or low.is_delete:
        return high
    values = {c: (low if is_hole(high, c) else high).values[c] for c in COLUMNS}
    return replace(high, values=values, written=high.written | low.written)


def by_event_time(is_hole: IsHole, *, late_fills: bool, blocks_win: bool) -> Merge:
    def merge(older: Record, newer: Record) -> Record:
        if newer.is_unconditional or (blocks_win and newer.kind is ChangeKind.DELETE):
            return newer
        if older.is_unconditional or (blocks_win and older.kind is ChangeKind.DELETE):
            return older if newer.kind is ChangeKind.DELETE else newer
        if newer.ts >= older.ts:
            return fill(newer, older, is_hole)
        return fill(older, newer, is_hole) if late_fills else older

    return merge


def by_commit_time(is_hole: IsHole) -> Merge:
    return lambda older, newer: fill(newer, older, is_hole)


def by_payload(is_hole: IsHole, *, is_ordered: bool) -> Merge:
    """``HoodieAvroRecordMerger`` with a payload that fills."""

    def merge(older: Record, newer: Record) -> Record:
        if older.is_unconditional or newer.is_unconditional or older.kind is ChangeKind.DELETE:
            return newer
        if newer.is_delete:
            return newer
        if not is_ordered or newer.ts >= older.ts:
            return fill(newer, replace(older, kind=ChangeKind.UPSERT), is_hole)
        if older.is_delete:
            return older
        merged = fill(older, newer, is_hole)
        meta = newer if newer.values[COMMIT_TIME] is not None else older
        return replace(merged, values={**merged.values, COMMIT_TIME: meta.values[COMMIT_TIME]})

    return merge


def merger_of(
    mode: MergeMode, partial: PartialUpdateMode | None = None, payload: Payload | None = None
) -> RecordMerger:
    return table_merger(MergeSettings(mode, ("ts",), partial, UNAVAILABLE, payload))


EVENT, COMMIT = MergeMode.EVENT_TIME, MergeMode.COMMIT_TIME
DEFAULTS, TEXT = PartialUpdateMode.IGNORE_DEFAULTS, PartialUpdateMode.FILL_UNAVAILABLE
CASES: dict[str, tuple[RecordMerger, Merge]] = {
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
    values = st.fixed_dictionaries(
        {c: st.sampled_from([None, UNAVAILABLE, "1", "2", "3"]) for c in COLUMNS}
    )
    written = st.frozensets(st.sampled_from(COLUMNS)) if in_part else st.just(ALL_COLUMNS)
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
    """Records of delete blocks carry no columns; rows carry null where they were not written."""
    if record.kind in (ChangeKind.DELETE, ChangeKind.COMMIT_TIME_DELETE):
        return replace(record, values=dict.fromkeys(COLUMNS), written=ALL_COLUMNS)
    values = {c: v if c in record.written else None for c, v in record.values.items()}
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
            [c in r.written or c in (RECORD_KEY, "ts") for c in table.column_names],
            bitorder="little",
        ).tobytes()
        for r in rows
    ]
    return changes.append_column(WRITTEN_COLUMNS, pa.array(bits, pa.binary(1)))


def folded_by(rule: Merge, changes: Sequence[Record]) -> dict[str, Record]:
    folded: dict[str, Record] = {}
    for change in changes:
        older = folded.get(change.key)
        folded[change.key] = change if older is None else rule(older, change)
    return folded


def seen(rows: Sequence[Record]) -> list[tuple[object, ...]]:
    return sorted(
        ((r.key, r.ts, *(r.values[c] for c in COLUMNS)) for r in rows if not r.is_delete), key=str
    )


def seen_in(rows: pa.Table) -> list[tuple[object, ...]]:
    names = (RECORD_KEY, "ts", *COLUMNS)
    return sorted((tuple(row[name] for name in names) for row in rows.to_pylist()), key=str)


@each_case
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_folds_and_merges_as_record_by_record(
    merger: RecordMerger, rule: Merge, data: st.DataObject
) -> None:
    in_part = merger.filling is None
    changes = data.draw(records(in_part=in_part, kinds=list(ChangeKind)))
    base = data.draw(records(in_part=False, kinds=[ChangeKind.UPSERT]))
    base = list({row.key: row for row in base}.values())
    folded = folded_by(rule, changes)
    outcome = {row.key: row for row in base}
    for key, change in folded.items():
        outcome[key] = rule(outcome[key], change) if key in outcome else change

    table = table_of(changes, in_part=in_part)
    found = merger.fold(table)
    assert found.schema == table.schema
    assert found[RECORD_KEY].to_pylist() == list(folded)
    upserts = found.filter(pa.array(np.asarray(found[CHANGE_KIND]) == ChangeKind.UPSERT))
    assert seen_in(upserts) == seen(list(folded.values()))

    cut = data.draw(st.integers(0, len(changes)))
    again = merger.fold(pa.concat_tables([merger.fold(table.slice(0, cut)), table.slice(cut)]))
    assert again.select([RECORD_KEY, CHANGE_KIND]) == found.select([RECORD_KEY, CHANGE_KIND])

    older = table_of(base, in_part=False).drop_columns([CHANGE_KIND])
    merged = merger.apply(older, again)
    assert seen_in(merged.rows) == seen(list(outcome.values()))


@each_case
@settings(deadline=None, max_examples=3)
@given(data=st.data())
def test_what_goes_to_disk_is_filled_alike(
    merger: RecordMerger, rule: Merge, data: st.DataObject
) -> None:
    in_part = merger.filling is None
    table = table_of(data.draw(records(in_part=in_part, kinds=list(ChangeKind))), in_part=in_part)
    base = data.draw(records(in_part=False, kinds=[ChangeKind.UPSERT]))
    rows = {row.key: row for row in base}.values()
    older = table_of(list(rows), in_part=False).drop_columns([CHANGE_KIND])
    in_memory = pa.concat_tables([older.slice(0, 0), *merge_streams([older], [table], merger)])
    on_disk = pa.concat_tables([older.slice(0, 0), *merge_streams([older], [table], merger, 1)])
    assert seen_in(on_disk) == seen_in(in_memory)


def test_a_merger_that_fills_goes_to_a_worker() -> None:
    for merger, _ in CASES.values():
        assert pickle.loads(pickle.dumps(merger)) == merger


def test_a_late_record_fills_and_counts_as_an_update() -> None:
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
def test_other_defaults_than_null_count_as_java_finds_them_equal(
    payload: Payload | None, filled: list[str]
) -> None:
    """By reference in a table of version 9, by value in the payload of older ones."""
    names = ["flag", "small", "large", "text", "open"]
    older = [True, 1, 1, "1", "1"]
    defaults = [False, 7, 1000, "none", "none"]
    base = pa.table({RECORD_KEY: ["x"]} | {n: [v] for n, v in zip(names, older, strict=True)})
    newer = pa.table({RECORD_KEY: ["x"]} | {n: [v] for n, v in zip(names, defaults, strict=True)})
    kinds = pa.array([ChangeKind.UPSERT], pa.int8())
    table_settings = MergeSettings(COMMIT, (), DEFAULTS, payload=payload)
    merger = table_merger(table_settings, NOT_NULL_DEFAULTS)
    merged = merger.apply(base, newer.append_column(CHANGE_KIND_FIELD, kinds)).rows.to_pylist()[0]
    assert [n for n, v in zip(names, older, strict=True) if merged[n] == v] == filled
