"""The errors of a source. All of them are raised before a batch is published.

SourceError
├─ SourceBeingWritten  (Retriable) another program is still writing what should be read
├─ BrokerUnreachable   (Retriable) no broker answered in time
├─ BrokerRefused       (Permanent) not authenticated, or not authorized
├─ GroupRefused        (Permanent) not authorized to commit to the consumer group
├─ InvalidConsumer     (Permanent) Kafka's client does not accept a property
├─ ConnectorMissing    (Permanent) Spark runs without the Kafka connector
├─ LoginMissing        (Permanent) Spark runs without the classes of a login
├─ TopicNotFound       (Permanent)
├─ NoTopicMatches      (Permanent) no topic matches ``source.topic_pattern``
├─ UnknownPartitions   (Permanent) ``source.starting_offsets`` names partitions that the topic lacks
├─ EndingPassed        (Permanent) the table has read past ``source.ending_offsets``
├─ EndingNotReached    (Permanent) the topic does not have ``source.ending_offsets`` yet
├─ ForeignCheckpoint   (Permanent) the table's checkpoint belongs to another topic
├─ SnapshotUnread      (Permanent) the snapshot must be read, or read completely, before the topic
├─ TopicReplaced       (Retriable) the topic was created again while a batch was read
├─ TopicRecreated      (Permanent) the topic was created again after the table read it
├─ LostOffsets         (Permanent) unread records were deleted
├─ RecordsWithheld     (Retriable) the topic has a record that was not read with its batch
├─ GapCheckFailed      (Retriable) the broker did not answer whether a gap has records
├─ OffsetsWithoutRecord (Permanent) offsets of a batch have no record, and gaps are not accepted
└─ DamagedOffsetLog    (Permanent) Spark's offset log is not in the known format
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from lakemark.errors import HudiError, Permanent, Retriable
from sinks.audit import OffsetGap
from streamer.sources.kafka_offsets import LostRange

#: How many topics an error names.
_NAMED_TOPICS: Final = 10


class SourceError(HudiError):
    """The source cannot be read."""


class SourceBeingWritten(SourceError, Retriable):
    """Another program is still writing what should be read.

    A run of mode ``continuous`` waits for it, however long it takes.
    """


class BrokerUnreachable(SourceError, Retriable):
    """No broker answered in time."""

    def __init__(self, bootstrap: str, reason: str) -> None:
        super().__init__(
            f"no Kafka broker answered at {bootstrap}: {reason}; check "
            "source.bootstrap_servers, the network, and security.protocol in source.consumer"
        )
        self.bootstrap, self.reason = bootstrap, reason


class BrokerRefused(SourceError, Permanent):
    """The broker denies this client access to the topic."""

    def __init__(self, bootstrap: str, topic: str, reason: str) -> None:
        super().__init__(
            f"the Kafka broker at {bootstrap} refused access to topic {topic}: {reason}; check "
            "the credentials in source.consumer and the topic's access rules"
        )
        self.bootstrap, self.topic, self.reason = bootstrap, topic, reason


class GroupRefused(SourceError, Permanent):
    """The broker does not allow this client to commit offsets to the consumer group."""

    def __init__(self, bootstrap: str, group: str, reason: str) -> None:
        super().__init__(
            f"the Kafka broker at {bootstrap} refused access to consumer group {group}: {reason}; "
            "allow it, or remove source.commit_group"
        )
        self.bootstrap, self.group, self.reason = bootstrap, group, reason


class InvalidConsumer(SourceError, Permanent):
    """Kafka's client does not accept a consumer property."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Kafka's client does not accept the source's properties: {reason}")
        self.reason = reason


class ConnectorMissing(SourceError, Permanent):
    """Spark runs without its Kafka connector."""

    def __init__(self, coordinate: str) -> None:
        super().__init__(
            f"this Spark session has no Kafka connector; start it with --packages {coordinate}"
        )
        self.coordinate = coordinate


class LoginMissing(SourceError, Permanent):
    """Spark runs without the classes of a login."""

    def __init__(self, mechanism: str, missing: str, coordinate: str) -> None:
        super().__init__(
            f"sasl.mechanism {mechanism} needs the class {missing}, which this Spark session does "
            f"not have; set spark.conf: {{spark.jars.packages: {coordinate!r}}}, or start it with "
            f"--packages {coordinate}"
        )
        self.mechanism, self.missing, self.coordinate = mechanism, missing, coordinate


class TopicNotFound(SourceError, Permanent):
    """The topic does not exist, or this client may not see it."""

    def __init__(self, topic: str, bootstrap: str) -> None:
        super().__init__(
            f"there is no topic {topic} at {bootstrap}; correct source.topic, or create the topic, "
            f"for example with: kafka-topics.sh --bootstrap-server {bootstrap} --create --topic "
            f"{topic} (at a broker that lakemark has started: lakemark broker create-topic {topic})"
        )
        self.topic, self.bootstrap = topic, bootstrap


class NoTopicMatches(SourceError, Permanent):
    """No topic that this client may see matches ``source.topic_pattern``.

    Args:
        pattern: the pattern.
        bootstrap: the brokers.
        topics: the names of the topics that do not match.
    """

    def __init__(self, pattern: str, bootstrap: str, topics: Collection[str]) -> None:
        super().__init__(
            f"no topic at {bootstrap} matches source.topic_pattern {pattern} (which must match the "
            f"whole name); {_visible(topics)}; correct the pattern, create a topic that "
            "matches, or check the topics' access rules"
        )
        self.pattern, self.bootstrap, self.topics = pattern, bootstrap, tuple(topics)


def _visible(topics: Collection[str]) -> str:
    """Say which topics a client may see; topics of Kafka itself never match."""
    names = sorted(one for one in topics if not one.startswith("__"))
    more = ", …" if len(names) > _NAMED_TOPICS else ""
    return f"this client may see {', '.join(names[:_NAMED_TOPICS]) or 'no topic'}{more}"


class UnknownPartitions(SourceError, Permanent):
    """``source.starting_offsets`` names partitions that the topic does not have."""

    def __init__(self, topic: str, partitions: Collection[int], count: int) -> None:
        named = ", ".join(map(str, sorted(partitions)))
        super().__init__(
            f"source.starting_offsets names partition {named} of topic {topic}, which has "
            f"{count} (0 to {count - 1})"
        )
        self.topic, self.partitions, self.count = topic, frozenset(partitions), count


class EndingPassed(SourceError, Permanent):
    """The table contains records at or after ``source.ending_offsets``."""

    def __init__(self, topic: str, partition: int, read: int, ending: int) -> None:
        super().__init__(
            f"the table has read partition {partition} of topic {topic} up to offset {read}, past "
            f"source.ending_offsets, {ending}; name later offsets"
        )
        self.topic, self.partition, self.read, self.ending = topic, partition, read, ending


class EndingNotReached(SourceError, Permanent):
    """A partition does not have its offset of ``source.ending_offsets``, or does not exist."""

    def __init__(self, topic: str, partition: int, end: int | None, ending: int) -> None:
        found = f"has no partition {partition}" if end is None else f"ends at offset {end} there"
        super().__init__(
            f"source.ending_offsets ends partition {partition} at {ending}, but topic {topic} "
            f"{found}; correct the offsets, or run again later if a transaction is still open"
        )
        self.topic, self.partition, self.end, self.ending = topic, partition, end, ending


class ForeignCheckpoint(SourceError, Permanent):
    """The table's checkpoint belongs to another topic."""

    def __init__(self, topic: str, checkpoint: str) -> None:
        super().__init__(
            f"the table's checkpoint {checkpoint} belongs to another topic than source.topic, "
            f"{topic}; set a different source.checkpoint_id in each pipeline of the table"
        )
        self.topic, self.checkpoint = topic, checkpoint


class SnapshotUnread(SourceError, Permanent):
    """A snapshot must be read, or read completely, before the topic."""

    def __init__(self, topic: str, position: str | None) -> None:
        if position is None:
            text = (
                "the table records no position, perhaps because it was reset. Start the run again, "
                "so that it reads the snapshot first"
            )
        else:
            text = (
                f"the table has begun to read a snapshot, up to {position[:_SHOWN]}. Run the "
                "pipeline with its section snapshot, which reads the rest; or set the offsets at "
                "which to read the topic instead, with lakemark checkpoint set --run"
            )
        super().__init__(f"topic {topic} cannot be read yet: {text}")
        self.topic, self.position = topic, position


class TopicReplaced(SourceError, Retriable):
    """The topic was created again under the same name, or became shorter, while a batch was read.

    The next start determines the lost ranges, and whether the run may continue.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the topic was replaced since this run started: {reason}")
        self.reason = reason


#: How many characters of a position a message shows.
_SHOWN = 200

_OR_BY_POLICY = (
    "let the next run start at source.starting_offsets with lakemark checkpoint reset --run, or "
    "set source.on_offset_out_of_range to earliest or latest to continue at that end of"
)


class TopicRecreated(SourceError, Permanent):
    """The topic was created again, so that the table's offsets now belong to other records."""

    def __init__(self, topic: str, read: str, found: str) -> None:
        super().__init__(
            f"topic {topic} was created again: the table has read a topic with id {read}, but the "
            f"current topic has id {found}; {_OR_BY_POLICY} all partitions"
        )
        self.topic, self.read, self.found = topic, read, found


class LostOffsets(SourceError, Permanent):
    """The topic has lost records that this pipeline had not read."""

    def __init__(self, topic: str, lost: Sequence[LostRange]) -> None:
        ranges = "; ".join(map(str, lost))
        super().__init__(
            f"topic {topic} no longer has records that were not read yet: {ranges}; "
            f"{_OR_BY_POLICY} these partitions"
        )
        self.topic, self.lost = topic, tuple(lost)


class RecordsWithheld(SourceError, Retriable):
    """The topic has a record in the range of a batch that was not read with the batch."""

    def __init__(self, topic: str, gap: OffsetGap, offset: int) -> None:
        super().__init__(
            f"topic {topic} has a record at offset {offset} of partition {gap.partition}, but the "
            f"batch was read without offsets {gap.begin} to {gap.end - 1}; the batch was not "
            "published, and is read again"
        )
        self.topic, self.gap, self.offset = topic, gap, offset


class GapCheckFailed(SourceError, Retriable):
    """The broker did not answer whether a topic has records at offsets that were not read."""

    def __init__(self, topic: str, gaps: Sequence[OffsetGap], reason: str) -> None:
        super().__init__(
            f"cannot check whether topic {topic} has records at {_ranges(gaps)}: {reason}; the "
            "batch was not published, and is read again"
        )
        self.topic, self.gaps, self.reason = topic, tuple(gaps), reason


class OffsetsWithoutRecord(SourceError, Permanent):
    """Some offsets of a batch have no record, and the pipeline does not accept such gaps."""

    def __init__(self, topic: str, gaps: Sequence[OffsetGap]) -> None:
        super().__init__(
            f"topic {topic} has no record at {_ranges(gaps)}, and source.on_missing_offsets is "
            "fail; the batch was not published. If transactions or compaction leave such gaps in "
            "the topic, set this to accept; otherwise the broker has lost records"
        )
        self.topic, self.gaps = topic, tuple(gaps)


class DamagedOffsetLog(SourceError, Permanent):
    """Spark's offset log is not in the known format."""

    def __init__(self, path: str, expected: str, actual: str) -> None:
        super().__init__(
            f"{path}: expected {expected}, found {actual}; use a supported version of Spark"
        )
        self.path, self.expected, self.actual = path, expected, actual


def _ranges(gaps: Sequence[OffsetGap]) -> str:
    return "; ".join(
        f"partition {gap.partition}, offsets {gap.begin} to {gap.end - 1}" for gap in gaps
    )
