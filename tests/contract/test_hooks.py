"""Each hook delivers its notices at least once, and reports receivers that do not answer."""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from streamer.hooks import kafka_hook
from streamer.hooks.hook import Hook, HookUnavailable, NoticeRefused
from streamer.hooks.notices import Notice
from streamer.hooks.open_hook import HookKind, check_hook, notices_of, open_hook
from streamer.hooks.settings import HookSettings
from tests.fixtures.kafka import Kafka
from tests.fixtures.relay import Relay
from tests.fixtures.webhook import Webhook
from tests.unit.streamer.hooks.notice_samples import BEGAN, ENDED, RETRYING, batch, commit
from tests.waiting import until

#: A value that no message may contain.
SECRET = "quite-a-secret-token"

ALL_NOTICES: tuple[Notice, ...] = (BEGAN, commit(), batch(), RETRYING, ENDED)


class Receiver(ABC):
    """A receiver that can be interrupted, and the hook that sends to it."""

    kind: HookKind

    @abstractmethod
    def settings(self) -> HookSettings:
        """The settings of the hook."""

    @abstractmethod
    def received(self, at_least: int) -> list[bytes]:
        """Wait for a number of messages, and return all that have arrived."""

    @abstractmethod
    def interrupt(self) -> None:
        """Let the receiver not answer."""

    @abstractmethod
    def restore(self) -> None:
        """Let the receiver answer again."""

    def open(self) -> Hook:
        check_hook(self.kind, self.settings())
        return open_hook(self.kind, self.settings())

    def notice(self, number: int = 1) -> Notice:
        """A notice that the hook sends, which contains the number of a commit."""
        measured = batch(number)
        return measured if isinstance(measured, notices_of(self.kind)) else commit(number)


class HttpReceiver(Receiver):
    """A server behind a relay."""

    def __init__(self, kind: HookKind, webhook: Webhook) -> None:
        self.kind, self.webhook = kind, webhook
        host, _, path = webhook.url.removeprefix("http://").partition("/")
        self.relay = Relay(host)
        self.url = f"http://{self.relay.address}/{path}"

    def settings(self) -> HookSettings:
        headers = {"Authorization": f"Bearer {SECRET}"}
        return HookSettings(options={"url": self.url, "timeout_s": "30"}, headers=headers)

    def received(self, at_least: int) -> list[bytes]:
        until(lambda: len(self.webhook.bodies) >= at_least, f"{at_least} messages")
        return [body for body in self.webhook.bodies if body]

    def interrupt(self) -> None:
        self.relay.cut()

    def restore(self) -> None:
        self.relay.restore()


class KafkaReceiver(Receiver):
    """A topic, which does not exist while the receiver is interrupted."""

    kind = HookKind.KAFKA

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self.kafka, self.topic = kafka, topic
        kafka.create_topic(topic)

    def settings(self) -> HookSettings:
        options = {"bootstrap_servers": self.kafka.bootstrap, "topic": self.topic}
        return HookSettings(options=options, properties={"compression.type": "gzip"})

    def received(self, at_least: int) -> list[bytes]:
        found: list[bytes] = []
        settings: dict[str, Any] = {
            "bootstrap.servers": self.kafka.bootstrap,
            "group.id": self.topic,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(self.topic, 0, OFFSET_BEGINNING)])
            while True:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    assert message.key() == b"s3://lake/shop/orders"
                    found.append(message.value() or b"")
                elif message is not None and len(found) >= at_least:
                    return found

    def interrupt(self) -> None:
        self.kafka.delete(self.topic)

    def restore(self) -> None:
        self.kafka.create_again(self.topic)


#: The kinds of hooks on which each test runs.
HOOK_KINDS = (
    HookKind.HTTP,
    pytest.param(HookKind.KAFKA, marks=pytest.mark.kafka),
    HookKind.OPENLINEAGE,
    HookKind.OPENTELEMETRY,
)


@pytest.fixture(params=HOOK_KINDS)
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    if request.param is HookKind.KAFKA:
        yield KafkaReceiver(request.getfixturevalue("kafka"), request.getfixturevalue("topic"))
        return
    http = HttpReceiver(request.param, request.getfixturevalue("webhook"))
    yield http
    http.relay.close()


def test_notice_is_with_the_receiver_when_it_was_sent(receiver: Receiver) -> None:
    with closing(receiver.open()) as hook:
        assert hook.send(receiver.notice(1))
        assert hook.send(receiver.notice(2))
    first, second = receiver.received(2)
    assert b"20260131060000121" in first
    assert b"20260131060000122" in second


def test_hook_sends_only_the_notices_of_its_kind(receiver: Receiver) -> None:
    with closing(receiver.open()) as hook:
        sent = [notice for notice in ALL_NOTICES if hook.send(notice)]
    assert len(receiver.received(len(sent))) == len(sent)
    assert sent
    assert {type(notice) for notice in sent} <= set(notices_of(receiver.kind))


def test_receiver_that_comes_back_receives_the_notice(receiver: Receiver) -> None:
    with closing(receiver.open()) as hook:
        receiver.interrupt()
        with pytest.raises(HookUnavailable):
            hook.send(receiver.notice())
        receiver.restore()
        assert hook.send(receiver.notice())
        assert len(receiver.received(1)) == 1


def test_check_sends_no_notice(receiver: Receiver) -> None:
    with closing(receiver.open()) as hook:
        assert hook.check()
        receiver.interrupt()
        with pytest.raises(HookUnavailable) as failed:
            hook.check()
        assert SECRET not in str(failed.value)
        receiver.restore()
    assert receiver.received(0) == []


def test_hook_can_be_closed_twice_and_without_a_receiver(receiver: Receiver) -> None:
    hook = receiver.open()
    hook.send(receiver.notice())
    sent = receiver.received(1)
    receiver.interrupt()
    hook.close()
    hook.close()
    receiver.restore()
    assert receiver.received(0) in (sent, []), "nothing was sent again"


def test_lost_answer_sends_the_notice_again(webhook: Webhook) -> None:
    receiver = HttpReceiver(HookKind.HTTP, webhook)
    with closing(receiver.relay), closing(receiver.open()) as hook:
        receiver.relay.lose_answer(0)
        with pytest.raises(HookUnavailable):
            hook.send(commit())
        assert webhook.await_messages(1), "the server has the message, but the hook cannot know"
        hook.send(commit())
        first, second = webhook.await_messages(2)
        assert first == second


@pytest.mark.parametrize("status", [400, 413, 422])
def test_answer_that_refuses_the_message_is_final(webhook: Webhook, status: int) -> None:
    webhook.status = status
    with closing(HttpReceiver(HookKind.HTTP, webhook).open()) as hook:
        with pytest.raises(NoticeRefused, match=str(status)):
            hook.send(commit())


@pytest.mark.parametrize("status", [301, 307, 401, 404, 408, 429, 500, 503])
def test_answer_that_may_change_is_not_final(webhook: Webhook, status: int) -> None:
    webhook.status = status
    with closing(HttpReceiver(HookKind.HTTP, webhook).open()) as hook:
        with pytest.raises(HookUnavailable, match=str(status)) as failed:
            hook.send(commit())
    assert SECRET not in str(failed.value)
    assert "S3CR3T-PATH" not in str(failed.value)


@pytest.mark.kafka
def test_broker_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_hook, "_ANSWER_WITHIN_S", 0.5)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        settings = HookSettings(options={"bootstrap_servers": address, "topic": "feed"})
        with closing(open_hook(HookKind.KAFKA, settings)) as hook:
            for ask in (hook.check, lambda: hook.send(commit())):
                with pytest.raises(HookUnavailable, match=f"topic feed at {address}"):
                    ask()


@pytest.mark.kafka
def test_message_that_is_too_large_for_the_topic_is_refused(kafka: Kafka, topic: str) -> None:
    kafka.create_topic(topic, settings={"max.message.bytes": "1000"})
    options = {"bootstrap_servers": kafka.bootstrap, "topic": topic, "format": "hudi"}
    with closing(open_hook(HookKind.KAFKA, HookSettings(options=options))) as hook:
        with pytest.raises(NoticeRefused, match=r"raise max\.request\.size"):
            hook.send(commit())
