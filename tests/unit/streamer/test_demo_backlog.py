from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from lakemark.operations.create import create_table
from lakemark.storage import StorageLocation
from streamer.commands import demo
from streamer.config.load import validated
from streamer.demo.backlog import StopWhenCaughtUp, TopicSilent, answered
from streamer.demo.order_messages import orders
from streamer.demo.sender import Sender
from streamer.events import BatchPlanned, BatchWritten, Event, RunStarted, RunStopped
from streamer.table_setup import table_spec
from tests.fixtures.kafka import Kafka
from transforms.decode.json import JsonDecoder


def test_a_run_ends_with_the_batch_that_reaches_the_target() -> None:
    reported: list[Event] = []
    stopped_after: list[int] = []
    listener = StopWhenCaughtUp(reported.append, target=30)
    listener.stop = lambda: stopped_after.append(len(reported))
    events: list[Event] = [
        RunStarted("p", "t", "/t", {0: 4, 1: 6}, True),
        BatchPlanned(0, {0: 10, 1: 5}),
        BatchWritten(0, "1", 15),
        BatchPlanned(1, {0: 0, 1: 5}),
    ]
    for event in events:
        listener(event)
    assert reported == events
    assert stopped_after == []
    listener(BatchWritten(1, "2", 5))
    assert stopped_after == [5]
    listener(RunStopped("interrupted", {}, 2, 20, 1.0))
    assert reported[-1] == RunStopped("caught up", {}, 2, 20, 1.0)


def test_a_topic_that_is_read_already_ends_the_run_at_once() -> None:
    stops: list[None] = []
    listener = StopWhenCaughtUp(lambda _: None, target=10)
    listener.stop = lambda: stops.append(None)
    listener(RunStarted("p", "t", "/t", {0: 10}, True))
    assert stops == [None]


class Electing:
    """A topic whose partitions have no leader for the first ``refusals`` requests."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals

    def __call__(self) -> int:
        self.refusals -= 1
        if self.refusals >= 0:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return 7


def test_a_topic_that_was_just_made_is_asked_again_until_it_has_leaders() -> None:
    assert answered(Electing(2), KafkaException, within_s=120) == 7
    with pytest.raises(TopicSilent, match=r"demo.s topic: .*NOT_LEADER"):
        answered(Electing(2), KafkaException, within_s=0)


def test_tables_without_a_commit_are_shown(tmp_path: Path) -> None:
    config = validated(demo.pipeline_tree(tmp_path, "127.0.0.1:9092"))
    for place in (config.table.path, config.dead_letters.path):
        create_table(StorageLocation(place), table_spec(config))
    console = Console(record=True, width=100)
    demo.show(config, {}, console)
    assert "unread records: not known" in console.export_text()


def test_times_of_the_demos_orders_are_shown_as_times(tmp_path: Path) -> None:
    config = validated(demo.pipeline_tree(tmp_path, "127.0.0.1:9092"))
    columns = config.decode.declared()
    assert columns is not None
    decoder = JsonDecoder(columns, None, config.decode.timestamp_unit, config.decode.policy())
    decoded = decoder.decode(orders(20)["value"].combine_chunks())
    assert str(decoded.rows["updated_at"][0]) == "2026-01-01 00:00:00+00:00"
    assert config.table.ordering == ("updated_at",)


@pytest.mark.kafka
def test_an_ended_sender_sends_no_more(kafka: Kafka, topic: str) -> None:
    sender = Sender(kafka.bootstrap, topic, 0, 1_000_000, pytest.fail)
    sender.start()
    sender.end()
    sender.join(60)  # what it has sent may still be on its way to a busy broker
    assert not sender.is_alive()
    sender.raise_failure()
