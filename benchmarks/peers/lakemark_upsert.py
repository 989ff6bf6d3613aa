"""lakemark upserts rows into copies of a table, in one process without Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow.parquet as pq

import lakemark
from benchmarks.peers.read_contract import ReadAnswer, Sums, change_each, peak_memory_bytes
from benchmarks.peers.upsert_contract import UpsertTask
from benchmarks.tables import sums


def main() -> None:
    task = UpsertTask.from_json(Path(sys.argv[1]).read_text())

    def upsert(path: str) -> None:
        lakemark.open(path).upsert(pq.read_table(task.changes_path))

    reading = change_each(task.name, task.tables, upsert, _sums, os.getpid())
    ReadAnswer((reading,), peak_memory_bytes(os.getpid())).write(Path(task.answer_path))


def _sums(path: str) -> Sums:
    return sums(lakemark.open(path).scan().batches())


if __name__ == "__main__":
    main()
