"""Chooses the file slices of a compaction plan.

Source: the classes of ``org.apache.hudi.table.action.compact.strategy`` of Apache Hudi 1.2.0.
``SliceChoice`` combines what they do one by one. Unlike ``DayBasedCompactionStrategy``, which fails
if a partition path is not a date ``yyyy/MM/dd``, it orders partitions by any numbers in their
paths. Unlike ``BoundedIOCompactionStrategy``, it does not exceed the limit by the last slice, and
estimates what is written to a new file group from the logs, not from the maximum size of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from lakemark.errors import InvalidConfig
from lakemark.keygen.partition_path import DEFAULT_PARTITION
from lakemark.model.file_slice import FileSlice
from lakemark.model.partition_pattern import PartitionPattern

_DIGITS = re.compile("[0-9]+")


class SliceOrder(StrEnum):
    """Which slices come first in a plan, and so in the next compaction if a plan is limited.

    Attributes:
        MOST_LOG_BYTES: those with the most bytes of logs (``LogFileSizeBasedCompactionStrategy``).
        NEWEST_PARTITIONS: those of the partitions with the latest date
            (``DayBasedCompactionStrategy``).
        OLDEST_PARTITIONS: those of the partitions with the earliest date.
    """

    MOST_LOG_BYTES = "most_log_bytes"
    NEWEST_PARTITIONS = "newest_partitions"
    OLDEST_PARTITIONS = "oldest_partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceChoice:
    """Which slices with logs a compaction rewrites. By default, all of them.

    Attributes:
        order: which slices come first. In a partition, those with the most bytes of logs do.
        partitions: only slices of partitions that match one of these patterns; empty for all
            (``PartitionRegexBasedCompactionStrategy``).
        max_partitions: at most the first partitions, this many; None for all
            (``hoodie.compaction.daybased.target.partitions``).
        max_io_bytes: at most the first slices for which so many bytes are read and written, but
            always one slice; None for all (``hoodie.compaction.target.io``).

    Raises:
        InvalidConfig: a limit is not positive.
    """

    order: SliceOrder = SliceOrder.MOST_LOG_BYTES
    partitions: tuple[PartitionPattern, ...] = ()
    max_partitions: int | None = None
    max_io_bytes: int | None = None

    def __post_init__(self) -> None:
        for limit in (self.max_partitions, self.max_io_bytes):
            if limit is not None and limit < 1:
                message = f"a compaction rewrites one slice or more, but its limit is {limit}"
                raise InvalidConfig(message)

    def candidates(self, slices: Iterable[FileSlice]) -> list[FileSlice]:
        """Return the slices that a plan may contain: those with logs, in the chosen partitions."""
        patterns = self.partitions
        return [
            one
            for one in slices
            if one.logs
            and (not patterns or any(p.matches(one.group.partition_path) for p in patterns))
        ]

    def choose(
        self, slices: Iterable[FileSlice], cost: Callable[[FileSlice], int] | None = None
    ) -> list[FileSlice]:
        """Return the slices of a plan, in its order.

        Args:
            slices: the newest slices of file groups that no pending service will rewrite.
            cost: what ``max_io_bytes`` limits; None for ``io_bytes``.
        """
        ordered = _ORDERS[self.order](self.candidates(slices))
        if self.max_partitions is not None:
            ordered = _of_first_partitions(ordered, self.max_partitions)
        limit = self.max_io_bytes
        return ordered if limit is None else _within(ordered, limit, cost or io_bytes)


#: A plan with this choice contains all slices with logs.
ALL_SLICES = SliceChoice()


def io_bytes(file_slice: FileSlice) -> int:
    """Estimate the bytes that the compaction of a slice reads and writes."""
    base_bytes = file_slice.base.size_bytes if file_slice.base else 0
    return base_bytes + file_slice.log_bytes + (base_bytes or file_slice.log_bytes)


def log_io_bytes(file_slice: FileSlice) -> int:
    """Estimate the bytes that a compaction of only the logs of a slice reads and writes."""
    return 2 * file_slice.log_bytes


def _by_log_bytes(slices: Iterable[FileSlice]) -> list[FileSlice]:
    return sorted(slices, key=lambda one: (-one.log_bytes, one.group))


def _newest_first(slices: Iterable[FileSlice]) -> list[FileSlice]:
    dated, undated = _by_partition(slices)
    return [one for _, found in reversed(dated) for one in found] + undated


def _oldest_first(slices: Iterable[FileSlice]) -> list[FileSlice]:
    dated, undated = _by_partition(slices)
    return [one for _, found in dated for one in found] + undated


_ORDERS: Mapping[SliceOrder, Callable[[Iterable[FileSlice]], list[FileSlice]]] = {
    SliceOrder.MOST_LOG_BYTES: _by_log_bytes,
    SliceOrder.NEWEST_PARTITIONS: _newest_first,
    SliceOrder.OLDEST_PARTITIONS: _oldest_first,
}


def _by_partition(
    slices: Iterable[FileSlice],
) -> tuple[list[tuple[str, list[FileSlice]]], list[FileSlice]]:
    """Return the partitions from the oldest to the newest, and the undated slices.

    Only the numbers in the paths are compared, from left to right, and as numbers, so months may
    have one digit. Paths with the same numbers are ordered as texts.
    """
    by_path: dict[str, list[FileSlice]] = {}
    for one in _by_log_bytes(slices):
        by_path.setdefault(one.group.partition_path, []).append(one)
    undated = [path for path in sorted(by_path) if DEFAULT_PARTITION in path]
    dated = sorted(by_path.keys() - set(undated), key=_date_key)
    return [(path, by_path[path]) for path in dated], [s for path in undated for s in by_path[path]]


def _date_key(path: str) -> tuple[tuple[int, ...], str]:
    return tuple(map(int, _DIGITS.findall(path))), path


def _of_first_partitions(slices: Sequence[FileSlice], limit: int) -> list[FileSlice]:
    paths = dict.fromkeys(one.group.partition_path for one in slices)
    first = set(list(paths)[:limit])
    return [one for one in slices if one.group.partition_path in first]


def _within(
    slices: Sequence[FileSlice], limit: int, cost: Callable[[FileSlice], int]
) -> list[FileSlice]:
    """Return the first slices, at least one, whose compaction is within a limit of bytes."""
    chosen, remaining = list(slices[:1]), limit - sum(map(cost, slices[:1]))
    for one in slices[1:]:
        remaining -= cost(one)
        if remaining < 0:
            break
        chosen.append(one)
    return chosen
