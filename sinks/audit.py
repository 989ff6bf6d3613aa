"""What became of every offset of a batch; a batch whose numbers do not meet is not published.

Records are counted twice: where they are read, partition by partition, and where their changes
arrive to be written. What lies between may neither lose one nor make two of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.config import keys
from lakemark.errors import Permanent

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("count", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("ignored", pa.int64()),
        ("gaps", pa.list_(pa.int64())),
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
class OffsetGap:
    """Offsets of a partition at which no record was read.

    Attributes:
        partition: of the topic.
        begin: the first of them.
        end: the offset after the last.
    """

    partition: int
    begin: int
    end: int


#: ``begin`` and ``end`` of a gap.
_Gap: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartitionRead:
    """Records that were read of one partition.

    Attributes:
        count: how many.
        first: the lowest offset.
        last: the highest.
        ignored: tombstones among them that the pipeline ignores.
        gaps: between these two, the lowest and the widest range of offsets without a record, so
            that the size does not grow with the number of gaps.
    """

    count: int
    first: int
    last: int
    ignored: int = 0
    gaps: tuple[_Gap, ...] = ()

    def __add__(self, later: PartitionRead) -> PartitionRead:
        """Both together; ``later`` begins no earlier than this one.

        If they overlap, one may hold what the other lacks: such gaps are dropped.
        """
        between = [(self.last + 1, later.first)] if self.last + 1 < later.first else []
        own = [gap for gap in self.gaps if gap[1] <= later.first]
        theirs = [gap for gap in later.gaps if gap[0] > self.last]
        return PartitionRead(
            self.count + later.count,
            min(self.first, later.first),
            max(self.last, later.last),
            self.ignored + later.ignored,
            _lowest_and_widest([*own, *between, *theirs]),
        )


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
        records = records.select(["partition", "offset"])
        asked = [("offset", kind) for kind in ("count", "min", "max")]
        counted = records.group_by("partition").aggregate(asked)
        names = ["partition", "offset_count", "offset_min", "offset_max"]
        rows = zip(*(counted.column(name).to_pylist() for name in names), strict=True)
        return cls(
            {
                p: PartitionRead(*span, (ignored or {}).get(p, 0), _gaps(records, p, *span))
                for p, *numbers in rows
                for span in [(numbers[0], numbers[1], numbers[2])]
            }
        )

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> RecordsRead:
        """What ``to_table`` made of each chunk; in any order."""
        return cls._of_pieces(piece for table in tables for piece in _pieces(table))

    @classmethod
    def merged(cls, several: Iterable[RecordsRead]) -> RecordsRead:
        """All of them together."""
        return cls._of_pieces(piece for read in several for piece in read.partitions.items())

    @classmethod
    def _of_pieces(cls, pieces: Iterable[tuple[int, PartitionRead]]) -> RecordsRead:
        partitions: dict[int, PartitionRead] = {}
        for partition, more in sorted(pieces, key=lambda piece: piece[1].first):
            known = partitions.get(partition)
            partitions[partition] = more if known is None else known + more
        return cls(partitions)

    def to_table(self) -> pa.Table:
        """One row for each partition, on its way to where all are merged."""
        rows = [
            (p, read.count, read.first, read.last, read.ignored, [*chain.from_iterable(read.gaps)])
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

    def gaps(self, start: KafkaCheckpoint, end: KafkaCheckpoint) -> list[OffsetGap]:
        """The lowest and the widest gap of each partition between two checkpoints."""
        return [
            OffsetGap(partition, *gap)
            for partition, stop in end.offsets.items()
            for gap in self._gaps_of(partition, start.offsets.get(partition, 0), stop)
        ]

    def _gaps_of(self, partition: int, begin: int, end: int) -> tuple[_Gap, ...]:
        read = self.partitions.get(partition)
        if read is None:
            return ((begin, end),) if begin < end else ()
        edges = [(begin, read.first), (read.last + 1, end)]
        return _lowest_and_widest([*read.gaps, *(edge for edge in edges if edge[0] < edge[1])])


def _pieces(table: pa.Table) -> Iterator[tuple[int, PartitionRead]]:
    for p, count, first, last, ignored, flat in zip(
        *(table.column(name).to_pylist() for name in _SCHEMA.names), strict=True
    ):
        gaps = tuple(zip(flat[::2], flat[1::2], strict=True))
        yield p, PartitionRead(count, first, last, ignored, gaps)


def _gaps(records: pa.Table, partition: int, count: int, first: int, last: int) -> tuple[_Gap, ...]:
    """The lowest and the widest gap of a partition in a chunk; the offsets are distinct."""
    if count >= last - first + 1:
        return ()
    mask = pc.equal(records["partition"], partition)
    offsets = records["offset"].filter(mask).combine_chunks()
    offsets = offsets.take(pc.sort_indices(offsets))
    steps = pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
    is_gap = pc.greater(steps, 1)
    places = [pc.index(is_gap, True).as_py(), pc.index(steps, pc.max(steps)).as_py()]
    found = [(offsets[n].as_py() + 1, offsets[n + 1].as_py()) for n in places]
    return _lowest_and_widest(found)


def _lowest_and_widest(gaps: Sequence[_Gap]) -> tuple[_Gap, ...]:
    if not gaps:
        return ()
    lowest, widest = min(gaps), max(gaps, key=lambda gap: (gap[1] - gap[0], -gap[0]))
    return (lowest,) if lowest == widest else (lowest, widest)


@dataclass(frozen=True, slots=True)
class Audit:
    """What became of a batch: ``offsets`` are the sum of the numbers that follow ``records``.

    Attributes:
        offsets: that the batch spans.
        records: that were read: all offsets but the skipped and the lost ones.
        written: changes in the files, deletes among them.
        merged: changes that others of the same key, or the table's own rows, made needless: older
            ones of the batch, late ones, deletes of what was not there.
        rejected: records that went to the dead letters.
        skipped: offsets at which the topic has no record: aborted transactions and their marks,
            compacted records.
        ignored: tombstones, where ``decode.tombstones`` is ``ignore``.
        lost: offsets whose records, if there were any, were deleted before they were read.
    """

    offsets: int
    records: int
    written: int
    merged: int
    rejected: int
    skipped: int
    ignored: int = 0
    lost: int = 0

    def to_json(self) -> str:
        """As a commit keeps it."""
        return json.dumps(asdict(self), separators=(",", ":"))

    def with_lost(self, ranges: Iterable[Mapping[str, object]]) -> Audit:
        """The same after some of the skipped offsets turned out to be lost.

        Args:
            ranges: facts on each lost range; ``count`` is how many offsets are in it.
        """
        counts = (lost["count"] for lost in ranges)
        lost = min(sum(count for count in counts if isinstance(count, int)), self.skipped)
        return replace(self, skipped=self.skipped - lost, lost=self.lost + lost)

    @classmethod
    def in_commit(cls, extra_metadata: Mapping[str, str]) -> Audit | None:
        """What a commit keeps; None when that is nothing, or not readable."""
        with suppress(ValueError, TypeError):
            return cls(**json.loads(extra_metadata.get(keys.AUDIT, "")))
        return None


#: The audit of a commit that only records where reading starts.
NOTHING_READ = Audit(0, 0, 0, 0, 0, 0)


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
