"""The figures of the read benchmark, and that a wrong result is never reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import read
from benchmarks.peers.read_contract import ReadAnswer, Reading, ReadQuery, ReadTask, Sums, timed
from benchmarks.read_figures import as_lines, by_query, speedups
from benchmarks.tables import Layout

OURS = Reading("snapshot", (3.0, 1.0, 2.0), (900, 500, 600), Sums(rows=300), slices=4)
THEIRS = Reading("snapshot", (9.0, 6.0), (100, 200), Sums(rows=300))
ALONE = Reading("merge", (2.0,), (7,), Sums(rows=10))
ANSWERS = {"lakemark": ReadAnswer((OURS, ALONE), 5 << 20), "hudi": ReadAnswer((THEIRS,), 9 << 20)}


def test_the_first_time_stands_apart_and_the_later_ones_give_the_median() -> None:
    figures = by_query(ANSWERS)
    ours = figures["snapshot"]["lakemark"]
    assert (ours.first_s, ours.steady_s, ours.rows_per_s) == (3.0, 1.5, 200)
    assert (ours.read_bytes, ours.peak_memory_bytes, ours.slices) == (500, 5 << 20, 4)
    assert figures["merge"]["lakemark"].steady_s == 2.0


def test_a_speedup_above_one_means_that_ours_is_faster() -> None:
    figures = by_query(ANSWERS)
    assert speedups(figures, "lakemark") == {"snapshot": {"hudi": 4.0}, "merge": {}}
    lines = as_lines(figures, "lakemark")
    assert [line.split()[:2] for line in lines[1:]] == [
        ["snapshot", "lakemark"],
        ["snapshot", "hudi"],
        ["merge", "lakemark"],
    ]
    assert lines[2].endswith("4.00x")


def test_tasks_and_answers_travel(tmp_path: Path) -> None:
    queries = (ReadQuery("a", "read_optimized", "x = 1"), ReadQuery("b", key="k"))
    task = ReadTask("/table", ("/table/1.parquet",), "/answer", "4g", 3, queries)
    assert ReadTask.from_json(task.to_json()) == task
    ANSWERS["lakemark"].write(tmp_path / "answer")
    assert ReadAnswer.read(tmp_path / "answer") == ANSWERS["lakemark"]


def test_an_engine_that_read_other_rows_is_refused() -> None:
    asked = [read.Asked(ReadQuery("snapshot"), Sums(rows=300))]
    read.check("hudi", ReadAnswer((THEIRS,), 0), asked)
    with pytest.raises(RuntimeError, match="hudi, snapshot"):
        read.check("hudi", ReadAnswer((OURS,), 0), [read.Asked(asked[0].query, Sums(rows=299))])


def test_conditions_select_a_partition_a_hundredth_and_a_row() -> None:
    asked = read.filters(Layout(rows=4_000, partitions=8, buckets=2))
    assert [each.sums.rows for each in asked] == [500, 40, 1]


def test_what_a_process_reads_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(300_000))

    def consume() -> None:
        file.read_bytes()

    seconds, read_bytes = timed("read", 2, consume, os.getpid())
    assert len(seconds) == 2
    assert all(300_000 <= each < 400_000 for each in read_bytes)
