"""lakemark clusters copies of a table, in one process without Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import lakemark
from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, Sums, change_each, peak_memory_bytes
from benchmarks.tables import sums

#: The column by which every engine sorts the rows.
SORTED_BY = "customer"


def main() -> None:
    task = ChangeTask.from_json(Path(sys.argv[1]).read_text())

    def cluster(path: str) -> None:
        done = lakemark.open(path, only_writer=True).cluster(SORTED_BY)
        assert len(done.instants) == 1, f"{path} had {len(done.instants)} clusterings"

    reading = change_each(task.name, task.tables, cluster, _sums, os.getpid())
    ReadAnswer((reading,), peak_memory_bytes(os.getpid())).write(Path(task.answer_path))


def _sums(path: str) -> Sums:
    return sums(lakemark.open(path).scan().batches())


if __name__ == "__main__":
    main()
