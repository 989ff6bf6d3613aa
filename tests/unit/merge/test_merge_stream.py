from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lakemark.codec.java_hash import list_hash
from lakemark.merge.merge_stream import fold_stream, merge_streams, split_batches
from lakemark.merge.record_merger import commit_time_merger, event_time_merger
from lakemark.merge.spill import DIVISION_COUNT, SpilledDivisions, assign_divisions
from lakemark.model.changes import CHANGE_KIND_FIELD
from lakemark.model.meta_columns import RECORD_KEY

_MERGER = event_time_merger(["ts"])


def rows(start: int, count: int, ts: int) -> pa.Table:
    keys = pa.array([f"key-{number:06d}" for number in range(start, start + count)])
    return pa.table(
        {RECORD_KEY: keys, "ts": np.full(count, ts), "text": pa.repeat("x" * 80, count)}
    )


def changes(start: int, count: int, ts: int) -> pa.Table:
    table = rows(start, count, ts)
    return table.append_column(CHANGE_KIND_FIELD, pa.array(np.zeros(count, np.int8)))


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_large_file_group_spills_and_removes_its_files(scratch: Path) -> None:
    base = (rows(start, 1_000, ts=1) for start in range(0, 20_000, 1_000))
    newer = (changes(start, 1_000, ts=2) for start in range(10_000, 30_000, 1_000))
    stream = merge_streams(base, newer, _MERGER, memory_budget_bytes=100_000)
    first = next(stream)
    assert list(scratch.iterdir())
    found = pa.concat_tables([first, *stream])
    assert not list(scratch.iterdir())
    assert sorted(found[RECORD_KEY].to_pylist()) == rows(0, 30_000, 0)[RECORD_KEY].to_pylist()
    assert (stream.counts.inserted, stream.counts.updated) == (10_000, 10_000)


@pytest.mark.parametrize(("budget_bytes", "count"), [(1, 200), (50_000, 1_000), (400_000, 1_000)])
def test_later_change_wins_after_spilling(scratch: Path, budget_bytes: int, count: int) -> None:
    """The later change wins even if a small budget spills each key separately."""
    newer = [changes(0, count, ts) for ts in (3, 2, 1)]
    stream = fold_stream(newer, commit_time_merger(), memory_budget_bytes=budget_bytes)
    found = pa.concat_tables([*stream])
    assert found["ts"].to_pylist() == [1] * count


def test_closed_stream_removes_spilled_files(scratch: Path) -> None:
    stream = fold_stream([changes(0, 5_000, ts=1)], _MERGER, memory_budget_bytes=1_000)
    next(stream)
    assert list(scratch.iterdir())
    stream.close()
    assert not list(scratch.iterdir())


def test_error_removes_spilled_files(scratch: Path) -> None:
    def failing() -> Iterator[pa.Table]:
        yield changes(0, 5_000, ts=1)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        list(fold_stream(failing(), _MERGER, memory_budget_bytes=1_000))
    assert not list(scratch.iterdir())


def test_division_returns_all_rows_of_small_pieces(scratch: Path) -> None:
    pieces = [rows(start, 40, ts=start) for start in range(0, 4_000, 40)]
    division_of_row = assign_divisions(pa.concat_tables(pieces)[RECORD_KEY], level=0)
    with SpilledDivisions(level=0) as spilled:
        spilled.fill(pieces)
        for division in spilled.divisions:
            (found,) = spilled.read(division)
            assert found[RECORD_KEY].num_chunks == 1
            expected = pa.concat_tables(pieces).filter(pa.array(division_of_row == division))
            assert found.to_pylist() == expected.to_pylist()


def test_repeated_updates_of_few_keys_do_not_spill(scratch: Path) -> None:
    newer = (changes(0, 1_000, ts) for ts in range(100))
    stream = fold_stream(newer, _MERGER, memory_budget_bytes=400_000)
    first = next(stream)
    assert not list(scratch.iterdir())
    assert set(first["ts"].to_pylist()) == {99}


def test_base_rows_pass_unchanged_without_changes() -> None:
    assert list(merge_streams([rows(0, 5, 1)], [], _MERGER)) == [rows(0, 5, 1)]


def test_updated_rows_keep_their_place_unless_the_order_does_not_matter() -> None:
    newer = changes(3, 2, ts=2)
    ordered = pa.concat_tables(merge_streams([rows(0, 6, 1)], [newer], _MERGER))
    assert ordered["ts"].to_pylist() == [1, 1, 1, 2, 2, 1]
    assert ordered[RECORD_KEY] == rows(0, 6, 1)[RECORD_KEY]
    faster = pa.concat_tables(merge_streams([rows(0, 6, 1)], [newer], _MERGER, keeps_order=False))
    assert faster["ts"].to_pylist() == [1, 1, 1, 1, 2, 2]
    assert faster.sort_by(RECORD_KEY) == ordered


def test_batches_are_bounded_and_complete() -> None:
    table = rows(0, 10_000, 1)
    batches = list(split_batches(table, max_bytes=100_000))
    assert max(batch.nbytes for batch in batches) <= 100_000
    assert pa.concat_tables(batches) == table
    assert list(split_batches(table.slice(0, 0), 100)) == []


@pytest.mark.parametrize("level", range(5))
def test_keys_of_one_bucket_divide_evenly(level: int) -> None:
    keys = rows(0, 60_000, 0)[RECORD_KEY].combine_chunks()
    of_one_bucket = keys.filter(pa.array(list_hash([keys]) % 64 == 5))
    counts = np.bincount(assign_divisions(pa.chunked_array([of_one_bucket]), level))
    assert len(counts) == DIVISION_COUNT
    assert counts.max() < 4 * counts.mean()
