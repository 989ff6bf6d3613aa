"""Measures writers that write to the same buckets of one table, each in its own process.

Each writer upserts the same number of batches, whose keys are in all buckets. The table is new for
each measurement:

- ``one writer``: a single process.
- ``multi_writer``: commits that conflict are written again (optimistic concurrency control).
- ``non_blocking``: commits do not conflict (non-blocking concurrency control).

The table shows the rows per second of all writers together, and how many commits were rolled back
because of a conflict. Afterwards the table must have the newest row of each key.

``python -m benchmarks.shared_buckets [--writers N] [--batches N] [--rows N] [--folder FOLDER]``
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakemark

_SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("v", pa.float64())])
_BUCKETS = 4
_CLOCK_SKEW_MS = 1

#: How many batches are not measured, because the first ones import modules and create buckets.
_FIRST = 2


@dataclass(frozen=True, slots=True)
class Task:
    """What one writer writes.

    Attributes:
        path: the path of the table.
        number: the number of the writer.
        writers: how many writers there are.
        batches: how many batches each writer writes.
        rows: how many rows a batch has; the keys are the same in all batches.
        non_blocking: whether commits to the same buckets do not conflict.
    """

    path: str
    number: int
    writers: int
    batches: int
    rows: int
    non_blocking: bool

    def open(self) -> lakemark.Table:
        """Open the table as this writer does."""
        sharing = lakemark.MultiWriter(clock_skew_ms=_CLOCK_SKEW_MS, non_blocking=self.non_blocking)
        return lakemark.open(self.path, multi_writer=sharing)

    def batch(self, number: int) -> pa.Table:
        """Return the rows of a batch. No two batches have the same ordering value."""
        keys = np.arange(self.rows)
        times = np.full(self.rows, number * self.writers + self.number)
        return pa.table([keys, times, keys * 0.5], _SCHEMA)


def main() -> None:
    """Print a line for each kind of writers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=2, help="concurrent writers")
    parser.add_argument("--batches", type=int, default=20, help="batches of each writer")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of a batch")
    parser.add_argument("--folder", type=Path, help="on the disk to measure")
    arguments = parser.parse_args()
    print("| | rows per second | rolled back |\n|---|---|---|")
    for name, writers, non_blocking in (
        ("one writer", 1, False),
        ("multi_writer", arguments.writers, False),
        ("non_blocking", arguments.writers, True),
    ):
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            path = str(Path(folder) / "table")
            tasks = [
                Task(path, number, writers, arguments.batches, arguments.rows, non_blocking)
                for number in range(writers)
            ]
            speed, rolled_back = measure(tasks)
        print(f"| {name} | {speed:,.0f} | {rolled_back} |", flush=True)


def measure(tasks: list[Task]) -> tuple[float, int]:
    """Run the writers of a new table at the same time.

    Returns:
        The rows per second of all writers together, and the number of rolled back commits.

    Raises:
        RuntimeError: a writer failed, or rows are missing.
    """
    first = tasks[0]
    lakemark.create(first.path, schema=_SCHEMA, record_key="id", ordering="ts", buckets=_BUCKETS)
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(len(tasks) + 1)
    writers = [context.Process(target=write, args=(task, start)) for task in tasks]
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
    return len(tasks) * first.batches * first.rows / seconds, rolled_back


def write(task: Task, start: Barrier) -> None:
    """Write the batches of a writer; a batch whose commit conflicts too often is written again."""
    table = task.open()
    for number in range(-_FIRST, task.batches):
        if number == 0:
            start.wait()
        while True:
            try:
                table.upsert(task.batch(number))
            except lakemark.WriteConflict:
                continue
            break


def check(table: lakemark.Table, task: Task) -> None:
    """Check that the table has the newest row of each key."""
    newest = (task.batches - 1) * task.writers + task.writers - 1
    found = table.scan(columns=["ts"]).to_table().column("ts").to_numpy()
    if len(found) != task.rows or (found != newest).any():
        message = f"{len(found)} rows instead of {task.rows}, or not the newest ones"
        raise RuntimeError(message)


if __name__ == "__main__":
    main()
