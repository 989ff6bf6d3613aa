"""The position up to which a table has read a Kafka topic.

The text of a checkpoint is ``topic,0:123,1:456``: the next offset to read of each partition, sorted
by partition (Apache Hudi's ``KafkaOffsetGen.CheckpointUtils``). Offsets are positions in Kafka's
log. They do not count records, because transactional and compacted topics have gaps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from checkpoints.position import Position

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PARTITION = re.compile(r"(\d{1,10}):(\d{1,19})", re.ASCII)
_LARGEST_PARTITION, _LARGEST_OFFSET = 2**31 - 1, 2**63 - 1


@dataclass(frozen=True, eq=False)
class KafkaCheckpoint(Position):
    """The next offset to read of each partition of one topic. Immutable and hashable.

    ``a <= b`` is true if ``b`` has the same topic and every partition of ``a``, and no smaller
    offset in any of these partitions. So there are checkpoints of which neither is ``<=`` the
    other.

    Attributes:
        topic: the name of the topic.
        offsets: the next offset of each partition, sorted by partition.

    Raises:
        ValueError: Kafka does not allow the name of the topic, or a number is negative.
    """

    topic: str
    offsets: Mapping[int, int]

    def __post_init__(self) -> None:
        if _TOPIC.fullmatch(self.topic) is None:
            message = f"{self.topic!r} is not the name of a Kafka topic"
            raise ValueError(message)
        if any(number < 0 for pair in self.offsets.items() for number in pair):
            message = f"negative partition or offset in {dict(self.offsets)}"
            raise ValueError(message)
        ordered = MappingProxyType(dict(sorted(self.offsets.items())))
        object.__setattr__(self, "offsets", ordered)

    @classmethod
    def parse(cls, text: str) -> KafkaCheckpoint:
        """Parse the text form of a checkpoint, which Apache Hudi's streamer also writes.

        Raises:
            ValueError: the text is not ``topic,partition:offset,…``. The message quotes the part
                that is wrong.
        """
        topic, *parts = text.split(",")
        offsets: dict[int, int] = {}
        for part in parts:
            match = _PARTITION.fullmatch(part)
            if match is None or int(match[1]) in offsets or not _fits_kafkas_types(match):
                message = f"expected topic,partition:offset,… and found {part!r} in {text!r}"
                raise ValueError(message)
            offsets[int(match[1])] = int(match[2])
        return cls(topic, offsets)

    @property
    def origin(self) -> str:
        """The name of the topic."""
        return self.topic

    @property
    def offsets_by_partition(self) -> Mapping[int, int]:
        """The same as ``offsets``."""
        return self.offsets

    @property
    def summary(self) -> str:
        """The next offset of each partition: ``0:123, 1:456``."""
        return ", ".join(f"{partition}:{offset}" for partition, offset in self.offsets.items())

    @property
    def is_known_to_apache(self) -> bool:
        """True: Apache Hudi's streamer writes the same text."""
        return True

    def advanced_by(self, records: Mapping[int, int]) -> KafkaCheckpoint:
        """Return the checkpoint after these numbers of records were read from its partitions.

        A partition that the checkpoint does not contain begins at 0.

        Raises:
            ValueError: a count is negative.
        """
        if any(count < 0 for count in records.values()):
            message = f"a checkpoint only moves forward, not by {dict(records)}"
            raise ValueError(message)
        partitions = self.offsets.keys() | records.keys()
        return KafkaCheckpoint(
            self.topic, {p: self.offsets.get(p, 0) + records.get(p, 0) for p in partitions}
        )

    def distance_from(self, earlier: KafkaCheckpoint) -> dict[int, int]:
        """Count the offsets from ``earlier`` to this checkpoint, for each partition.

        If ``earlier`` does not have a partition, the partition's offsets are counted from 0.

        Raises:
            ValueError: ``earlier`` is later than this checkpoint, or belongs to another topic.
        """
        if not earlier <= self:
            message = f"checkpoint {earlier} is not before {self}"
            raise ValueError(message)
        return {p: offset - earlier.offsets.get(p, 0) for p, offset in self.offsets.items()}

    def __str__(self) -> str:
        return ",".join([self.topic, *(f"{p}:{offset}" for p, offset in self.offsets.items())])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KafkaCheckpoint):
            return NotImplemented
        return self.topic == other.topic and self.offsets == other.offsets

    def __hash__(self) -> int:
        return hash((self.topic, tuple(self.offsets.items())))

    def __le__(self, other: KafkaCheckpoint) -> bool:
        return self.topic == other.topic and all(
            offset <= other.offsets.get(partition, -1) for partition, offset in self.offsets.items()
        )

    def __lt__(self, other: KafkaCheckpoint) -> bool:
        return self <= other and self != other

    def __reduce__(self) -> tuple[type[KafkaCheckpoint], tuple[str, dict[int, int]]]:
        return (KafkaCheckpoint, (self.topic, dict(self.offsets)))


def _fits_kafkas_types(pair: re.Match[str]) -> bool:
    """Return whether both numbers fit Kafka's types; a run could not start from larger numbers."""
    return int(pair[1]) <= _LARGEST_PARTITION and int(pair[2]) <= _LARGEST_OFFSET
