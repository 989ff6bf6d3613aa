from __future__ import annotations

import json
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from sinks.reject_counts import RejectCount
from streamer.events import (
    BackgroundServiceFailed,
    BackgroundServiceStarted,
    BatchPlanned,
    BatchWritten,
    Event,
    RecordsRejected,
    Retrying,
    RunFailed,
    ServiceCompleted,
    WarningLogged,
)
from streamer.status.history import RunHistory, total_lag
from tests.unit.streamer import event_samples


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def written(number: int, records: int) -> BatchWritten:
    return BatchWritten(number, f"2026010100000{number:04}", records, rows_written=records // 2)


@given(st.lists(st.one_of(*map(event_samples.of_class, event_samples.CLASSES)), max_size=12))
def test_any_events_can_be_shown_as_json(events: list[Event]) -> None:
    history = RunHistory()
    for event in events:
        history(event)
    json.dumps({**history.summary(), **history.details()}, allow_nan=False)


def test_rate_is_that_of_the_last_minute_or_of_a_younger_run() -> None:
    clock = Clock()
    history = RunHistory(clock)
    clock.now = 1_010.0
    history(written(0, 500))
    assert history.summary()["records_per_s"] == 50.0
    clock.now = 1_060.0
    history(written(1, 700))
    assert history.summary()["records_per_s"] == 20.0
    clock.now = 1_100.0
    assert history.summary()["records_per_s"] == 700 / 60
    clock.now = 2_000.0
    assert history.summary()["records_per_s"] == 0.0
    assert history.summary()["last_commit_at"] == 1_060.0


def test_only_recent_batches_are_remembered_but_all_are_counted() -> None:
    history = RunHistory(Clock())
    for number in range(1_000):
        history(written(number, 2))
    details = history.details()
    assert history.summary()["records"] == 2_000
    batches = details["batches"]
    assert isinstance(batches, list)
    assert len(batches) < 100
    assert batches[-1]["id"] == 999


def test_long_texts_are_cut_after_their_secrets_were_masked() -> None:
    secret = "hunter2-hunter2"
    history = RunHistory(Clock(), redacted=lambda text: text.replace(secret, "***"))
    for length in range(1_980, 2_010):  # the limit is somewhere in the secret
        history(WarningLogged("sinks", "warning", "x" * length + secret + "y" * 100_000))
    sample = "z" * 100_000
    history(RecordsRejected(0, 1, sample, "/dead", (RejectCount("invalid_value", 1, sample),)))
    history(ServiceCompleted("cleaning", "z" * 100_000, 1.0, "/t"))
    text = json.dumps(history.details())
    assert "hunter" not in text
    assert len(text) < 100_000


def test_history_does_not_grow_with_the_partitions_of_the_topic() -> None:
    def kept_bytes(num_partitions: int) -> int:
        tracemalloc.start()
        try:
            history = RunHistory(Clock())
            for number in range(40):
                history(BatchWritten(number, "1", 1, lag=dict.fromkeys(range(num_partitions), 0)))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert kept_bytes(5_000) < kept_bytes(1) + 1_000_000


def test_rejects_are_counted_by_code_with_the_newest_sample() -> None:
    history = RunHistory(Clock())
    bad, null = RejectCount("invalid_message", 3, "t 0:1: bad"), RejectCount("null_value", 1, "x")
    history(RecordsRejected(0, 4, bad.first, "/dead", (bad, null)))
    history(RecordsRejected(1, 1, "y", "/dead", (RejectCount("invalid_message", 1, "y"),)))
    assert history.details()["rejects"] == {
        "dead_letters": "/dead",
        "codes": [
            {"code": "invalid_message", "count": 4, "sample": "y", "at": 1_000.0},
            {"code": "null_value", "count": 1, "sample": "x", "at": 1_000.0},
        ],
    }


def test_work_in_progress_ends_with_the_batch_the_compaction_or_a_failure() -> None:
    history = RunHistory(Clock())
    planned = {"id": 3, "planned_at": 1_000.0, "records": 5}

    def in_progress() -> tuple[object, bool]:
        details = history.details()
        return details["batch_in_progress"], details["background_service"] is not None

    history(BatchPlanned(3, {0: 5}))
    history(BackgroundServiceStarted("compaction", "c", 1, 2, "/t"))
    assert in_progress() == (planned, True)
    history(BackgroundServiceFailed("compaction", "c", "no", 1, 0.0, 1.0, "IOError", "/t"))
    assert in_progress() == (planned, False)
    history(BackgroundServiceStarted("bucket_resizing", "d", 1, 2, "/t"))
    history(ServiceCompleted("cleaning", "1 file", 1.0, "/t"))
    assert in_progress() == (planned, True)
    history(ServiceCompleted("bucket_resizing", "1 bucket", 1.0, "/t", "d"))
    history(written(3, 5))
    assert in_progress() == (None, False)
    history(BatchPlanned(4, {0: 5}))
    history(RunFailed("IOError", "no"))
    assert (in_progress(), history.has_failed) == ((None, False), True)
    history(Retrying("no", 1, 0, 1.0))
    assert not history.has_failed


def test_total_lag_is_the_sum_of_records_and_the_largest_age() -> None:
    assert total_lag([]) == (None, None)
    assert total_lag([(3, 1.5), (4, None), (0, 0.0)]) == (7, 1.5)
    assert total_lag([(None, None)]) == (None, None)
