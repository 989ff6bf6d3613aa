"""The topic of the changes: its address, its id, and whether it has records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not among the exported names
    AdminClient,
    OffsetSpec,
    TopicDescription,
)

from streamer.subscribe.errors import TargetRefused

_ANSWER_WITHIN_S = 60.0

_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_EXCEPTION)


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """Where changes and cursors are sent.

    Attributes:
        bootstrap: the brokers, ``host:port,host:port``.
        topic: the topic of the changes.
        cursor_topic: the topic of the cursors.
        name: the name of the subscription: the key of its cursor.
    """

    bootstrap: str
    topic: str
    cursor_topic: str
    name: str

    def __str__(self) -> str:
        return f"topic {self.topic} at {self.bootstrap}"


def find_topic_id(settings: Mapping[str, Any], address: KafkaAddress) -> str:
    """Return the id of the topic, which another topic of the same name does not have.

    Raises:
        TargetRefused: there is no such topic; brokers would create it with their defaults.
        KafkaException: the broker does not answer, or refuses.
    """
    return str(_describe(AdminClient(dict(settings)), address).topic_id)


def has_records(settings: Mapping[str, Any], address: KafkaAddress) -> bool:
    """Return whether records were ever sent to the topic, even if they have expired.

    Raises:
        TargetRefused, KafkaException: as for ``find_topic_id``.
    """
    admin = AdminClient(dict(settings))
    parts = [Partition(address.topic, one.id) for one in _describe(admin, address).partitions]
    futures = admin.list_offsets(
        {part: OffsetSpec.latest() for part in parts},  # type: ignore[no-untyped-call]
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=_ANSWER_WITHIN_S,
    )
    return any(future.result().offset > 0 for future in futures.values())


def _describe(admin: AdminClient, address: KafkaAddress) -> TopicDescription:
    futures = admin.describe_topics(
        TopicCollection([address.topic]), request_timeout=_ANSWER_WITHIN_S
    )
    try:
        found: TopicDescription = futures[address.topic].result()
    except KafkaException as error:
        if error.args[0].code() not in _UNKNOWN_TOPIC:
            raise
        message = f"there is no {address}; create it with the partitions that its consumers need"
        raise TargetRefused(message) from None
    return found
