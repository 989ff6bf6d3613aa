"""The figures of the benchmark: all work counts as time, and the first batch is separate."""

from __future__ import annotations

import pytest

from benchmarks.figures import Figures, as_lines, durations_s, ratios
from benchmarks.peers import lakemark_stream
from benchmarks.peers.contract import Answer, Batch

LARGE = Answer((Batch(100, 10.0, 15.0), Batch(100, 15.5, 17.0), Batch(100, 17.0, 18.0)), 20.0)
SMALL = Answer((Batch(1, 0.0, 4.0), Batch(1, 4.0, 5.0), Batch(1, 6.5, 7.0)), 7.0)


def test_work_between_and_after_batches_counts_and_the_first_batch_stands_apart() -> None:
    figures = Figures.of(LARGE, SMALL)
    assert figures.records_per_s == 300 / 10
    assert figures.steady_records_per_s == 200 / 5
    assert figures.first_batch_s == 5
    assert durations_s(SMALL) == [4, 1, 2]
    assert figures.small_batch_s == 2


def test_a_ratio_above_one_means_that_ours_is_faster() -> None:
    slower = Answer((Batch(100, 0.0, 20.0), Batch(100, 20.0, 40.0)), 40.0)
    figures = {"ours": Figures.of(LARGE, SMALL), "theirs": Figures.of(slower, slower)}
    assert ratios(figures, of="ours") == {
        "theirs": {
            "records_per_s": 30 / 5,
            "steady_records_per_s": 40 / 5,
            "first_batch_s": 4,
            "small_batch_s": 10,
        }
    }
    assert as_lines(figures, of="ours")[-1].split() == [
        *("ours", "/", "theirs"),
        *("6.00x", "8.00x", "4.00x", "10.00x"),
    ]


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
