"""lakemark in one process, without Spark: it reads Arrow batches, and counts their rows."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from benchmarks.orders import KEY
from benchmarks.peers.read_contract import (
    ReadAnswer,
    Reading,
    ReadQuery,
    ReadTask,
    peak_memory_bytes,
    timed,
)
from benchmarks.tables import sums
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.metadata.record_index import RecordIndex
from lakemark.operations.open_table import OpenTable, open_table
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
    table = open_table(StorageLocation(path))
    if query.key is None:
        return table.scan(_QUERIES[query.query_type], where=query.where)
    scan = table.scan(_QUERIES[query.query_type], where=f"{KEY} = '{query.key}'")
    groups = _groups_of(table, query.key)
    return scan.with_slices([s for s in scan.slices if s.group.file_id in groups])


def _groups_of(table: OpenTable, key: str) -> set[str]:
    """Look up the ids of the file groups of a key in the record index."""
    metadata = open_metadata_table(
        table.storage, table.properties, table.timeline, table.store.clock
    )
    if metadata is None:
        message = f"{table.location.url} has no metadata table; it was to be written with one"
        raise LookupError(message)
    found = RecordIndex(metadata).lookup(pa.array([key]))
    return set(found.column("file_id").to_pylist())


if __name__ == "__main__":
    main()
