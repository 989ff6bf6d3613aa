"""What became of every offset of a batch; a batch whose numbers do not meet is not published.

Records are counted twice: where they are read, partition by partition, and where their changes
arrive to be written. What lies between may neither lose one nor make two of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from table.config import keys
from table.errors import Permanent

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("count", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("ignored", pa.int64()),
    ]
)


class AuditFailed(Permanent):
    """The numbers of a batch contradict each other; nothing of it was published."""

    def __init__(self, batch: str, contradiction: str) -> None:
        super().__init__(
            f"{batch}: {contradiction}; nothing of this batch was published, and the next start "
            "reads it again"
        )
        self.batch, self.contradiction = batch, contradiction


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """Records that were read of one partition.

    Attributes:
        count: how many.
        first: the lowest offset.
        last: the highest.
        ignored: tombstones among them that the pipeline ignores.
    """

    count: int
    first: int
    last: int
    ignored: int = 0

    def __add__(self, other: PartitionRead) -> PartitionRead:
        first, last = min(self.first, other.first), max(self.last, other.last)
        ignored = self.ignored + other.ignored
        return PartitionRead(self.count + other.count, first, last, ignored)


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """Records that were read, by partition of the topic."""

    partitions: Mapping[int, PartitionRead]

    @classmethod
    def in_chunk(cls, records: pa.Table, ignored: Mapping[int, int] | None = None) -> RecordsRead:
        """Counts raw records.

        Args:
            records: columns ``partition`` and ``offset``.
            ignored: how many of them are ignored, by partition.
        """
        asked = [("offset", kind) for kind in ("count", "min", "max")]
        counted = records.select(["partition", "offset"]).group_by("partition").aggregate(asked)
        names = ["partition", "offset_count", "offset_min", "offset_max"]
        columns = counted.select(names).columns
        passed_over = [(ignored or {}).get(p, 0) for p in columns[0].to_pylist()]
        return cls.of(pa.table([*columns, pa.array(passed_over, pa.int64())], schema=_SCHEMA))

    @classmethod
    def of(cls, table: pa.Table) -> RecordsRead:
        """What ``to_table`` made; a partition may be there several times."""
        rows = zip(*(table.column(name).to_pylist() for name in _SCHEMA.names), strict=True)
        return cls.merged(cls({p: PartitionRead(*numbers)}) for p, *numbers in rows)

    @classmethod
    def merged(cls, several: Iterable[RecordsRead]) -> RecordsRead:
        """All of them together."""
        partitions: dict[int, PartitionRead] = {}
        for read in several:
            for partition, more in read.partitions.items():
                known = partitions.get(partition)
                partitions[partition] = more if known is None else known + more
        return cls(partitions)

    def to_table(self) -> pa.Table:
        """One row for each partition, on its way to where all are merged."""
        rows = [
            (p, read.count, read.first, read.last, read.ignored)
            for p, read in self.partitions.items()
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
        arrays = [pa.array(c, t) for c, t in zip(columns, _SCHEMA.types, strict=True)]
        return pa.table(arrays, schema=_SCHEMA)

    @property
    def count(self) -> int:
        """Records of all partitions."""
        return sum(read.count for read in self.partitions.values())

    @property
    def ignored(self) -> int:
        """Ignored tombstones of all partitions."""
        return sum(read.ignored for read in self.partitions.values())


@dataclass(frozen=True, slots=True)
class Audit:
    """What became of a batch: ``offsets`` are the sum of the numbers that follow ``records``.

    Attributes:
        offsets: that the batch spans.
        records: that were there: all offsets but the skipped ones.
        written: changes in the files, deletes among them.
        merged: changes that others of the same key, or the table's own rows, made needless: older
            ones of the batch, late ones, deletes of what was not there.
        rejected: records that went to the dead letters.
        skipped: offsets without a record: aborted transactions and their marks, compacted records.
        ignored: tombstones, where ``decode.tombstones`` is ``ignore``.
    """

    offsets: int
    records: int
    written: int
    merged: int
    rejected: int
    skipped: int
    ignored: int = 0

    def to_json(self) -> str:
        """As a commit keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def in_commit(cls, extra_metadata: Mapping[str, str]) -> Audit | None:
        """What a commit keeps; None when that is nothing, or not readable."""
        with suppress(ValueError, TypeError):
            return cls(**json.loads(extra_metadata.get(keys.AUDIT, "")))
        return None


def audit(
    start: KafkaCheckpoint,
    end: KafkaCheckpoint,
    read: RecordsRead,
    arrived: int,
    written: int,
    rejected: int,
) -> Audit:
    """The numbers of a batch, once they agree.

    Args:
        start: next offset of each partition before the batch.
        end: the same after it.
        read: records, counted where they were read.
        arrived: changes for the table, counted where they were written.
        written: of these, the ones in the files.
        rejected: records for the dead letters, counted where they were written.

    Raises:
        AuditFailed: they do not agree.
    """
    span = f"batch {start} to {end}"
    for partition, found in sorted(read.partitions.items()):
        first, stop = start.offsets.get(partition, 0), end.offsets.get(partition, 0)
        if not first <= found.first <= found.last < stop or found.count > stop - first:
            raise AuditFailed(
                span,
                f"partition {partition} gave {found.count} records from offset {found.first} to "
                f"{found.last}, which do not fit into {first} to {stop - 1}",
            )
    if read.count != arrived + rejected + read.ignored:
        ignored = f", and {read.ignored} were ignored" if read.ignored else ""
        raise AuditFailed(
            span,
            f"{read.count} records were read, {arrived} and {rejected} rejected ones arrived"
            f"{ignored}",
        )
    if written > arrived:
        raise AuditFailed(span, f"{written} changes were written, and {arrived} arrived")
    offsets = sum(end.distance_from(start).values())
    merged, skipped = arrived - written, offsets - read.count
    return Audit(offsets, read.count, written, merged, rejected, skipped, read.ignored)
