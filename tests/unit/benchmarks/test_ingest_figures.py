"""The figures of the ingest benchmark: what counts as time, medians, their spread, and ratios."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.ingest.figures import Figures, Spread, durations_s, ratios, spreads
from benchmarks.peers import lakemark_stream
from benchmarks.peers.contract import Answer, Batch

LARGE = Answer((Batch(100, 10.0, 15.0), Batch(100, 15.5, 17.0), Batch(100, 17.0, 18.0)), 20.0)
SMALL = Answer((Batch(1, 0.0, 4.0), Batch(1, 4.0, 5.0), Batch(1, 6.5, 7.0)), 7.0)

amounts = st.lists(st.floats(0.001, 1e9), min_size=1, max_size=7)


def run(rate: float, batch_s: float) -> Figures:
    return Figures(100, rate, rate, batch_s, batch_s)


def test_work_between_and_after_batches_counts_and_the_first_batch_is_separate() -> None:
    figures = Figures.of(LARGE)
    assert figures.records_per_s == 300 / 10
    assert figures.steady_records_per_s == 200 / 5
    assert figures.first_batch_s == 5
    assert durations_s(SMALL) == [4, 1, 2]
    assert Figures.of(SMALL).batch_s == 2


def test_one_batch_has_no_steady_state() -> None:
    figures = Figures.of(Answer.of([Batch(100, 0.0, 2.0)]))
    assert figures.steady_records_per_s is None
    assert "steady_records_per_s" not in spreads([figures])
    assert spreads([figures])["records_per_s"] == Spread(50, 50, 50)


@given(amounts)
def test_a_spread_is_the_median_between_the_extremes(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread == Spread(median(values), sorted(values)[0], sorted(values)[-1])
    assert spread.low <= spread.median <= spread.high


def test_spreads_are_those_of_each_figure() -> None:
    found = spreads([run(10, 4), run(30, 2), run(20, 9)])
    assert found["steady_records_per_s"] == Spread(20, 10, 30)
    assert found["batch_s"] == Spread(4, 2, 9)


def test_a_ratio_above_one_means_that_ours_is_faster() -> None:
    runs = {"ours": [run(100, 2)], "theirs": [run(20, 6)]}
    assert ratios(runs, "ours", "steady_records_per_s") == {"theirs": Spread(5, 5, 5)}
    assert ratios(runs, "ours", "batch_s") == {"theirs": Spread(3, 3, 3)}


def test_a_ratio_compares_runs_of_the_same_repeat() -> None:
    """A machine that is twice as slow in one repeat does not change the ratio."""
    runs = {
        "ours": [run(100, 1), run(50, 2), run(120, 1)],
        "theirs": [run(50, 2), run(25, 4), run(40, 3)],
    }
    assert ratios(runs, "ours", "records_per_s")["theirs"] == Spread(2, 2, 3)


def test_there_are_no_ratios_without_ours_or_without_a_steady_state() -> None:
    single = Figures(100, 1.0, None, 1.0, 1.0)
    assert ratios({"theirs": [run(1, 1)]}, "ours", "records_per_s") == {}
    assert ratios({"ours": [single], "theirs": [single]}, "ours", "steady_records_per_s") == {}


def test_lakemarks_batches_are_read_from_its_event_log() -> None:
    def event(name: str, second: int, **fields: object) -> dict[str, object]:
        return {"event": name, "time": f"2026-01-01T00:00:{second:02}+00:00", **fields}

    answer = lakemark_stream.answer(
        [
            event("RunStarted", 0),
            event("BatchPlanned", 1, batch_id=0),
            event("BatchWritten", 4, batch_id=0, records_read=7),
            event("BatchPlanned", 5, batch_id=1),
            event("BatchWritten", 6, batch_id=1, records_read=8),
            event("CompactionCompleted", 9),
            event("RunStopped", 20),
        ]
    )
    assert [batch.records for batch in answer.batches] == [7, 8]
    assert durations_s(answer) == [4, 2]
    assert answer.ended_s - answer.batches[0].started_s == pytest.approx(9)
