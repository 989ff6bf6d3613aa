"""Accounts for each offset of a batch, and refuses a batch whose numbers contradict each other.

A batch consists of parts with numbered records: the partitions of a topic, or the files of a
folder. Records are counted twice: by part when they are read, and by bucket when their
changes are written. So the audit notices a record that is lost or doubled in between. Transforms
may filter records, or make several rows of one record. Both are counted where they happen. If the
keys of a batch are looked up together, the changes are counted a third time, before the lookup
drops changes without an effect and adds the deletes of rows that move.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config import keys
from lakemark.errors import Permanent
from transforms.raw_records import offsets_by_part

#: The offsets of each part of a batch: the first one, and the one after the last.
Spans: TypeAlias = Mapping[int, tuple[int, int]]

_SCHEMA = pa.schema(
    [
        ("partition", pa.int32()),
        ("count", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("ignored", pa.int64()),
        ("filtered", pa.int64()),
        ("added_rows", pa.int64()),
        ("gaps", pa.list_(pa.int64())),
    ]
)


class AuditFailed(Permanent):
    """The numbers of a batch contradict each other. Nothing of the batch was published."""

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
        partition: the partition of the topic.
        begin: the first offset.
        end: the offset after the last one.
    """

    partition: int
    begin: int
    end: int


_NONE: Mapping[int, int] = {}

#: The numbers of an audit that are 0 in a pipeline without transforms, and without a route.
_OPTIONAL = ("filtered", "added_rows", "elsewhere")

#: The offsets ``begin`` and ``end`` of a gap.
_Gap: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """The records that were read from one partition.

    Attributes:
        count: the number of records.
        first: the lowest offset.
        last: the highest offset.
        ignored: the number of tombstones that the pipeline ignores.
        filtered: the number of records that the transforms drop on purpose.
        added_rows: the number of rows that the transforms add, which is one less than the number of
            rows of each record that became rows.
        gaps: ranges of offsets without a record between first and last: only the lowest range and
            the widest one, so that the size does not grow with the number of gaps.
    """

    count: int
    first: int
    last: int
    ignored: int = 0
    filtered: int = 0
    added_rows: int = 0
    gaps: tuple[_Gap, ...] = ()

    def __add__(self, later: PartitionRead) -> PartitionRead:
        """Merge with records that begin at the same offset or a later one.

        If the two ranges overlap, one may have the records that the other lacks. So gaps in the
        overlap are dropped.
        """
        between = [(self.last + 1, later.first)] if self.last + 1 < later.first else []
        own = [gap for gap in self.gaps if gap[1] <= later.first]
        other = [gap for gap in later.gaps if gap[0] > self.last]
        return PartitionRead(
            count=self.count + later.count,
            first=min(self.first, later.first),
            last=max(self.last, later.last),
            ignored=self.ignored + later.ignored,
            filtered=self.filtered + later.filtered,
            added_rows=self.added_rows + later.added_rows,
            gaps=_lowest_and_widest([*own, *between, *other]),
        )


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The records that were read, by partition of the topic."""

    partitions: Mapping[int, PartitionRead]

    @classmethod
    def in_chunk(
        cls,
        records: pa.Table,
        ignored: Mapping[int, int] = _NONE,
        filtered: Mapping[int, int] = _NONE,
        added_rows: Mapping[int, int] = _NONE,
    ) -> RecordsRead:
        """Count raw records.

        Args:
            records: raw records; see ``transforms.raw_records``.
            ignored: the number of ignored records of each part.
            filtered: the number of filtered records of each part.
            added_rows: the number of added rows of each part.
        """
        return cls(
            {
                partition: PartitionRead(
                    count=len(offsets),
                    first=int(offsets[0]),
                    last=int(offsets[-1]),
                    ignored=ignored.get(partition, 0),
                    filtered=filtered.get(partition, 0),
                    added_rows=added_rows.get(partition, 0),
                    gaps=_gaps(offsets),
                )
                for partition, offsets in offsets_by_part(records)
            }
        )

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> RecordsRead:
        """Merge the tables that ``to_table`` returned for chunks, in any order."""
        return cls._of_pieces(piece for table in tables for piece in _pieces(table))

    @classmethod
    def merged(cls, several: Iterable[RecordsRead]) -> RecordsRead:
        """Merge the counts of several chunks, in any order."""
        return cls._of_pieces(piece for read in several for piece in read.partitions.items())

    @classmethod
    def _of_pieces(cls, pieces: Iterable[tuple[int, PartitionRead]]) -> RecordsRead:
        partitions: dict[int, PartitionRead] = {}
        for partition, more in sorted(pieces, key=lambda piece: piece[1].first):
            known = partitions.get(partition)
            partitions[partition] = more if known is None else known + more
        return cls(partitions)

    def to_table(self) -> pa.Table:
        """Return a table with one row for each partition."""
        rows = [
            (
                partition,
                read.count,
                read.first,
                read.last,
                read.ignored,
                read.filtered,
                read.added_rows,
                [*chain.from_iterable(read.gaps)],
            )
            for partition, read in self.partitions.items()
        ]
        columns = zip(*rows, strict=True) if rows else [()] * len(_SCHEMA)
        arrays = [pa.array(c, t) for c, t in zip(columns, _SCHEMA.types, strict=True)]
        return pa.table(arrays, schema=_SCHEMA)

    @property
    def count(self) -> int:
        """The number of records in all partitions."""
        return sum(read.count for read in self.partitions.values())

    @property
    def ignored(self) -> int:
        """The number of ignored tombstones in all partitions."""
        return sum(read.ignored for read in self.partitions.values())

    @property
    def filtered(self) -> int:
        """The number of filtered records in all partitions."""
        return sum(read.filtered for read in self.partitions.values())

    @property
    def added_rows(self) -> int:
        """The number of added rows in all partitions."""
        return sum(read.added_rows for read in self.partitions.values())

    def gaps(self, spans: Spans) -> list[OffsetGap]:
        """Return the lowest and the widest gap of each part of a batch."""
        return [
            OffsetGap(part, *gap)
            for part, (begin, end) in spans.items()
            for gap in self._gaps_of(part, begin, end)
        ]

    def _gaps_of(self, partition: int, begin: int, end: int) -> tuple[_Gap, ...]:
        read = self.partitions.get(partition)
        if read is None:
            return ((begin, end),) if begin < end else ()
        edges = [(begin, read.first), (read.last + 1, end)]
        return _lowest_and_widest([*read.gaps, *(edge for edge in edges if edge[0] < edge[1])])


def _pieces(table: pa.Table) -> Iterator[tuple[int, PartitionRead]]:
    for row in table.to_pylist():
        partition, flat = row.pop("partition"), row.pop("gaps")
        gaps = tuple(zip(flat[::2], flat[1::2], strict=True))
        yield partition, PartitionRead(**row, gaps=gaps)


def _gaps(offsets: npt.NDArray[np.int64]) -> tuple[_Gap, ...]:
    """Return the lowest and the widest gap between distinct offsets in ascending order."""
    if len(offsets) >= offsets[-1] - offsets[0] + 1:
        return ()
    steps = np.diff(offsets)
    found = [int(np.argmax(steps > 1)), int(np.argmax(steps))]
    return _lowest_and_widest([(int(offsets[n]) + 1, int(offsets[n + 1])) for n in found])


def _lowest_and_widest(gaps: Sequence[_Gap]) -> tuple[_Gap, ...]:
    if not gaps:
        return ()
    lowest, widest = min(gaps), max(gaps, key=lambda gap: (gap[1] - gap[0], -gap[0]))
    return (lowest,) if lowest == widest else (lowest, widest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCounts:
    """The changes of a batch whose keys were looked up together, and how many are to be written.

    Attributes:
        changes: the number of changes before the lookup.
        repeated: the number of changes whose key another change of the batch has, too, if the
            changes are folded to one of each key. It is counted from the changes, not from the
            result of the fold.
        late: the number of keys whose change lost to a row of another partition.
        absent: the number of keys that were only deleted and had no row in any partition.
        stored: the number of records that an insert skipped, because their keys were stored.
        moved: the number of rows that moved. Each move adds a delete of the old row.
    """

    changes: int
    repeated: int = 0
    late: int = 0
    absent: int = 0
    stored: int = 0
    moved: int = 0

    @classmethod
    def of_folded(
        cls, record_keys: pa.ChunkedArray, *, late: int, absent: int, moved: int
    ) -> ChangeCounts:
        """Count changes and their repeated keys; the other numbers are those of the fold."""
        changes = len(record_keys)
        repeated = changes - pc.count_distinct(record_keys).as_py()
        return cls(changes=changes, repeated=repeated, late=late, absent=absent, moved=moved)

    @classmethod
    def from_table(cls, table: pa.Table) -> ChangeCounts:
        """Return the counts that ``to_table`` put into a table."""
        return cls(**table.to_pylist()[0])

    def to_table(self) -> pa.Table:
        """Return a table with one row."""
        return pa.Table.from_pylist([asdict(self)])

    @property
    def to_write(self) -> int:
        """The number of changes that are to be written, including the deletes of moved rows."""
        dropped = self.repeated + self.late + self.absent + self.stored
        return self.changes - dropped + self.moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The numbers of a batch.

    The numbers after ``records`` add up to ``offsets``, except ``added_rows``, which is subtracted.

    Attributes:
        offsets: the number of offsets of the batch.
        records: the number of records that were read. Only skipped and lost offsets have no record.
        written: the number of changes in the files, including deletes, but without the deletes that
            moves of rows add.
        merged: the number of changes without an effect, because a newer change of the key won,
            because the key to delete did not exist, or because the key to insert was stored.
        rejected: the number of records in the dead letters.
        skipped: the number of offsets at which the topic has no record, because of aborted
            transactions, transaction markers or log compaction.
        ignored: the number of tombstones that are ignored (``decode.tombstones: ignore``).
        lost: the number of offsets whose records, if they existed, were deleted before they were
            read.
        filtered: the number of records that the transforms dropped on purpose.
        added_rows: the number of changes that the transforms added, because they made several rows
            of one record.
        elsewhere: the number of offsets between the records whose records belong to other tables,
            or which have no record, if a route divides the topic.
    """

    offsets: int
    records: int
    written: int
    merged: int
    rejected: int
    skipped: int
    ignored: int = 0
    lost: int = 0
    filtered: int = 0
    added_rows: int = 0
    elsewhere: int = 0

    def to_json(self) -> str:
        """Return the audit in the form in which a commit stores it.

        The numbers of transforms and routes are omitted if they are 0.
        """
        numbers = {n: c for n, c in asdict(self).items() if c or n not in _OPTIONAL}
        return json.dumps(numbers, separators=(",", ":"))

    def with_lost(self, ranges: Iterable[Mapping[str, object]]) -> Audit:
        """Count some of the skipped offsets as lost.

        Args:
            ranges: facts about each lost range; ``count`` is its number of offsets.
        """
        counts = (lost["count"] for lost in ranges)
        lost = min(sum(count for count in counts if isinstance(count, int)), self.skipped)
        return replace(self, skipped=self.skipped - lost, lost=self.lost + lost)

    def with_elsewhere(self, count: int) -> Audit:
        """Count some of the skipped offsets as those of other tables' records."""
        return replace(self, skipped=self.skipped - count, elsewhere=count)

    @classmethod
    def in_commit(cls, extra_metadata: Mapping[str, str]) -> Audit | None:
        """Return the audit that a commit stores; None if there is none or it is not readable."""
        with suppress(ValueError, TypeError):
            return cls(**json.loads(extra_metadata.get(keys.AUDIT, "")))
        return None


#: The audit of a commit that contains no rows and only records where reading starts.
NOTHING_READ = Audit(offsets=0, records=0, written=0, merged=0, rejected=0, skipped=0)


def audit(
    batch: str,
    spans: Spans,
    read: RecordsRead,
    arrived: int,
    written: int,
    rejected: int,
    counts: ChangeCounts | None = None,
) -> Audit:
    """Check the numbers of a batch, and return them as an audit.

    Args:
        batch: a description of the batch, for the error.
        spans: the offsets of the batch.
        read: the records, counted when they were read.
        arrived: the number of changes of the table, counted when they were written.
        written: the number of changes in the files.
        rejected: the number of records for the dead letters, counted when they were written.
        counts: the changes that were looked up together; None with a bucket index.

    Raises:
        AuditFailed: the numbers contradict each other.
    """
    for partition, found in sorted(read.partitions.items()):
        first, stop = spans.get(partition, (0, 0))
        if not first <= found.first <= found.last < stop or found.count > stop - first:
            raise AuditFailed(
                batch,
                f"partition {partition} gave {found.count} records from offset {found.first} to "
                f"{found.last}, which do not fit into {first} to {stop - 1}",
            )
    accepted = counts.changes if counts else arrived
    if read.count + read.added_rows != accepted + rejected + read.ignored + read.filtered:
        raise AuditFailed(batch, _difference(read, accepted, rejected))
    if counts and arrived != counts.to_write:
        raise AuditFailed(
            batch,
            f"{counts.changes} changes ({counts.repeated} repeated, {counts.late} late, "
            f"{counts.absent} absent, {counts.stored} stored, {counts.moved} moved) are "
            f"{counts.to_write} to write, but {arrived} arrived",
        )
    if written > arrived:
        raise AuditFailed(batch, f"{written} changes were written, but only {arrived} arrived")
    if counts:  # the delete of a moved row is no record of the batch
        written = max(written - counts.moved, 0)
    offsets = sum(end - begin for begin, end in spans.values())
    merged, skipped = accepted - written, offsets - read.count
    return Audit(
        offsets=offsets,
        records=read.count,
        written=written,
        merged=merged,
        rejected=rejected,
        skipped=skipped,
        ignored=read.ignored,
        filtered=read.filtered,
        added_rows=read.added_rows,
    )


def _difference(read: RecordsRead, arrived: int, rejected: int) -> str:
    ignored = f", and {read.ignored} were ignored" if read.ignored else ""
    filtered = f", and {read.filtered} were filtered" if read.filtered else ""
    added = f", with {read.added_rows} added rows" if read.added_rows else ""
    return (
        f"{read.count} records were read{added}, but {arrived} accepted and {rejected} rejected "
        f"records arrived{ignored}{filtered}"
    )
