"""Delivers changes to a Kafka topic, exactly once.

One transaction contains all changes of a commit and the cursor after it, which is a record in a
compacted topic (``kafka_cursor``). When a target takes over, its producer first ends the open
transaction of its predecessor and fences it, because both have the same transactional id. Then it
reads the cursor. So a transaction of the predecessor is either committed, and the cursor shows it,
or it will never be. A target that was fenced must not take over again by itself, or two processes
would end each other for ever.

The cursor names the topic by its id, too. So a topic that was deleted and created again is noticed,
because it lacks the changes before the cursor.

Consumers must read with ``isolation.level=read_committed``; the default of Kafka's Java client is
``read_uncommitted``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from streamer.subscribe.cursor import Cursor
from streamer.subscribe.errors import TargetRefused, TargetUnavailable
from streamer.subscribe.kafka_address import KafkaAddress, find_topic_id, has_records
from streamer.subscribe.kafka_cursor import PARTITION, encode_cursor, prepare_topic, read_cursor
from streamer.subscribe.kafka_properties import connection_settings, producer_settings
from streamer.subscribe.target import ChangeText

#: Seconds within which the brokers must answer a request of a transaction.
_ANSWER_WITHIN_S = 60.0

#: The largest size of the records that wait in memory to be sent.
_QUEUE_KBYTES = 65_536

_POLL_S = 0.1

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

#: Fatal errors after which a new producer may continue: the brokers have forgotten the old one.
_FORGOTTEN = (
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
    KafkaError.UNKNOWN_PRODUCER_ID,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
)
_DENIED = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


class KafkaTarget:
    """Sends one record for each change: the key is the record key, the value the change in JSON."""

    def __init__(
        self, address: KafkaAddress, properties: dict[str, str], *, sends_tombstones: bool = False
    ) -> None:
        """Connect, and check both topics.

        Args:
            address: the topics and the name of the subscription.
            properties: properties of Kafka's Java producer; see ``read_kafka_properties``.
            sends_tombstones: whether a record without a value follows each delete.

        Raises:
            InvalidConfig: librdkafka does not support a property.
            TargetUnavailable, TargetRefused: see ``Target``.
        """
        self._address, self._sends_tombstones = address, sends_tombstones
        self._connection = connection_settings(address.bootstrap, properties)
        self._is_open = False
        with self._translating():
            self._topic_id = find_topic_id(self._connection, address)
            prepare_topic(self._connection, address.cursor_topic)
            self._producer = Producer({**self._settings(), **producer_settings(properties)})

    def __str__(self) -> str:
        return f"topic {self._address.cursor_topic}, key {self._address.name}"

    def peek_cursor(self) -> Cursor | None:
        """Return the newest cursor that no open transaction hides; None if there is none."""
        return self._load_cursor(waits=False)[0]

    def take_over(self) -> None:
        """End the open transaction of a predecessor, and fence it."""
        with self._translating():
            self._producer.init_transactions(_ANSWER_WITHIN_S)

    def read_cursor(self) -> Cursor | None:
        """Return the stored cursor; None if nothing was delivered yet."""
        return self._load_cursor(waits=True)[0]

    def check_continuous(self) -> None:
        """Check that the topic is the one of the cursor, or that it is new if there is no cursor.

        Raises:
            TargetRefused: it is not.
        """
        cursor, topic_id = self._load_cursor(waits=True)
        address = self._address
        if cursor is not None and topic_id != self._topic_id:
            message = (
                f"{address} was deleted and created again since changes were delivered to it, so "
                "it lacks the earlier ones; add --restart --from TIME once"
            )
            raise TargetRefused(message)
        if cursor is None and self._has_records():
            message = (
                f"{address} has records, but {self} does not exist, so earlier changes may be "
                "delivered again; name the --cursor-topic and --name of this subscription, or, if "
                "it is new, add --restart --from TIME once"
            )
            raise TargetRefused(message)

    def _has_records(self) -> bool:
        with self._translating():
            return has_records(self._connection, self._address)

    def _load_cursor(self, *, waits: bool) -> tuple[Cursor | None, str]:
        address = self._address
        with self._translating():
            return read_cursor(self._connection, address.cursor_topic, address.name, waits=waits)

    def deliver(self, changes: Iterable[ChangeText], cursor: Cursor) -> int:
        """Send the changes of one commit in one transaction; see ``Target.deliver``."""
        topic, count = self._address.topic, 0
        self._begin()
        for change in changes:
            key = change.key.encode()
            self._send(topic, key, change.value.encode())
            if change.is_delete and self._sends_tombstones:
                self._send(topic, key, None)
            count += 1
        address = self._address
        self._send(address.cursor_topic, address.name.encode(), self._encoded(cursor), PARTITION)
        self._commit()
        return count

    def close(self) -> None:
        """Abort an open transaction, so that consumers need not wait for its timeout."""
        if self._is_open:
            self._is_open = False
            with suppress(KafkaException):
                self._producer.abort_transaction(_ANSWER_WITHIN_S)

    def _encoded(self, cursor: Cursor) -> bytes:
        return encode_cursor(cursor, self._topic_id)

    def _settings(self) -> dict[str, Any]:
        return {
            **self._connection,
            "transactional.id": f"lakemark-subscribe-{self._address.name}",
            # The default limit of brokers (transaction.max.timeout.ms).
            "transaction.timeout.ms": 900_000,
            "partitioner": "murmur2_random",  # as Kafka's Java client
            "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            "linger.ms": 5,
        }

    def _begin(self) -> None:
        with self._translating():
            self._producer.begin_transaction()
        self._is_open = True

    def _send(self, topic: str, key: bytes, value: bytes | None, partition: int = -1) -> None:
        while True:
            try:
                with self._translating():
                    self._producer.produce(topic, value, key, partition=partition)
                    self._producer.poll(0)
            except BufferError:
                with self._translating():
                    self._producer.poll(_POLL_S)
            else:
                return

    def _commit(self) -> None:
        """Commit the transaction; repeat the request while the brokers may still answer it."""
        until = time.monotonic() + _ANSWER_WITHIN_S
        with self._translating():
            while True:
                try:
                    self._producer.commit_transaction(_ANSWER_WITHIN_S)
                except KafkaException as error:
                    if not error.args[0].retriable() or time.monotonic() > until:
                        raise
                else:
                    self._is_open = False
                    return

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._typed(self._cause(error.args[0])) from error

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return the fatal error that has ended the producer, if there is one, else ``error``.

        A call to a producer that was fenced may only report that the producer has failed, or that
        the transaction must be aborted.
        """
        if not self._is_open or error.code() in _FENCED:
            return error
        self._is_open = False
        try:
            self._producer.poll(0)
            self._producer.abort_transaction(_ANSWER_WITHIN_S)
        except KafkaException as other:
            found: KafkaError = other.args[0]
            return found if found.fatal() else error
        return error

    def _typed(self, error: KafkaError) -> TargetRefused | TargetUnavailable:
        address, reason = self._address, error.str()
        code = error.code()
        if code in _FENCED:
            message = (
                f"another process has taken over the subscription {address.name!r} of {address}, "
                "or the changes of a commit were not sent within transaction.timeout.ms; stop one "
                "of the processes, or pass another --name"
            )
            return TargetRefused(message)
        if code in _DENIED:
            message = (
                f"the brokers refuse to let the subscription write to {address} and "
                f"{address.cursor_topic}: {reason}; check the credentials in --kafka-properties "
                "and the access rules of the topics and the transactional id"
            )
            return TargetRefused(message)
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            message = (
                f"the brokers of {address} allow only shorter transactions: {reason}; put a lower "
                "transaction.timeout.ms into --kafka-properties"
            )
            return TargetRefused(message)
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            message = (
                f"a change is too large for {address}: {reason}; raise max.request.size in "
                "--kafka-properties, and max.message.bytes of the topic"
            )
            return TargetRefused(message)
        if error.fatal() and code not in _FORGOTTEN:
            message = (
                f"the producer of the subscription {address.name!r} of {address} cannot continue: "
                f"{reason}; find out why before you start the subscription again"
            )
            return TargetRefused(message)
        return TargetUnavailable(f"{address} did not accept the changes: {reason}")
