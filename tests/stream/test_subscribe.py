"""A Kafka topic receives each change of a table once, wherever the subscription was killed."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.cimpl import OFFSET_BEGINNING

import lakemark
from lakemark.operations.change_feed import FeedType
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.cli import FAILED, OK, main
from streamer.subscribe import kafka_cursor
from streamer.subscribe.errors import TargetRefused, TargetUnavailable
from streamer.subscribe.kafka_address import KafkaAddress
from streamer.subscribe.kafka_target import KafkaTarget
from streamer.subscribe.stream_target import StreamTarget
from streamer.subscribe.subscription import Start, Subscription
from streamer.subscribe.target import ChangeText, Target
from tests.depth import examples, sample
from tests.fixtures.kafka import Kafka
from tests.unit.operations.tables import FAST, SCHEMA, rows
from tests.unit.streamer.test_subscribe import Quiet

pytestmark = pytest.mark.kafka

#: Key and value of a record.
Record = tuple[str, str | None]

KILLS = max(4, examples(8))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> lakemark.Table:
    """A table with an insert, an update and a delete."""
    table = create(tmp_path_factory.mktemp("lake") / "orders")
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 2)))
    table.upsert(rows(("a", "north", 2, 3)))
    table.delete(["b"])
    return table


def create(path: Path) -> lakemark.Table:
    return lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        buckets=1,
        cdc="data_before",
        multi_writer=FAST,
    )


def subscription(table: lakemark.Table, open_target: Callable[[], Target]) -> Subscription:
    opened = open_table(StorageLocation(table.location))
    return Subscription(opened, FeedType.CDC, open_target, Start("earliest"), Quiet())


def expected(table: lakemark.Table, *, tombstones: bool = False) -> list[Record]:
    """Return the records of all commits, delivered at once."""
    out = io.StringIO()
    subscription(table, lambda: StreamTarget(out)).run(None)
    listed: list[Record] = []
    for line in out.getvalue().splitlines():
        change = json.loads(line)
        listed.append((change["key"], line))
        listed += [(change["key"], None)] if tombstones and change["op"] == "d" else []
    return listed


def records(kafka: Kafka, topic: str) -> list[Record]:
    """Read a topic of one partition from its beginning to its end."""
    kafka.await_ends_of_transactions(topic)
    settings: Mapping[str, Any] = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    found: list[Record] = []
    with closing(Consumer(dict(settings))) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            record = consumer.poll(120)
            assert record is not None, "the broker does not answer"
            if (error := record.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF
                return found
            key, value = record.key(), record.value()
            assert key is not None
            found.append((key.decode(), None if value is None else value.decode()))


def address(kafka: Kafka, topic: str, name: str = "orders") -> KafkaAddress:
    return KafkaAddress(kafka.bootstrap, topic, f"{topic}.cursors", name)


class Killed(BaseException):
    """The process ends here."""


class Dying(KafkaTarget):
    """A target of a process that is killed before one of its steps, or after the last one."""

    steps_left = 1 << 30

    def _begin(self) -> None:
        self._step()
        super()._begin()

    def _send(self, *given: Any) -> None:
        self._step()
        super()._send(*given)

    def _commit(self) -> None:
        self._step()
        super()._commit()
        self._step()

    def close(self) -> None:
        """Do nothing, because a killed process does not abort its transaction."""

    def _step(self) -> None:
        Dying.steps_left -= 1
        if Dying.steps_left < 0:
            self._producer.flush(10)  # the worst case: everything has reached the broker
            raise Killed


def test_each_change_is_in_the_topic_once_wherever_the_process_was_killed(
    kafka: Kafka, table: lakemark.Table
) -> None:
    wanted = expected(table)
    steps = 1 << 30
    for killed_before in sample(range(_count_steps(kafka, table)), one_in=3):
        topic = kafka.create_topic()
        Dying.steps_left = killed_before
        with pytest.raises(Killed):
            subscription(table, lambda topic=topic: Dying(address(kafka, topic), {})).run(None)  # type: ignore[misc]
        Dying.steps_left = steps
        subscription(table, lambda topic=topic: KafkaTarget(address(kafka, topic), {})).run(None)  # type: ignore[misc]
        assert records(kafka, topic) == wanted, killed_before


def _count_steps(kafka: Kafka, table: lakemark.Table) -> int:
    topic, Dying.steps_left = kafka.create_topic(), 1 << 30
    subscription(table, lambda: Dying(address(kafka, topic), {})).run(None)
    return (1 << 30) - Dying.steps_left


def test_command_sends_changes_and_tombstones_and_continues(
    kafka: Kafka, table: lakemark.Table, tmp_path: Path
) -> None:
    topic, properties = kafka.create_topic(), tmp_path / "kafka.properties"
    properties.write_text("security.protocol=PLAINTEXT\ncompression.type=gzip\n")
    to = ["--to", f"kafka://{kafka.bootstrap}/{topic}", "--tombstones"]
    command = ["subscribe", table.location, *to, "--kafka-properties", str(properties)]
    assert [main(command), main(command)] == [OK, OK]
    assert records(kafka, topic) == expected(table, tombstones=True)
    ((name, stored),) = dict(records(kafka, f"{topic}.cursors")).items()
    assert name == f"orders.cdc.{topic}"
    newest = table.timeline.completed()[-1]
    assert json.loads(stored or "")["requested_at"] == newest.requested_at


def test_process_that_was_replaced_delivers_nothing(kafka: Kafka, table: lakemark.Table) -> None:
    topic = kafka.create_topic()
    older, newer = (KafkaTarget(address(kafka, topic), {}) for _ in range(2))
    older.take_over()

    def changes() -> Iterator[ChangeText]:
        for number in range(50):
            yield ChangeText("x", "{}", is_delete=False)
            if number == 3:
                newer.take_over()
            if number > 3:  # time for the brokers to answer
                time.sleep(0.1)

    cursor = subscription(table, lambda: older)._cursor
    older.deliver((), cursor)  # as a new subscription does
    with pytest.raises(TargetRefused, match="another process has taken over"):
        older.deliver(changes(), cursor)
    subscription(table, lambda: KafkaTarget(address(kafka, topic), {})).run(None)
    assert records(kafka, topic) == expected(table)


def test_start_by_mistake_does_not_end_a_healthy_subscription(
    kafka: Kafka, table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.create_topic()
    healthy = KafkaTarget(address(kafka, topic), {})
    subscription(table, lambda: healthy).run(None)
    to = ["--to", f"kafka://{kafka.bootstrap}/{topic}", "--name", "orders"]
    assert main(["subscribe", table.location, *to, "--type", "incremental"]) == FAILED
    assert "is of type cdc, not incremental" in capsys.readouterr().err
    cursor = healthy.read_cursor()
    assert cursor is not None
    assert healthy.deliver([ChangeText("z", "{}", is_delete=False)], cursor) == 1
    assert records(kafka, topic) == [*expected(table), ("z", "{}")]


def test_lost_cursor_or_topic_is_noticed(
    kafka: Kafka, table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.create_topic()
    command = ["subscribe", table.location, "--to", f"kafka://{kafka.bootstrap}/{topic}"]
    assert main(command) == OK
    assert main([*command, "--name", "another"]) == FAILED
    assert f"topic {topic} at {kafka.bootstrap} has records" in capsys.readouterr().err
    assert records(kafka, topic) == expected(table)
    kafka.delete(topic)
    kafka.create_again(topic)
    assert main(command) == FAILED
    assert "was deleted and created again" in capsys.readouterr().err
    assert main([*command, "--restart", "--from", "earliest"]) == OK
    assert main(command) == OK
    assert records(kafka, topic) == expected(table)


def test_cursor_is_not_read_while_another_transaction_hides_it(
    kafka: Kafka, table: lakemark.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic()
    subscription(table, lambda: KafkaTarget(address(kafka, topic), {})).run(None)
    cursors = f"{topic}.cursors"
    with kafka.transaction(cursors, [(b"another", b"{}")], aborts=False):
        # The cursor of the first subscription is after the open transaction.
        table_again = KafkaTarget(address(kafka, topic), {})
        table_again.take_over()
        cursor = subscription(table, lambda: table_again)._cursor
        table_again.deliver([ChangeText("z", "{}", is_delete=False)], cursor)
        with (
            monkeypatch.context() as impatient,
            pytest.raises(TargetUnavailable, match="another transaction is open"),
        ):
            impatient.setattr(kafka_cursor, "_OPEN_WITHIN_S", 2.0)
            table_again.read_cursor()
    assert table_again.read_cursor() == cursor


def test_unsuitable_topics_are_refused(
    kafka: Kafka, table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.create_topic()
    command = ["subscribe", table.location, "--to", f"kafka://{kafka.bootstrap}/{topic}"]
    assert main([*command, "--cursor-topic", kafka.create_topic()]) == FAILED
    assert "set it to compact" in capsys.readouterr().err
    assert main([*command[:-1], f"kafka://{kafka.bootstrap}/{topic}-missing"]) == FAILED
    assert f"there is no topic {topic}-missing" in capsys.readouterr().err


@pytest.mark.slow
def test_after_many_kills_every_change_is_in_the_topic_once(kafka: Kafka, tmp_path: Path) -> None:
    table, topic = create(tmp_path / "orders"), kafka.create_topic()
    command = [sys.executable, "-m", "lakemark", "subscribe", table.location]
    command += ["--to", f"kafka://{kafka.bootstrap}/{topic}"]
    moments = random.Random(seed := random.randrange(1 << 32))
    print(f"seed {seed}")
    for ts in range(KILLS):
        for _ in range(3):
            table.upsert(rows(*((f"k{key}", "north", ts, key) for key in range(500))))
        with subprocess.Popen([*command, "--follow", "--interval", "1"]) as process:
            time.sleep(moments.uniform(1, 4))
            process.kill()
    subprocess.run(command, check=True)
    assert records(kafka, topic) == expected(table)
