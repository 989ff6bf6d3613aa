"""lakemark upserts rows into copies of a table; with ``--create``, it creates the table.

It runs in one process without Spark. A table is created by a bulk insert that sorts the rows by
partition and key, as Apache Hudi's does.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq

import lakemark
from benchmarks.orders import KEY, ORDERING, PARTITION, SCHEMA
from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, Sums, change_each, peak_memory_bytes
from benchmarks.tables import sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", type=lambda path: ChangeTask.from_json(Path(path).read_text()))
    parser.add_argument("--create", action="store_true")
    arguments = parser.parse_args()
    task: ChangeTask = arguments.task

    def upsert(path: str) -> None:
        lakemark.open(path).upsert(pq.read_table(task.rows_path))

    def create(path: str) -> None:
        table = lakemark.create(
            path,
            schema=SCHEMA,
            record_key=KEY,
            partition_by=PARTITION,
            ordering=ORDERING,
            index="lookup",
        )
        rows = ds.dataset(task.rows_path, format="parquet")
        table.bulk_insert(rows.scanner().to_reader(), sort="global")
        if task.name == "lookup":
            table.create_index("record_index")

    write = create if arguments.create else upsert
    reading = change_each(task.name, task.tables, write, _sums, os.getpid())
    ReadAnswer((reading,), peak_memory_bytes(os.getpid())).write(Path(task.answer_path))


def _sums(path: str) -> Sums:
    return sums(lakemark.open(path).scan().batches())


if __name__ == "__main__":
    main()
