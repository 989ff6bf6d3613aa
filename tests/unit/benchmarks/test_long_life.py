"""The figures of a table's long life: requests, times, sizes, and which tables are compared."""

from __future__ import annotations

from pathlib import Path

from benchmarks import tables
from benchmarks.long_life_figures import (
    Checkpoint,
    Cost,
    Holding,
    Meter,
    StepFigures,
    Window,
    as_lines,
    growth,
    report,
)
from lakemark.storage import StorageLocation, open_storage
from tests.storages import CountingStorage


def test_a_step_is_measured_with_its_own_requests_alone() -> None:
    storage = CountingStorage(open_storage(StorageLocation("memory://life/meter")))
    storage.put("before", b"")

    def step() -> str:
        storage.list_folder("data")
        storage.list_folder(".hoodie/timeline")
        storage.put("x", b"y")
        return "given"

    given, cost = Meter(storage).measure(step)
    assert given == "given"
    assert (cost.requests, cost.listings) == (3, 1)
    assert cost.wall_s >= 0 and cost.cpu_s >= 0


def test_the_median_leaves_out_what_comes_now_and_then_and_the_mean_does_not() -> None:
    costs = [Cost(1.0, 0.5, 10), Cost(1.0, 0.5, 10), Cost(7.0, 3.5, 40, listings=2)]
    figures = StepFigures.of(costs)
    assert (figures.wall_s, figures.mean_wall_s) == (1.0, 3.0)
    assert (figures.cpu_s, figures.mean_cpu_s) == (0.5, 1.5)
    assert (figures.requests, figures.listings) == (20, 2)


def test_a_table_is_compared_with_the_one_that_was_measured_in_turn_with_it() -> None:
    checkpoint = Checkpoint(
        300, _window(1.5).figures(), _window(1.0).figures(), {".hoodie": Holding(3, 1 << 20)}, 0
    )
    assert growth(checkpoint)["commit"]["wall_s"] == 1.5
    assert growth(checkpoint)["commit"]["requests"] == 1.0
    assert "1.50x" in as_lines(checkpoint)[1]
    assert report([checkpoint], {"rows": 1})["growth"] == [growth(checkpoint)]


def test_holdings_pass_over_folders_that_are_counted_apart(tmp_path: Path) -> None:
    for name in ("a", "b/c", "metadata/d", "metadata/e/f"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"123")
    assert Holding.of(tmp_path, without=["metadata"]) == Holding(2, 6)
    assert Holding.of(tmp_path) == Holding(4, 12)


def test_changes_of_a_delta_name_each_file_group_once() -> None:
    layout = tables.Layout(rows=40, partitions=2, buckets=2)
    changed = tables.changes(layout, tables.Delta(1, tables.every_row))
    assert len({bucket for bucket, _ in changed}) == len(changed) == 4
    assert sum(rows.num_rows for _, parts in changed for rows in parts) == 40


def _window(cost_s: float) -> Window:
    window = Window()
    window.note("commit", Cost(cost_s, cost_s, 10))
    return window
