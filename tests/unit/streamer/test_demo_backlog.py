from __future__ import annotations

from streamer.demo.backlog import StopWhenCaughtUp
from streamer.events import BatchPlanned, BatchWritten, Event, RunStarted, RunStopped


def test_a_run_ends_with_the_batch_that_reaches_the_target() -> None:
    told: list[Event] = []
    stopped_after: list[int] = []
    listener = StopWhenCaughtUp(told.append, target=30)
    listener.stop = lambda: stopped_after.append(len(told))
    events: list[Event] = [
        RunStarted("p", "t", "/t", {0: 4, 1: 6}, True),
        BatchPlanned(0, {0: 10, 1: 5}),
        BatchWritten(0, "1", 15),
        BatchPlanned(1, {0: 0, 1: 5}),
    ]
    for event in events:
        listener(event)
    assert told == events
    assert stopped_after == []
    listener(BatchWritten(1, "2", 5))
    assert stopped_after == [5]
    listener(RunStopped("interrupted", {}, 2, 20, 1.0))
    assert told[-1] == RunStopped("caught up", {}, 2, 20, 1.0)


def test_a_topic_that_is_read_already_ends_the_run_at_once() -> None:
    stops: list[None] = []
    listener = StopWhenCaughtUp(lambda _: None, target=10)
    listener.stop = lambda: stops.append(None)
    listener(RunStarted("p", "t", "/t", {0: 10}, True))
    assert stops == [None]
