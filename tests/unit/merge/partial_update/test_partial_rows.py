from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.table_properties import MergeMode
from lakemark.merge.partial_update.partial_rows import resolve_partial_rows
from lakemark.merge.record_merger import RecordMerger
from lakemark.merge.table_merger import table_merger
from lakemark.model.changes import CHANGE_COLUMNS, CHANGE_KIND, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.model.written_columns import has_partial_rows, is_written, own_columns
from tests.depth import examples
from tests.merging.histories import changes, histories, record
from tests.merging.modes import MODELLED, MODES, VALUES, Mode
from tests.merging.rules import Record, Records, folded

IN_PART = {name: mode for name, mode in MODES.items() if mode.is_in_part}
each_mode = pytest.mark.parametrize("mode", IN_PART.values(), ids=IN_PART)


def _merger(mode: Mode) -> RecordMerger:
    ordering = tuple(mode.ordering) if mode.merge_mode is MergeMode.EVENT_TIME else ()
    return table_merger(MergeSettings(mode=mode.merge_mode, ordering_fields=ordering))


class Slice:
    """Returns current rows, and counts the requests for them."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.requests = 0

    def __call__(self, keys: pa.ChunkedArray, columns: Sequence[str]) -> pa.Table:
        self.requests += 1
        found = self.rows.filter(pc.is_in(self.rows.column(RECORD_KEY), value_set=keys))
        return found.select(columns)


def _slice(mode: Mode, rows: Sequence[Record]) -> Slice:
    return Slice(changes(mode, rows).drop_columns(CHANGE_COLUMNS))


def _whole(records: Records) -> Records:
    return {k: r if r.is_delete else replace(r, written=None) for k, r in records.items()}


@each_mode
@settings(deadline=None, max_examples=examples(50))
@given(data=st.data())
def test_resolved_tables_merge_like_the_record_by_record_model(
    mode: Mode, data: st.DataObject
) -> None:
    # A fold drops an unconditional delete, so its result is merged with the base row again.
    steps = [
        [record for record in step if not record.is_unconditional]
        for step in data.draw(histories(mode))
        if step is not None
    ]
    base = {r.key: replace(r, written=None) for r in (steps[0] if steps else ()) if not r.is_delete}
    completes_rows, largest = data.draw(st.booleans()), data.draw(st.sampled_from([None, 0, 1]))
    _assert_as_record_by_record(mode, base, steps, completes_rows=completes_rows, largest=largest)


def test_late_row_after_delete_in_earlier_table_fills_nothing() -> None:
    mode = IN_PART["event time, in part"]
    delete = record("a", 3, ChangeKind.DELETE, (None, None))
    late = record("a", 2, ChangeKind.UPSERT, ("late", None), frozenset(["name"]))
    newer = record("a", 4, ChangeKind.UPSERT, (None, "2"), frozenset([VALUES[-1]]))
    _assert_as_record_by_record(mode, {"a": WHOLE}, [[delete], [late, newer]])
    _assert_as_record_by_record(mode, {}, [[delete], [late, newer]])


def _assert_as_record_by_record(
    mode: Mode,
    base: Records,
    steps: Sequence[Sequence[Record]],
    *,
    completes_rows: bool = False,
    largest: int | None = None,
) -> None:
    model: Records = dict(base)
    for step in steps:
        model = _whole(folded(mode.rule, [*model.values(), *step]))
    current, merger = _slice(mode, [*base.values()]), _merger(mode)
    arriving = [changes(mode, step) for step in steps]
    parts = [
        *resolve_partial_rows(
            arriving, merger, current, completes_rows=completes_rows, max_column_sets=largest
        )
    ]
    assert not (completes_rows and any(map(has_partial_rows, parts)))
    assert [part.schema for part in parts] == [changes(mode, step).schema for step in steps]

    together = merger.fold(pa.concat_tables([changes(mode, []), *parts]))
    merged = merger.apply(current.rows, together).rows
    found = {row["id"]: [row[name] for name in VALUES] for row in merged.to_pylist()}
    alive = [record for record in model.values() if not record.is_delete]
    assert found == {r.key: [r.values[name] for name in VALUES] for r in alive}


@each_mode
@settings(deadline=None, max_examples=examples(30))
@given(data=st.data())
def test_rows_stay_partial_only_if_their_record_exists(mode: Mode, data: st.DataObject) -> None:
    steps = [step for step in data.draw(histories(mode)) if step is not None]
    first = (steps[0] if steps else ()) if data.draw(st.booleans()) else ()
    base = {one.key: replace(one, written=None) for one in first if not one.is_delete}
    _assert_partial_rows_exist(mode, steps, [*base.values()])


WHOLE = record("a", 2, ChangeKind.UPSERT, ("1", "2"))
NAME_ONLY = record("a", 2, ChangeKind.UPSERT, ("3", None), frozenset(["name"]))


@each_mode
def test_partial_row_of_existing_record_stays_partial(mode: Mode) -> None:
    assert _assert_partial_rows_exist(mode, [[WHOLE], [NAME_ONLY]]) == ["a"]
    assert _assert_partial_rows_exist(mode, [[NAME_ONLY]], [WHOLE]) == ["a"]
    assert _assert_partial_rows_exist(mode, [[NAME_ONLY]]) == []


def test_record_exists_if_a_fold_drops_its_delete() -> None:
    """The record still exists, because the fold keeps only its last delete, which is too old."""
    mode = IN_PART["event time, in part"]
    deletes = [record("a", ts, ChangeKind.FLAGGED_DELETE, (None, None)) for ts in (0, 1)]
    assert _assert_partial_rows_exist(mode, [[WHOLE], deletes, [NAME_ONLY]]) == ["a"]
    assert _assert_partial_rows_exist(mode, [deletes, [NAME_ONLY]], [WHOLE]) == ["a"]


def _assert_partial_rows_exist(
    mode: Mode, steps: Sequence[Sequence[Record]], base: Sequence[Record] = ()
) -> list[str]:
    """Check that each partial row has an existing record, and return the keys of partial rows."""
    current, merger = _slice(mode, base), _merger(mode)
    arriving = [changes(mode, step) for step in steps]
    alive: Records = {record.key: record for record in base}
    in_part: list[str] = []
    for part, step in zip(resolve_partial_rows(arriving, merger, current), steps, strict=True):
        folded_part = merger.fold(part)
        width = len(own_columns(part))
        for row in folded_part.to_pylist() if has_partial_rows(part) else ():
            if not all(is_written(row[WRITTEN_COLUMNS], width)):
                assert row[CHANGE_KIND] == ChangeKind.UPSERT
                assert row["id"] in alive and not alive[row["id"]].is_delete
                in_part.append(row["id"])
        # The result is written, and then merged with the rows that it was resolved against.
        outcome = folded(mode.rule, [*alive.values(), *step])
        written = {key: one for key, one in outcome.items() if one is not alive.get(key)}
        alive = folded(mode.rule, [*alive.values(), *_whole(written).values()])
    return in_part


@settings(deadline=None, max_examples=examples(50))
@given(data=st.data(), largest=st.integers(0, 2))
def test_number_of_partial_column_sets_is_bounded(data: st.DataObject, largest: int) -> None:
    mode = IN_PART["event time, in part"]
    step = next((step for step in data.draw(histories(mode)) if step), ())
    values = dict.fromkeys(MODELLED, "0")
    current = _slice(mode, [Record(key, 1, values=values) for key in "abcdefgh"])
    (part,) = resolve_partial_rows(
        [changes(mode, step)], _merger(mode), current, max_column_sets=largest
    )
    width = len(own_columns(part))
    sets = part.column(WRITTEN_COLUMNS).unique().to_pylist()
    assert sum(not all(is_written(bits, width)) for bits in sets) <= largest


@each_mode
def test_only_the_last_change_to_each_key_is_kept_in_memory(mode: Mode) -> None:
    written = frozenset(["name"])

    def block(ts: int) -> pa.Table:
        values = {**dict.fromkeys(MODELLED), "name": f"{ts}" * 1000}
        keys = map(str, range(200))
        return changes(mode, [Record(k, ts, values=values, written=written) for k in keys])

    current, held = _slice(mode, []), []
    before = pa.total_allocated_bytes()
    blocks = (block(ts) for ts in range(1, 10))
    for _ in resolve_partial_rows(blocks, _merger(mode), current, completes_rows=True):
        held.append(pa.total_allocated_bytes() - before)
    assert held[-1] < 1.5 * held[2]


def test_whole_rows_pass_unchanged_without_reading_if_there_is_no_order() -> None:
    mode = IN_PART["commit time, in part"]
    values = dict.fromkeys(VALUES, "1")
    table = changes(mode, [Record("a", 1, values={**values, "_hoodie_commit_time": None})])
    current = _slice(mode, [])
    (part,) = resolve_partial_rows([table], _merger(mode), current)
    assert part is table
    assert current.requests == 0


def test_written_bits_of_many_columns_are_correct() -> None:
    names = [f"c{i}" for i in range(11)]
    written = np.arange(11) % 3 == 0
    bits = np.packbits(written, bitorder="little").tobytes()
    assert is_written(bits, len(names)) == written.tolist()
