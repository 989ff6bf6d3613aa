"""Divides file slices, or the changes of file groups, among the tasks of a Spark job.

A Python worker spends about 0.1 s of CPU time on each task before it reads a row, because PySpark
reads the directory of its own zip file again. So a task reads several slices, unless they are
large.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

from lakemark.model.file_slice import FileSlice
from lakemark.read.cdc import ChangeSplit

T = TypeVar("T")

#: Files of one task, in bytes. This is the size at which Spark divides Parquet files, too.
_TASK_BYTES = 128 << 20

#: The cost of opening the files of a slice, in bytes that could be read in the same time.
_OPEN_BYTES = 4 << 20


def divide_slices(slices: Sequence[FileSlice], parallelism: int) -> list[tuple[FileSlice, ...]]:
    """Return the slices of each task, so that all tasks take about the same time.

    There are enough tasks to use all cores and to bound the bytes of a task. The number of tasks is
    a multiple of the cores, so that no core waits for a last round of few tasks.

    Args:
        slices: the file slices.
        parallelism: number of tasks that run at once.

    Returns:
        Shares that are not empty. If there are no more slices than cores, each has one slice.
    """
    return _divide(slices, parallelism, _cost)


def divide_splits(splits: Sequence[ChangeSplit], parallelism: int) -> list[tuple[ChangeSplit, ...]]:
    """Return the splits of each task; see ``divide_slices``."""
    return _divide(splits, parallelism, _cost_of_split)


def _divide(
    parts: Sequence[T], parallelism: int, cost_of: Callable[[T], int]
) -> list[tuple[T, ...]]:
    total = sum(map(cost_of, parts))
    rounds = max(1, -(-total // (_TASK_BYTES * parallelism)))
    count = min(len(parts), rounds * parallelism)
    shares: list[list[T]] = [[] for _ in range(count)]
    lightest = [(0, number) for number in range(count)]
    for one in sorted(parts, key=cost_of, reverse=True):
        cost, number = lightest[0]
        shares[number].append(one)
        heapq.heapreplace(lightest, (cost + cost_of(one), number))
    return [tuple(share) for share in shares]


def _cost_of_split(split: ChangeSplit) -> int:
    states = [state for state in (split.before, split.after) if state is not None]
    logs_bytes = sum(log.size_bytes for log in split.logs)
    return logs_bytes + sum(map(_cost, states)) + _OPEN_BYTES


def _cost(file_slice: FileSlice) -> int:
    return file_slice.size_bytes + _OPEN_BYTES
