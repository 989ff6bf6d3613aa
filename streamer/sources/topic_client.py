"""Requests about a topic that need no JVM: a start makes them before Spark runs.

The stream uses Kafka's Java client, which needs a JVM. This module uses librdkafka. If a property
of the Java client has no equivalent, nothing is requested, and the first connection is that of the
Java client.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not among the exported names
    AclOperation,
    AdminClient,
    ConfigResource,
    ConsumerGroupDescription,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from streamer.sources.errors import (
    BrokerRefused,
    BrokerUnreachable,
    GroupRefused,
    SourceError,
    TopicNotFound,
)
from streamer.sources.kafka_offsets import OffsetRange
from streamer.sources.librdkafka_settings import NotTranslatable, client_settings
from streamer.sources.msk_token import SignerMissing

#: Seconds within which a broker that accepts connections must answer.
ANSWER_WITHIN_S: Final = 8.0

#: Seconds to wait for a broker that does not accept connections. A restart often takes less.
_CONNECT_WITHIN_S = 3.0

#: Seconds for which a broker may not know a topic that was just created.
_KNOWN_WITHIN_S = 1.0

_POLL_S = 0.05

_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)

#: A broker that has just started, or that takes over the groups of another one, answers so.
_NO_COORDINATOR_YET = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
_REFUSALS = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)

#: Settings of a consumer that reads one record of each partition, and commits nothing. librdkafka
#: demands the name of a group, but no broker is asked for this group.
_READ_ONCE: Mapping[str, str | int | bool] = {
    "group.id": "lakemark-doctor",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "latest",  # if retention deletes the record meanwhile
    "queued.max.messages.kbytes": 1024,
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NewestRecords:
    """The newest records of a topic, at most one of each partition.

    Attributes:
        sizes: the size of the key and the value of each record, in bytes.
        partitions: how many partitions were read; some may have no record at their end.
    """

    sizes: Sequence[int]
    partitions: int


class TopicClient:
    """A connection of librdkafka, for requests about one topic. Requests change nothing.

    Every method raises ``BrokerUnreachable`` if the broker does not answer, ``BrokerRefused`` if it
    refuses the client, ``TopicNotFound`` if there is no such topic, and ``NotTranslatable`` if TLS
    fails with the system's certificates, because Java trusts others.
    """

    def __init__(self, bootstrap: str, topic: str, properties: Mapping[str, str]) -> None:
        """Create the client, which connects when it makes its first request.

        Args:
            bootstrap: the addresses of the brokers, ``host:port,host:port``.
            topic: the name of the topic.
            properties: the properties of Kafka's Java consumer. The security properties are
                translated.

        Raises:
            NotTranslatable: librdkafka does not support a property, or no token can be signed.
        """
        self._bootstrap, self._topic = bootstrap, topic
        settings = client_settings(bootstrap, properties)
        self._trusts_by_default = not {"ssl.ca.location", "ssl.ca.pem"} & settings.keys()
        self._errors: list[KafkaError] = []
        self._settings: dict[str, Any] = {**settings, "error_cb": self._errors.append}
        try:
            if (token := settings.get("oauth_cb")) is not None:
                token(None)  # librdkafka would wait for a token, and then not tell the reason
            self._admin = AdminClient(self._settings)
        except (KafkaException, ValueError, SignerMissing) as error:
            raise NotTranslatable(str(error)) from None

    def count_brokers(self) -> int:
        """Return the number of brokers of the cluster."""
        cluster = self._answer(self._admin.describe_cluster(request_timeout=ANSWER_WITHIN_S))
        return len(cluster.nodes)

    def describe(self) -> TopicDescription:
        """Return the description of the topic. A missing topic is not created."""
        known_by = time.monotonic() + _KNOWN_WITHIN_S
        while True:
            try:
                return self._describe()
            except TopicNotFound:
                if time.monotonic() > known_by:
                    raise
            time.sleep(_POLL_S)

    def topic_id(self) -> str:
        """Return the topic's id as Kafka's Java client prints it.

        Returns:
            "" if the broker is too old to have topic ids.
        """
        return topic_id_of(self.describe())

    def settings(self) -> Mapping[str, str] | None:
        """Return the settings of the topic; None if this client may not see them."""
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        (future,) = self._admin.describe_configs(
            [resource], request_timeout=ANSWER_WITHIN_S
        ).values()
        try:
            entries = self._answer(future)
        except BrokerRefused:
            return None
        return {name: entry.value for name, entry in entries.items()}

    def ranges(self, partitions: int, isolation_level: str) -> dict[int, OffsetRange]:
        """Return the current range of offsets of each partition.

        Args:
            partitions: the number of partitions.
            isolation_level: the level of the consumer, such as ``read_committed``.
        """
        level = IsolationLevel[isolation_level.upper()]
        specs = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        first, end = (self._offsets(partitions, spec, level) for spec in specs)
        return {number: OffsetRange(first[number], end[number]) for number in first}

    def read_newest(self, ranges: Mapping[int, OffsetRange], isolation_level: str) -> NewestRecords:
        """Read the record at the last offset of each partition that is not empty."""
        targets = {n: held.end - 1 for n, held in ranges.items() if held.earliest < held.end}
        # Also an empty partition is read, because the right to read does not depend on records.
        targets = targets or {n: held.end for n, held in ranges.items()}
        given = {**self._settings, **_READ_ONCE, "isolation.level": isolation_level}
        with closing(Consumer(given)) as consumer:
            consumer.assign([TopicPartition(self._topic, n, at) for n, at in targets.items()])
            return NewestRecords(self._read_each(consumer, set(targets)), len(targets))

    def check_group(self, group: str) -> None:
        """Check that this client may commit offsets to a consumer group. The group may be new.

        Raises:
            GroupRefused: the client may not.
        """
        with self._translating_group(group):
            found = self._describe_group(group)
        operations = found.authorized_operations
        if operations is not None and AclOperation.READ not in operations:
            reason = "the broker's access rules do not contain the operation READ"
            raise GroupRefused(self._bootstrap, group, reason)

    def _describe_group(self, group: str) -> ConsumerGroupDescription:
        """Describe a group; ask again while no broker has loaded its part of the groups."""
        until = time.monotonic() + ANSWER_WITHIN_S
        while True:
            futures = self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=ANSWER_WITHIN_S
            )
            try:
                described: ConsumerGroupDescription = self._wait(futures[group])
            except KafkaException as error:
                is_loading = error.args[0].code() in _NO_COORDINATOR_YET
                if not is_loading or time.monotonic() > until:
                    raise
                time.sleep(_POLL_S)
            else:
                return described

    def _describe(self) -> TopicDescription:
        # A metadata request may create a topic; this request does not.
        futures = self._admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=ANSWER_WITHIN_S
        )
        described: TopicDescription = self._answer(futures[self._topic])
        return described

    def _offsets(self, partitions: int, spec: OffsetSpec, level: IsolationLevel) -> dict[int, int]:
        asked = {TopicPartition(self._topic, number): spec for number in range(partitions)}
        futures = self._admin.list_offsets(
            asked, isolation_level=level, request_timeout=ANSWER_WITHIN_S
        )
        return {one.partition: self._answer(future).offset for one, future in futures.items()}

    def _read_each(self, consumer: Consumer, waiting: set[int]) -> list[int]:
        sizes, until = list[int](), time.monotonic() + ANSWER_WITHIN_S
        while waiting and time.monotonic() < until:
            self._check_refused()
            record = consumer.poll(_POLL_S)
            if record is None:
                continue
            error = record.error()
            if error is None:
                sizes.append(len(record.key() or b"") + len(record.value() or b""))
            elif error.code() in (*_REFUSALS, *_UNKNOWN_TOPIC):
                raise self._failure(error)
            elif error.code() != KafkaError._PARTITION_EOF:
                continue
            waiting.discard(record.partition())
        if waiting:
            reason = (
                f"partition {min(waiting)} of topic {self._topic} was not read within "
                f"{ANSWER_WITHIN_S:.0f} s, because its leader does not answer at the address that "
                "the broker advertises (advertised.listeners)"
            )
            raise BrokerUnreachable(self._bootstrap, reason)
        return sizes

    def _answer(self, future: Future[T]) -> T:
        """Wait for an answer.

        Raises:
            SourceError, NotTranslatable: see the class.
        """
        try:
            return self._wait(future)
        except KafkaException as error:
            raise self._failure(error.args[0]) from None

    def _wait(self, future: Future[T]) -> T:
        began = time.monotonic()
        while not future.done():
            self._admin.poll(_POLL_S)
            waited_s = time.monotonic() - began
            self._check_refused()
            is_down = any(t.code() == KafkaError._ALL_BROKERS_DOWN for t in self._errors)
            if waited_s > ANSWER_WITHIN_S or (is_down and waited_s > _CONNECT_WITHIN_S):
                raise BrokerUnreachable(self._bootstrap, self._reason(waited_s))
        self._errors.clear()
        return future.result(0)

    def _check_refused(self) -> None:
        for error in self._errors:
            if error.code() in (*_REFUSALS, KafkaError._SSL):
                raise self._failure(error)

    @contextmanager
    def _translating_group(self, group: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise GroupRefused(self._bootstrap, group, reason.str()) from None
            raise self._failure(reason) from None

    def _failure(self, error: KafkaError) -> Exception:
        code = error.code()
        if code in _UNKNOWN_TOPIC:
            return TopicNotFound(self._topic, self._bootstrap)
        if code in _REFUSALS:
            return BrokerRefused(self._bootstrap, self._topic, error.str())
        if code == KafkaError._SSL and self._trusts_by_default:
            # Java trusts the certificate authorities in its own store, which may be different.
            message = f"TLS with the system's certificates fails ({error.str()})"
            return NotTranslatable(message)
        return self._unreachable(error)

    def _unreachable(self, error: KafkaError) -> SourceError:
        return BrokerUnreachable(self._bootstrap, error.str())

    def _reason(self, waited_s: float) -> str:
        first = next((t for t in self._errors if t.code() != KafkaError._ALL_BROKERS_DOWN), None)
        text = "no answer" if first is None else first.str()
        return f"{text} (within {waited_s:.0f} s)"


def topic_id_of(described: TopicDescription) -> str:
    """Return the topic's id as Kafka's Java client prints it.

    Returns:
        "" if the broker is too old to have topic ids.
    """
    found: Any = described.topic_id  # the types of the package lack its methods
    halves = found.get_most_significant_bits(), found.get_least_significant_bits()
    if not any(halves):
        return ""
    bits = b"".join(half.to_bytes(8, "big", signed=True) for half in halves)
    return base64.urlsafe_b64encode(bits).decode().rstrip("=")
