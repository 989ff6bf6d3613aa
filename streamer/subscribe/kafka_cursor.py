"""The cursors in a compacted topic: the key is the name of the subscription, the value its cursor.

Log compaction keeps the newest record of each key, for ever. A topic whose records are deleted
after a time is refused, because a subscription without a cursor starts again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not among the exported names
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from streamer.subscribe.cursor import Cursor, parse_object
from streamer.subscribe.errors import TargetRefused, TargetUnavailable

#: The partition that has all cursors.
PARTITION = 0

_COMPACT = "compact"

_ANSWER_WITHIN_S = 30.0

#: Seconds to wait for the end of another transaction, whose records hide later ones. A transaction
#: of a killed process ends after its timeout.
_OPEN_WITHIN_S = 60.0
_POLL_S = 1.0

_READER: Mapping[str, str | bool] = {
    "group.id": "lakemark-subscribe",  # librdkafka demands a name; no broker is asked for it
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "earliest",
}


def prepare_topic(settings: Mapping[str, Any], topic: str) -> None:
    """Create the topic of the cursors, or check the existing one.

    Raises:
        TargetRefused: the topic is not compacted.
        KafkaException: the broker does not answer, or refuses.
    """
    admin = AdminClient(dict(settings))
    policy = _cleanup_policy(admin, topic)
    if policy is None:
        _create(admin, topic)
    elif policy != _COMPACT:
        message = (
            f"topic {topic} has cleanup.policy {policy}, so that Kafka would delete the cursor; "
            "set it to compact, or name another topic with --cursor-topic"
        )
        raise TargetRefused(message)


def _cleanup_policy(admin: AdminClient, topic: str) -> str | None:
    """Return the policy of a topic; None if there is no such topic."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (future,) = admin.describe_configs([resource], request_timeout=_ANSWER_WITHIN_S).values()
    try:
        return str(future.result()["cleanup.policy"].value)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None


def _create(admin: AdminClient, topic: str) -> None:
    new = NewTopic(topic, 1, replication_factor=-1, config={"cleanup.policy": _COMPACT})
    try:
        admin.create_topics([new], request_timeout=_ANSWER_WITHIN_S)[topic].result()
    except KafkaException as error:  # another process may have created it meanwhile
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def read_cursor(
    settings: Mapping[str, Any], topic: str, name: str, *, waits: bool
) -> tuple[Cursor | None, str]:
    """Return the cursor of a subscription, and the id of the topic of its changes.

    The cursor is None, and the id "", if the subscription has no cursor. All records that existed
    at the time of the call are read. If another transaction is still open, it hides the records
    after its own.

    Args:
        settings: how to connect.
        topic: the topic of the cursors.
        name: the name of the subscription.
        waits: whether to wait for the end of such a transaction; otherwise the records that it
            hides are not read.

    Raises:
        TargetUnavailable: the broker does not answer, or another transaction remains open.
        KafkaException: the broker refuses.
    """
    level = IsolationLevel.READ_UNCOMMITTED if waits else IsolationLevel.READ_COMMITTED
    value = _newest_value(settings, topic, name.encode(), _end_of(settings, topic, level))
    if value is None:
        return None, ""
    path = f"topic {topic}"
    stored = parse_object(value, path)
    return Cursor.from_json(stored, path), str(stored.get("topic_id", ""))


def encode_cursor(cursor: Cursor, topic_id: str) -> bytes:
    """Return the value of the record of a cursor.

    Args:
        cursor: the cursor.
        topic_id: the id of the topic of the changes.
    """
    return json.dumps({**cursor.to_json(), "topic_id": topic_id}).encode()


def _end_of(settings: Mapping[str, Any], topic: str, level: IsolationLevel) -> int:
    """Return the offset after the newest record that is visible at an isolation level."""
    admin, partition = AdminClient(dict(settings)), TopicPartition(topic, PARTITION)
    futures = admin.list_offsets(
        {partition: OffsetSpec.latest()},  # type: ignore[no-untyped-call]
        isolation_level=level,
        request_timeout=_ANSWER_WITHIN_S,
    )
    return int(futures[partition].result().offset)


def _newest_value(settings: Mapping[str, Any], topic: str, key: bytes, end: int) -> bytes | None:
    found: bytes | None = None
    until = time.monotonic() + _OPEN_WITHIN_S
    with closing(Consumer({**settings, **_READER})) as consumer:
        consumer.assign([TopicPartition(topic, PARTITION, OFFSET_BEGINNING)])
        position = 0
        while position < end:
            if time.monotonic() > until:
                message = (
                    f"topic {topic} cannot be read up to offset {end}, because another transaction "
                    "is open or the broker does not answer; try again when it has ended"
                )
                raise TargetUnavailable(message)
            record = consumer.poll(_POLL_S)
            if record is None:
                continue
            error = record.error()
            if error is None:
                position = int(record.offset() or 0) + 1
                found = record.value() if record.key() == key else found
            elif error.code() == KafkaError._PARTITION_EOF:
                position = int(record.offset() or 0)
            elif not error.retriable():
                raise KafkaException(error)
    return found
