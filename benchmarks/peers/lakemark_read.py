"""lakemark in one process, without Spark: it reads Arrow batches, and counts their rows."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.read_contract import (
    ReadAnswer,
    Reading,
    ReadQuery,
    ReadTask,
    peak_memory_bytes,
    timed,
)
from benchmarks.tables import sums
from lakemark.operations.open_table import open_table
from lakemark.read.queries import Query, ReadOptimized, Snapshot
from lakemark.read.scan import Scan
from lakemark.storage import StorageLocation

_QUERIES: dict[str, Query] = {"snapshot": Snapshot(), "read_optimized": ReadOptimized()}


def main() -> None:
    task = ReadTask.from_json(Path(sys.argv[1]).read_text())
    readings = [_reading(task, query) for query in task.queries]
    # Before the sums, whose memory would otherwise count as memory of the queries.
    peak_bytes = peak_memory_bytes(os.getpid())
    checked = [
        replace(reading, sums=sums(_scan(task.table_path, query).batches()))
        for reading, query in zip(readings, task.queries, strict=True)
    ]
    ReadAnswer(tuple(checked), peak_bytes).write(Path(task.answer_path))


def _reading(task: ReadTask, query: ReadQuery) -> Reading:
    """Open the table and plan the query each time, so that timeline and listing are included."""

    def consume() -> None:
        for _ in _scan(task.table_path, query).batches():
            pass

    seconds, read_bytes = timed(query.name, task.repeats, consume, os.getpid())
    slices = len(_scan(task.table_path, query).slices)
    return Reading(query.name, seconds, read_bytes, slices=slices)


def _scan(path: str, query: ReadQuery) -> Scan:
    # Planning looks the key up in the record index.
    keys = None if query.key is None else [query.key]
    table = open_table(StorageLocation(path))
    return table.scan(_QUERIES[query.query_type], where=query.where, record_keys=keys)


if __name__ == "__main__":
    main()
