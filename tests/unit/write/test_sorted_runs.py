"""Runs of a bulk insert return the changes of each bucket in the order of the sort mode."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.write import shared_dictionaries, sorted_runs
from lakemark.write.partitioner import Bucket
from lakemark.write.sorted_runs import SortedRuns, SortMode, merge_sorted
from tests.depth import examples

Change = tuple[str, str, int]
KEYS = st.text(string.ascii_letters + "äß日😀", min_size=1, max_size=3)
CHANGES = st.tuples(KEYS, st.sampled_from(["", "a", "b/c"]), st.integers(0, 2))


def as_table(
    changes: list[Change], first: int, encoded: Sequence[str] = ()
) -> tuple[pa.Table, npt.NDArray[np.int32]]:
    """Return changes as a table, some of whose columns are dictionary-encoded."""
    keys, paths, numbers = zip(*changes, strict=True)
    arrival = range(first, first + len(changes))
    columns = {RECORD_KEY: keys, PARTITION_PATH: paths, "arrival": arrival, "bucket": numbers}
    texts = [f"text {number % 7}" if number % 5 else None for number in arrival]
    arrays = {name: pa.array(column) for name, column in columns.items()}
    arrays["text"] = pa.array(texts, pa.string())
    for name in encoded:
        arrays[name] = arrays[name].dictionary_encode()
    return pa.table(arrays), np.array(numbers, np.int32)


def found_in(runs: SortedRuns, bucket: Bucket) -> list[tuple[str, int]]:
    rows = [row for part in runs.read(bucket) for row in part.to_pylist()]
    for row in rows:
        assert row["text"] == (f"text {row['arrival'] % 7}" if row["arrival"] % 5 else None)
        assert (row[PARTITION_PATH], row["bucket"]) == (bucket.partition_path, bucket.number)
    return [(row[RECORD_KEY], row["arrival"]) for row in rows]


@pytest.mark.parametrize("sort", SortMode)
@settings(deadline=None, max_examples=examples(30))
@given(
    batches=st.lists(st.lists(CHANGES, min_size=1, max_size=12), max_size=9),
    run_bytes=st.sampled_from([1, 300, 1 << 20]),
    merged_runs=st.sampled_from([2, 3, 64]),
    batch_bytes=st.sampled_from([1, 60, 1 << 20]),
    piece_bytes=st.sampled_from([1, 200, 1 << 20]),
    dictionary_bytes=st.sampled_from([0, 60, 1 << 20]),
    encoded=st.lists(st.sets(st.sampled_from([RECORD_KEY, PARTITION_PATH, "text"])), min_size=9),
)
def test_changes_of_a_bucket_are_complete_and_in_order(
    sort: SortMode,
    batches: list[list[Change]],
    run_bytes: int,
    merged_runs: int,
    batch_bytes: int,
    piece_bytes: int,
    dictionary_bytes: int,
    encoded: list[set[str]],
) -> None:
    expected: dict[Bucket, list[tuple[str, int]]] = {}
    with pytest.MonkeyPatch.context() as patch, SortedRuns(sort, run_bytes) as runs:
        patch.setattr(sorted_runs, "_MERGED_RUNS", merged_runs)
        patch.setattr(sorted_runs, "_BATCH_BYTES", batch_bytes)
        patch.setattr(sorted_runs, "_PIECE_BYTES", piece_bytes)
        patch.setattr(sorted_runs, "_STEP_BYTES", batch_bytes)
        patch.setattr(shared_dictionaries, "_MAX_BYTES", dictionary_bytes)
        arrived = 0
        for number, batch in enumerate(batches):
            runs.add(*as_table(batch, arrived, sorted(encoded[number])))
            for position, (key, path, of_bucket) in enumerate(batch, arrived):
                expected.setdefault(Bucket(path, of_bucket), []).append((key, position))
            arrived += len(batch)
        assert runs.finish() == sorted(expected)
        assert runs.num_rows == arrived
        for bucket, changes in expected.items():
            found = found_in(runs, bucket)
            if sort is SortMode.NONE:
                assert found == changes
            elif sort is SortMode.GLOBAL:
                by_key = sorted(changes, key=lambda change: (change[0].encode(), change[1]))
                assert found == by_key
            else:
                assert sorted(found, key=lambda change: change[1]) == changes
            assert found_in(runs, bucket) == found, "a second attempt reads the same"


def test_merge_holds_few_rows_of_each_stream() -> None:
    read = 0

    def numbers(first: int) -> Iterator[pa.Table]:
        nonlocal read
        for start in range(first, 10_000, 100):
            read += 1
            keys = [f"{number:06d}" for number in range(start, start + 100, 2)]
            yield pa.table({RECORD_KEY: keys})

    merged = merge_sorted([numbers(0), numbers(1)], held_bytes=1)
    seen = [key.as_py() for key in next(merged).column(RECORD_KEY)]
    assert seen == sorted(seen)
    assert read <= 4
    rest = [key.as_py() for part in merged for key in part.column(RECORD_KEY)]
    assert seen + rest == [f"{number:06d}" for number in range(10_000)]


def test_spilled_runs_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    with SortedRuns(SortMode.GLOBAL, 1) as runs:
        for number in range(3):
            runs.add(*as_table([("k", "", 0)], number))
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


VALUES = st.tuples(st.none() | st.integers(-3, 3), st.none() | KEYS)


@settings(deadline=None, max_examples=examples(30))
@given(
    batches=st.lists(st.lists(VALUES, min_size=1, max_size=12), min_size=1, max_size=9),
    run_bytes=st.sampled_from([1, 300, 1 << 20]),
    batch_bytes=st.sampled_from([1, 60, 1 << 20]),
    piece_bytes=st.sampled_from([1, 200, 1 << 20]),
)
def test_rows_are_sorted_by_several_columns_with_nulls_first(
    batches: list[list[tuple[int | None, str | None]]],
    run_bytes: int,
    batch_bytes: int,
    piece_bytes: int,
) -> None:
    with (
        pytest.MonkeyPatch.context() as patch,
        SortedRuns(SortMode.GLOBAL, run_bytes, ["n", "text"]) as runs,
    ):
        patch.setattr(sorted_runs, "_MERGED_RUNS", 2)
        patch.setattr(sorted_runs, "_BATCH_BYTES", batch_bytes)
        patch.setattr(sorted_runs, "_PIECE_BYTES", piece_bytes)
        patch.setattr(sorted_runs, "_STEP_BYTES", batch_bytes)
        for batch in batches:
            numbers, texts = zip(*batch, strict=True)
            columns = [pa.array(numbers, pa.int64()), pa.array(texts, pa.string())]
            paths = pa.repeat(pa.scalar("p"), len(batch))
            rows = pa.table([paths, *columns], [PARTITION_PATH, "n", "text"])
            runs.add(rows, np.zeros(len(batch), np.int32))
        runs.finish()
        read = pa.concat_tables(runs.read(Bucket("p", 0))).select(["n", "text"])
    found = [tuple(row.values()) for row in read.to_pylist()]
    rows_of_all = [row for batch in batches for row in batch]
    expected = sorted(rows_of_all, key=lambda row: [(v is not None, v) for v in row])
    assert found == expected


@pytest.mark.parametrize("sort", [SortMode.NONE, SortMode.GLOBAL])
def test_rows_do_not_grow_in_memory_when_a_dictionary_is_given_up(sort: SortMode) -> None:
    few, many = ([f"{n:01000d}" for n in range(count)] for count in (50, 500))
    before = pa.total_allocated_bytes()
    with SortedRuns(sort, partition_path="") as runs:
        for texts, count in ((few, 40_000), (many, 500)):
            encoded = pa.array(texts).dictionary_encode()
            rows = {
                RECORD_KEY: [str(n) for n in range(count)],
                "text": encoded.take(pa.array(np.arange(count) % len(texts))),
            }
            runs.add(pa.table(rows), np.zeros(count, np.int32))
        (bucket,) = runs.finish()
        assert pa.total_allocated_bytes() - before < 10 << 20, "plain texts have 40 MB"
        found = pa.concat_tables(runs.read(bucket))
    assert sorted(found.column("text").to_pylist()) == sorted([*few * 800, *many])
