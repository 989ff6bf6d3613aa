"""When the stream of one of several pipelines pauses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from streamer import stream_turn
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.schedule import UNSHARED, Schedule, SharedSchedule
from streamer.slots import Slots
from streamer.sources.topic_watch import TopicWatch
from streamer.stream_turn import Pause, StreamTurn


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Broker:
    """Answers whether the stream is caught up, and counts the questions."""

    def __init__(self, *, is_caught_up: bool) -> None:
        self.is_caught_up, self.questions = is_caught_up, list[bool]()

    def __call__(self) -> bool:
        self.questions.append(self.is_caught_up)
        return self.is_caught_up


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stream_turn, "time", clock)
    return clock


def source(**consumer: str) -> KafkaSourceConfig:
    given = {"bootstrap_servers": "localhost:1", "topic": "orders", "consumer": consumer}
    return KafkaSourceConfig.model_validate(given)


@contextmanager
def schedule(of: KafkaSourceConfig, *, is_wanted: bool) -> Iterator[Schedule]:
    watch, streams = TopicWatch(), Slots(1)
    if is_wanted:
        streams._waiting.append(cast(Any, None))
    yield SharedSchedule("orders", of, streams, Slots(1), watch)
    watch.close()


def test_stream_that_is_alone_in_its_process_never_pauses(clock: Clock) -> None:
    broker = Broker(is_caught_up=True)
    turn = StreamTurn(UNSHARED, broker)
    clock.now += 1e6
    assert turn.find_pause(is_idle=True, has_progressed=True) is None
    assert not broker.questions


@pytest.mark.parametrize(("is_wanted", "idle_s"), [(False, 5.1), (True, 1.1)])
def test_idle_stream_pauses_only_if_nothing_is_unread(
    clock: Clock, is_wanted: bool, idle_s: float
) -> None:
    with schedule(source(), is_wanted=is_wanted) as shared:
        broker = Broker(is_caught_up=False)
        turn = StreamTurn(shared, broker)
        clock.now += 20
        assert turn.find_pause(is_idle=False, has_progressed=True) is None
        clock.now += idle_s - 0.2
        assert turn.find_pause(is_idle=True, has_progressed=True) is None
        assert not broker.questions
        clock.now += 0.2
        assert turn.find_pause(is_idle=True, has_progressed=False) is None
        assert turn.find_pause(is_idle=True, has_progressed=False) is None
        assert broker.questions == [False], "the broker is not asked again at once"
        broker.is_caught_up = True
        clock.now += idle_s
        assert turn.find_pause(is_idle=True, has_progressed=False) is Pause.IDLE


def test_busy_stream_pauses_for_others_after_a_batch(clock: Clock) -> None:
    with schedule(source(), is_wanted=True) as shared:
        turn = StreamTurn(shared, Broker(is_caught_up=False))
        clock.now += 31
        assert turn.find_pause(is_idle=False, has_progressed=False) is None
        assert turn.find_pause(is_idle=False, has_progressed=True) is Pause.TURN_ENDED


def test_stream_of_a_topic_that_cannot_be_watched_pauses_only_for_others(clock: Clock) -> None:
    unwatchable = source(**{"security.protocol": "SSL", "ssl.truststore.type": "JKS",
                            "ssl.truststore.location": "/none.jks"})  # fmt: skip
    for is_wanted, expected in ((False, None), (True, Pause.IDLE)):
        with schedule(unwatchable, is_wanted=is_wanted) as shared:
            turn = StreamTurn(shared, Broker(is_caught_up=True))
            clock.now += 20
            assert turn.find_pause(is_idle=True, has_progressed=False) is expected
