"""Explains a query: which file groups it reads, and why it skips the others.

The explanation runs the plan of the query. Then it compares the plan with the file groups that the
same query without a condition reads, and runs each step of the pruning alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.read.pruning import SlicePruner
from lakemark.read.queries import Query
from lakemark.read.scan_planner import ScanPlanner


class SkipReason(StrEnum):
    """Why a query does not read a file group.

    ``QUERY``: the file group has no file in the range of an incremental query, as of the time of a
    time travel query, or no base file for a read-optimized query. ``PARTITION``: no row of the
    partition meets the condition. ``BUCKET``: the record keys belong to other buckets.
    ``RECORD_INDEX``: the record index has none of the record keys in the file group.
    ``SECONDARY_INDEX``: a secondary index has none of the values in the file group.
    ``STATISTICS``: the column statistics show that no row meets the condition. ``BLOOM_FILTER``:
    the key range and the Bloom filter of the base file show that it has none of the record keys, or
    the bloom filters of an expression index show that the slice has none of the values.
    """

    QUERY = "query"
    PARTITION = "partition"
    BUCKET = "bucket"
    RECORD_INDEX = "record_index"
    SECONDARY_INDEX = "secondary_index"
    STATISTICS = "statistics"
    BLOOM_FILTER = "bloom_filter"

    @property
    def how(self) -> str:
        """How such file groups are skipped, as the end of ``skips 2 …``."""
        if self is SkipReason.QUERY:
            return "without a file for this query"
        return f"by {self.value.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class SkippedSlice:
    """A file slice that a query does not read.

    Attributes:
        file_slice: the file slice; if the query is not of the latest rows and reads no slice of
            the file group, the latest one.
        reason: why it is skipped; the first reason in the order of ``SkipReason``.
        columns: for ``STATISTICS``, each column whose statistics alone show that no row matches. If
            only several columns together show it, all columns of the condition with statistics.
    """

    file_slice: FileSlice
    reason: SkipReason
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The file slices that a query reads, and those that it skips.

    Attributes:
        read: the file slices that the query reads.
        skipped: the other file slices.
    """

    read: tuple[FileSlice, ...]
    skipped: tuple[SkippedSlice, ...]

    def __str__(self) -> str:
        count = len(self.read) + len(self.skipped)
        reasons = [one.reason for one in self.skipped]
        by_reason = [
            f"{reasons.count(reason)} {reason.how}" for reason in SkipReason if reason in reasons
        ]
        skipped = f"; skips {', '.join(by_reason)}" if by_reason else ""
        return f"reads {len(self.read)} of {count} file group{'' if count == 1 else 's'}{skipped}"


def explain(
    planner: ScanPlanner,
    query: Query,
    condition: pc.Expression | None,
    record_keys: pa.Array | None = None,
) -> Explanation:
    """Explain which file groups a query reads.

    Arguments and errors are as for ``ScanPlanner.plan``.
    """
    scan = planner.plan(query, None, condition, record_keys)
    queried = planner.without_demands().plan(query, None, None).slices
    groups, read = ({one.group for one in slices} for slices in (queried, scan.slices))
    skipped = [
        SkippedSlice(one, SkipReason.QUERY)
        for one in planner.view.latest_slices()
        if one.group not in groups
    ]
    left = [one for one in queried if one.group not in read]
    if left and scan.condition is not None:
        pruner = planner.create_pruner(scan.reader.schema)
        by_key = [
            (SkipReason.BUCKET, planner.find_slices_by_hash(left, query)),
            (SkipReason.RECORD_INDEX, planner.find_slices_of_keys(left)),
            (SkipReason.SECONDARY_INDEX, planner.find_slices_by_value(left)),
        ]
        found = {reason: {one.group for one in slices} for reason, slices in by_key}
        skipped += _skipped(pruner, left, scan.condition, found)
    return Explanation(scan.slices, tuple(skipped))


def _skipped(
    pruner: SlicePruner,
    slices: Sequence[FileSlice],
    condition: pc.Expression,
    found: Mapping[SkipReason, Collection[FileGroupId]],
) -> Iterator[SkippedSlice]:
    """Yield the reason for each slice that the pruning skips.

    Args:
        pruner: the pruner of the query.
        slices: slices that the query skips.
        condition: the condition on rows, including the one on record keys.
        found: for each index, the file groups in which it finds one of the keys or values.
    """
    paths = set(pruner.select_partitions({s.group.partition_path for s in slices}, condition))
    columns = pruner.excluding_columns(slices, condition)
    for one, excluding in zip(slices, columns, strict=True):
        if one.group.partition_path not in paths:
            yield SkippedSlice(one, SkipReason.PARTITION)
        elif missing := [reason for reason, groups in found.items() if one.group not in groups]:
            yield SkippedSlice(one, missing[0])
        elif excluding:
            yield SkippedSlice(one, SkipReason.STATISTICS, excluding)
        else:  # the last step of the pruning, which is not repeated here because it reads files
            yield SkippedSlice(one, SkipReason.BLOOM_FILTER)
