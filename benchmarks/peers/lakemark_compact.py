"""lakemark executes the pending compactions, in one process without Spark.

``--merger CLASS`` is the merger of a table in mode ``CUSTOM``.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, Sums, change_each, peak_memory_bytes
from benchmarks.tables import Layout, compact, sums
from lakemark.operations.open_table import open_table
from lakemark.read.queries import ReadOptimized
from lakemark.storage import StorageLocation

_ONE_GROUP = Layout(rows=0, partitions=1, buckets=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=lambda path: ChangeTask.from_json(Path(path).read_text()))
    parser.add_argument("--merger")
    arguments = parser.parse_args()
    task: ChangeTask = arguments.task

    def run(path: str) -> None:
        compact(Path(path), _ONE_GROUP, arguments.merger)

    reading = change_each(task.name, task.tables, run, lambda path: Sums(), os.getpid())
    # Before the sums, whose memory would otherwise count as memory of the compaction.
    peak_bytes = peak_memory_bytes(os.getpid())
    checked = replace(reading, sums=_sums(task.tables[-1]))
    ReadAnswer((checked,), peak_bytes).write(Path(task.answer_path))


def _sums(path: str) -> Sums:
    return sums(open_table(StorageLocation(path)).scan(ReadOptimized()).batches())


if __name__ == "__main__":
    main()
