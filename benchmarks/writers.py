"""Measures writers that write to the same buckets of one table, each in its own process.

Each writer upserts the same number of batches, whose keys are in all buckets. The table is new for
each measurement:

- ``one core each``: a writer is restricted to one core, as if each had a small machine of its own.
- ``all cores``: the writers share the cores. A single writer uses several of them, too, because it
  writes its files in threads.
- ``multi_writer``: commits that conflict are written again (optimistic concurrency control).
- ``non_blocking``: commits do not conflict (non-blocking concurrency control).

The benchmark prints the rows per second of all writers together and this rate relative to that of
one writer with the same cores, the processor time of a row, how many cores were busy, and how many
commits were rolled back because of a conflict. Afterwards the table must have the newest row of
each key. Needs Linux.

``python -m benchmarks.writers [--only NAME,…] [--batches N] [--rows N] [--repeats N]
[--folder FOLDER]``
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakemark
from benchmarks.engines import names_of

_SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.float64())])
_BUCKETS = 4
_CLOCK_SKEW_MS = 1

#: How many batches are not measured, because the first ones import modules and create buckets.
_FIRST = 2


@dataclass(frozen=True, slots=True)
class Kind:
    """How many writers there are, and how they share the table and the cores.

    Attributes:
        writers: the number of writers.
        non_blocking: whether commits to the same buckets do not conflict.
        has_own_core: whether each writer is restricted to a core of its own.
        base: the kind with one writer, to which the rate is compared.
    """

    writers: int
    non_blocking: bool
    has_own_core: bool
    base: str


_ONE_CORE, _ALL_CORES = "one writer on one core", "one writer on all cores"
KINDS: Mapping[str, Kind] = {
    _ONE_CORE: Kind(1, True, True, _ONE_CORE),
    "two non_blocking on one core each": Kind(2, True, True, _ONE_CORE),
    _ALL_CORES: Kind(1, True, False, _ALL_CORES),
    "two non_blocking on all cores": Kind(2, True, False, _ALL_CORES),
    "two multi_writer on all cores": Kind(2, False, False, _ALL_CORES),
}


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one measurement; ``cpu_s`` is the processor time of all writers."""

    rows: int
    seconds: float
    cpu_s: float
    rolled_back: int

    @property
    def rows_per_s(self) -> float:
        """The rate of all writers together."""
        return self.rows / self.seconds


@dataclass(frozen=True, slots=True)
class Task:
    """What one writer writes.

    Attributes:
        path: the path of the table.
        number: the number of the writer.
        kind: how many writers there are, and how they share the table and the cores.
        batches: how many batches each writer writes.
        rows: how many rows a batch has; the keys are the same in all batches.
    """

    path: str
    number: int
    kind: Kind
    batches: int
    rows: int

    def restrict(self) -> None:
        """Restrict this process to its core, if it has one of its own."""
        if self.kind.has_own_core:
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {cores[self.number % len(cores)]})

    def open(self) -> lakemark.Table:
        """Open the table as this writer does."""
        sharing = lakemark.MultiWriter(
            clock_skew_ms=_CLOCK_SKEW_MS, non_blocking=self.kind.non_blocking
        )
        return lakemark.open(self.path, multi_writer=sharing)

    def batch(self, number: int) -> pa.Table:
        """Return the rows of a batch. No two batches have the same ordering value."""
        keys = np.arange(self.rows)
        times = np.full(self.rows, number * self.kind.writers + self.number)
        return pa.table([keys, times, keys * 0.5], _SCHEMA)


def main() -> None:
    """Measure the kinds of writers in turn, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=names_of(KINDS), default=list(KINDS))
    parser.add_argument("--batches", type=int, default=20, help="batches of each writer")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a batch")
    parser.add_argument("--repeats", type=int, default=3, help="tables of each kind")
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    arguments = parser.parse_args()
    figures: dict[str, list[Figures]] = {name: [] for name in arguments.only}
    for _ in range(arguments.repeats):
        for name, done in figures.items():
            with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
                path = str(Path(folder) / "table")
                kind = KINDS[name]
                done.append(
                    measure(
                        [
                            Task(path, number, kind, arguments.batches, arguments.rows)
                            for number in range(kind.writers)
                        ]
                    )
                )
            print(f"{name}: {done[-1]}", flush=True)
    print("\n".join(as_lines(figures)))


def as_lines(figures: Mapping[str, Sequence[Figures]]) -> Iterator[str]:
    """Yield the lines of a table: medians, and the median of the ratios within a round."""
    yield "| | rows/s | relative | CPU of a row | busy cores | rolled back |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, own in figures.items():
        pairs = zip(own, figures.get(KINDS[name].base, ()), strict=False)
        ratios = [one.rows_per_s / base.rows_per_s for one, base in pairs]
        relative = f"{statistics.median(ratios):.2f}" if ratios else ""
        rate = statistics.median(one.rows_per_s for one in own)
        cpu_us = statistics.median(one.cpu_s / one.rows * 1e6 for one in own)
        cores = statistics.median(one.cpu_s / one.seconds for one in own)
        rolled_back = sum(one.rolled_back for one in own)
        yield (
            f"| {name} | {rate:,.0f} | {relative} | {cpu_us:.2f} µs | {cores:.2f} | {rolled_back} |"
        )


def measure(tasks: list[Task]) -> Figures:
    """Run the writers of a new table at the same time.

    Raises:
        RuntimeError: a writer failed, or rows are missing.
    """
    first = tasks[0]
    lakemark.create(first.path, schema=_SCHEMA, record_key="id", ordering="ts", buckets=_BUCKETS)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(len(tasks) + 1)
    used_s = context.RawArray(ctypes.c_double, len(tasks))
    writers = [context.Process(target=write, args=(task, start, used_s)) for task in tasks]
    for writer in writers:
        writer.start()
    start.wait()
    began = time.perf_counter()
    for writer in writers:
        writer.join()
    seconds = time.perf_counter() - began
    if any(writer.exitcode for writer in writers):
        message = "a writer failed"
        raise RuntimeError(message)
    table = lakemark.open(first.path)
    check(table, first)
    rolled_back = sum(one.action == "rollback" for one in table.timeline.completed())
    rows = len(tasks) * first.batches * first.rows
    return Figures(rows, seconds, sum(used_s), rolled_back)


def write(task: Task, start: Barrier, used_s: MutableSequence[float]) -> None:
    """Write the batches of a writer; a batch whose commit conflicts too often is written again.

    Args:
        task: what the writer writes.
        start: where all writers wait after the batches that are not measured.
        used_s: receives the processor time of each writer.
    """
    task.restrict()
    table = task.open()
    began_s = 0.0
    for number in range(-_FIRST, task.batches):
        if number == 0:
            start.wait()
            began_s = time.process_time()
        while True:
            try:
                table.upsert(task.batch(number))
            except lakemark.WriteConflict:
                continue
            break
    used_s[task.number] = time.process_time() - began_s


def check(table: lakemark.Table, task: Task) -> None:
    """Check that the table has the newest row of each key."""
    newest = task.batches * task.kind.writers - 1
    found = table.scan(columns=["ts"]).to_table().column("ts").to_numpy()
    if len(found) != task.rows or (found != newest).any():
        message = f"{len(found)} rows instead of {task.rows}, or not the newest ones"
        raise RuntimeError(message)


if __name__ == "__main__":
    main()
