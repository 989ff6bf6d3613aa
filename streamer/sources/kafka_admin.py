"""Reads ids, offsets and settings of a topic, and commits offsets to a consumer group.

It uses the Kafka client in Spark's JVM. This is the client that the stream uses, with the stream's
properties. So it has the same security settings, and nothing else needs to be installed. Every
request has a timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from py4j.java_gateway import JavaClass, JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from checkpoints.checkpoint import KafkaCheckpoint
from streamer.sources.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ConnectorMissing,
    InvalidConsumer,
    LoginMissing,
    SourceError,
    TopicNotFound,
)
from streamer.sources.kafka_login import MECHANISM, MSK_COORDINATE, MSK_IAM, MSK_MODULE
from streamer.sources.kafka_offsets import OffsetRange

ANSWER_WITHIN_S: Final = 10

#: Kafka's own default for ``max.message.bytes``.
DEFAULT_MAX_MESSAGE_BYTES: Final = 1_048_588

#: ``Uuid.ZERO_UUID`` of Kafka's client.
_NO_TOPIC_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"

_REFUSALS = (
    "AuthenticationException",
    "AuthorizationException",
    "SaslMechanismException",
    "SaslStateException",
)
#: What Kafka's client (``OAuthBearerLoginModule``) reports if it gets no token when it is created,
#: whether the endpoint refuses or does not answer.
NO_TOKEN: Final = "while retrieving token from callback handler"

_UNKNOWN_TOPIC = ("UnknownTopicOrPartitionException", "InvalidTopicException")


_DESERIALIZERS = dict.fromkeys(
    ("key.deserializer", "value.deserializer"),
    "org.apache.kafka.common.serialization.ByteArrayDeserializer",
)


class KafkaAdmin:
    """A connection for requests about one topic. The caller closes it."""

    def __init__(self, spark: SparkSession, properties: Mapping[str, str], topic: str) -> None:
        """Create the client, which connects when it makes its first request.

        Args:
            spark: a running session with the Kafka connector.
            properties: the properties of Kafka's consumer, including ``bootstrap.servers`` and
                ``isolation.level``.
            topic: the name of the topic.

        Raises:
            ConnectorMissing: the session has no Kafka client.
            LoginMissing: it has no classes for the login.
            InvalidConsumer: the client does not accept the properties.
        """
        self._jvm: Any = spark.sparkContext._jvm
        self._topic = topic
        self._bootstrap = properties["bootstrap.servers"]
        self._admin = self._open(spark, properties)
        self._isolation = self._listing_options(properties)

    def ranges(self) -> dict[int, OffsetRange]:
        """Read the current range of offsets of each partition.

        Raises:
            TopicNotFound: there is no such topic.
            BrokerUnreachable: the broker does not answer in time.
            BrokerRefused: access is denied.
        """
        try:
            return self._ranges()
        except Py4JJavaError as error:
            raise self._translate(error) from None

    def ask_ranges(self, partitions: Iterable[int]) -> AskedRanges:
        """Ask for the current ranges of offsets of these partitions, without waiting."""
        asked = self._topic_partitions(partitions)
        spec = self._kafka.admin.OffsetSpec
        earliest = self._list_offsets(asked, spec.earliest())
        latest = self._list_offsets(asked, spec.latest())
        return AskedRanges(asked, earliest, latest, self._answer)

    def topic_id(self) -> str:
        """Read the topic's id; return "" if the broker is too old to have topic ids.

        A topic that was deleted and created again has a different id.

        Raises:
            SourceError: as for ``ranges``.
        """
        try:
            found = str(self._described().topicId().toString())
        except Py4JJavaError as error:
            raise self._translate(error) from None
        return "" if found == _NO_TOPIC_ID else found

    def topic_names(self) -> list[str]:
        """Read the names of all topics that this client may see, except Kafka's internal ones.

        Raises:
            SourceError: as for ``ranges``.
        """
        try:
            names = self._answer(self._admin.listTopics().names())
            # One call of the JVM; iterating over the set would be one call per name.
            joined = self._jvm.java.lang.String.join("\n", names)
        except Py4JJavaError as error:
            raise self._translate(error) from None
        return str(joined).split()

    def offsets_since(self, timestamp_ms: int) -> dict[int, int]:
        """Find the first offset of each partition with this timestamp or a later one.

        If a partition has no such record, the result is the end of the partition before the search.
        So a record that arrives during the search is at this offset or after it.

        Args:
            timestamp_ms: milliseconds since 1970, UTC.

        Raises:
            SourceError: as for ``ranges``.
        """
        try:
            return self._offsets_since(timestamp_ms)
        except Py4JJavaError as error:
            raise self._translate(error) from None

    def commit_to_group(self, group: str, checkpoint: KafkaCheckpoint) -> GroupCommit:
        """Start to commit offsets to a consumer group; return the pending commit."""
        offsets = self._jvm.java.util.HashMap()
        partition = self._jvm.org.apache.kafka.common.TopicPartition
        for number, offset in checkpoint.offsets.items():
            at = self._kafka.consumer.OffsetAndMetadata(offset)
            offsets.put(partition(checkpoint.topic, number), at)
        future = self._admin.alterConsumerGroupOffsets(group, offsets).all()
        return GroupCommit(future, self._answer)

    def max_message_bytes(self) -> int:
        """Read the topic's ``max.message.bytes``; return Kafka's default if this fails."""
        config = self._jvm.org.apache.kafka.common.config
        topic = config.ConfigResource(config.ConfigResource.Type.TOPIC, self._topic)
        asked = self._jvm.java.util.Collections.singletonList(topic)
        try:
            described = self._answer(self._admin.describeConfigs(asked).all()).get(topic)
        except Py4JJavaError:
            return DEFAULT_MAX_MESSAGE_BYTES
        return int(described.get("max.message.bytes").value())

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Translate the errors of Kafka's client that are raised in the ``with`` block.

        Raises:
            SourceError: as for ``ranges``.
        """
        try:
            yield
        except Py4JJavaError as error:
            raise self._translate(error) from None

    def close(self) -> None:
        """Close the connection; further calls have no effect."""
        self._admin.close(self._jvm.java.time.Duration.ofSeconds(1))

    def _ranges(self) -> dict[int, OffsetRange]:
        return self.ask_ranges(range(self._described().partitions().size())).answer()

    def _offsets_since(self, timestamp_ms: int) -> dict[int, int]:
        partitions = self._topic_partitions(range(self._described().partitions().size()))
        spec = self._kafka.admin.OffsetSpec
        # The end is read first, so that a record that arrives in between is not before the end.
        end = self._answer(self._list_offsets(partitions, spec.latest()).all())
        later = self._list_offsets(partitions, spec.forTimestamp(timestamp_ms))
        found = self._answer(later.all())
        offsets = {n: int(found.get(partition).offset()) for n, partition in partitions.items()}
        return {
            n: offset if offset >= 0 else int(end.get(partitions[n]).offset())
            for n, offset in offsets.items()
        }

    def _described(self) -> JavaObject:
        topics = self._jvm.java.util.Collections.singletonList(self._topic)
        described = self._answer(self._admin.describeTopics(topics).allTopicNames())
        return described.get(self._topic)

    def _topic_partitions(self, numbers: Iterable[int]) -> dict[int, JavaObject]:
        partition = self._jvm.org.apache.kafka.common.TopicPartition
        return {number: partition(self._topic, number) for number in numbers}

    def _list_offsets(self, partitions: Mapping[int, JavaObject], spec: JavaObject) -> JavaObject:
        asked = self._jvm.java.util.HashMap()
        for partition in partitions.values():
            asked.put(partition, spec)
        return self._admin.listOffsets(asked, self._isolation)

    def _answer(self, future: JavaObject, within_s: float = ANSWER_WITHIN_S) -> JavaObject:
        milliseconds = self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        return future.get(round(within_s * 1000), milliseconds)

    @property
    def _kafka(self) -> Any:
        return self._jvm.org.apache.kafka.clients

    def _open(self, spark: SparkSession, properties: Mapping[str, str]) -> JavaObject:
        if not isinstance(self._kafka.admin.AdminClient, JavaClass):
            scala = self._jvm.scala.util.Properties.versionNumberString().rpartition(".")[0]
            coordinate = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark.version}"
            raise ConnectorMissing(coordinate)
        if properties.get(MECHANISM) == MSK_IAM:
            self._check_msk_classes()
        limits = {
            "request.timeout.ms": str(ANSWER_WITHIN_S * 1000 // 2),
            "default.api.timeout.ms": str(ANSWER_WITHIN_S * 1000),
        }
        try:
            # The admin client does not check the properties of a consumer.
            self._kafka.consumer.ConsumerConfig(self._java_map({**properties, **_DESERIALIZERS}))
            return self._kafka.admin.AdminClient.create(self._java_map({**properties, **limits}))
        except Py4JJavaError as error:
            raise self._unusable(str(_root_cause(error).getMessage())) from None

    def _check_msk_classes(self) -> None:
        if not isinstance(self._jvm.software.amazon.msk.auth.iam.IAMLoginModule, JavaClass):
            raise LoginMissing(MSK_IAM, MSK_MODULE, MSK_COORDINATE)

    def _java_map(self, properties: Mapping[str, str]) -> JavaObject:
        made = self._jvm.java.util.HashMap()
        for name, value in properties.items():
            made.put(name, value)
        return made

    def _unusable(self, reason: str) -> SourceError:
        if reason.startswith("No resolvable bootstrap"):
            return BrokerUnreachable(self._bootstrap, "the host name cannot be resolved")
        if NO_TOKEN in reason:
            answer = (
                "the token endpoint gave no token for the login; the log of Spark's JVM contains "
                "its answer"
            )
            return BrokerUnreachable(self._bootstrap, answer)
        return InvalidConsumer(reason)

    def _listing_options(self, properties: Mapping[str, str]) -> JavaObject:
        level = properties.get("isolation.level", "read_uncommitted").upper()
        isolation = getattr(self._jvm.org.apache.kafka.common.IsolationLevel, level)
        return self._kafka.admin.ListOffsetsOptions(isolation)

    def _translate(self, error: Py4JJavaError) -> SourceError:
        cause = _root_cause(error)
        kind = cause.getClass().getSimpleName()
        reason = cause.getMessage() or kind
        if kind in _UNKNOWN_TOPIC:
            return TopicNotFound(self._topic, self._bootstrap)
        if kind.endswith(_REFUSALS):
            return BrokerRefused(self._bootstrap, self._topic, reason)
        return BrokerUnreachable(self._bootstrap, f"{reason} (within {ANSWER_WITHIN_S} s)")


class AskedRanges:
    """Ranges of offsets for which the broker was asked."""

    def __init__(
        self,
        partitions: Mapping[int, JavaObject],
        earliest: JavaObject,
        latest: JavaObject,
        answer: Callable[[JavaObject], JavaObject],
    ) -> None:
        self._partitions, self._answer = partitions, answer
        self._earliest, self._latest = earliest, latest

    def answer(self) -> dict[int, OffsetRange]:
        """Wait for the answer.

        Raises:
            Py4JJavaError: the broker refuses, or does not answer in time.
        """
        first, end = self._answer(self._earliest.all()), self._answer(self._latest.all())
        return {
            number: OffsetRange(first.get(partition).offset(), end.get(partition).offset())
            for number, partition in self._partitions.items()
        }


class GroupCommit:
    """A pending commit of offsets to a consumer group."""

    def __init__(
        self, future: JavaObject, answer: Callable[[JavaObject, float], JavaObject]
    ) -> None:
        self._future, self._answer = future, answer

    @property
    def is_answered(self) -> bool:
        """Whether ``refusal`` returns at once."""
        return bool(self._future.isDone())

    def refusal(self, within_s: float) -> str | None:
        """Return why the commit failed or was not answered in time; None if it succeeded."""
        try:
            self._answer(self._future, within_s)
        except Py4JJavaError as error:
            cause = _root_cause(error)
            return str(cause.getMessage() or cause.getClass().getSimpleName())
        return None


def _root_cause(error: Py4JJavaError) -> Any:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return cause
