"""Measures what an index costs a stream of batches.

``record_index``: the same batches are upserted into two new tables with a lookup index; one of them
also has a record index. Half of the rows of a batch change rows, the others are new.

``split``: a table with consistent hashing has one bucket that is just large enough to be split.
Then batches follow each other without a pause, as in a pipeline that lags behind, and the bucket is
split between two of them (``inline``), or prepared meanwhile (``background``). The delay of a batch
is the time from the end of the batch before to its beginning.

Each table is written in a process of its own, without Spark. The tables are written in turn.

``python -m benchmarks.index_cost [--only PART] [--batches N] [--rows N] [--repeats N]
[--split-above MIB]``
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pyarrow as pa

import lakemark
from benchmarks import orders
from lakemark.execution.runner import LocalRunner
from lakemark.operations.table_index import DEFAULT_BUCKETS
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.resize_plan import ResizePolicy
from streamer.bucket_resizing import PREPARATION, BucketResizing
from streamer.events import Event, ServiceCompleted

_PARTITIONS = 8
_MIB = 1 << 20
_BATCH_ROWS = 500_000
_STREAMED, _STREAM_ROWS = 16, 100_000
_PLAIN, _INDEXED = "without", "with"

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=20, help="batches of a table")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a batch")
    parser.add_argument("--repeats", type=int, default=3, help="tables of each kind")
    parser.add_argument("--split-above", type=int, default=96, help="size of a bucket in MiB")
    parser.add_argument("--only", choices=["record_index", "split"], help="one of the parts")
    arguments = parser.parse_args()
    if arguments.only in (None, "record_index"):
        measure_record_index(arguments.batches, arguments.rows, arguments.repeats)
    if arguments.only in (None, "split"):
        for _ in range(arguments.repeats):
            for in_background in (False, True):
                in_process(measure_split, arguments.split_above * _MIB, in_background)


def measure_record_index(batches: int, rows: int, repeats: int) -> None:
    """Print the time of all batches, with and without a record index."""
    took_s: dict[str, list[float]] = {_PLAIN: [], _INDEXED: []}
    for _ in range(repeats):
        for kind, times in took_s.items():
            times.append(in_process(write_batches, batches, rows, kind == _INDEXED))
    for kind, times in took_s.items():
        seconds = ", ".join(f"{one:.1f}" for one in times)
        print(f"{batches} batches of {rows:,} rows, {kind} a record index: {seconds} s", flush=True)
    cost = statistics.median(took_s[_INDEXED]) / statistics.median(took_s[_PLAIN]) - 1
    print(f"cost of the record index: {cost:+.1%}", flush=True)


def write_batches(batches: int, rows: int, has_record_index: bool) -> float:
    """Upsert batches into a new table, and return the time that the writes took in seconds.

    Raises:
        RuntimeError: the table has another number of rows.
    """
    with TemporaryDirectory(prefix="lakemark-benchmark-") as folder:
        table = create(Path(folder), "lookup")
        table.upsert(orders.rows(np.arange(rows), _PARTITIONS))
        if has_record_index:
            table.create_index("record_index")
        took_s = 0.0
        for batch in generated(batches, rows):
            began_s = time.perf_counter()
            table.upsert(batch)
            took_s += time.perf_counter() - began_s
        check_count(table, rows + batches * (rows - rows // 2))
        return took_s


def generated(batches: int, rows: int) -> Iterator[pa.Table]:
    """Generate batches of which half are changes of scattered rows, and half are new rows."""
    known, changed = rows, rows // 2
    for version in range(1, batches + 1):
        drawn = np.unique(orders.scattered(np.arange(changed), seed=version) % known)
        added = np.arange(known, known + rows - changed)
        parts = (orders.rows(numbers, _PARTITIONS, version) for numbers in (drawn, added))
        yield pa.concat_tables(parts)
        known += len(added)


def measure_split(split_above_bytes: int, in_background: bool) -> None:
    """Print how long batches wait for the split of a bucket that is just above this size.

    Raises:
        RuntimeError: the bucket was not split, or the table has another number of rows.
    """
    with TemporaryDirectory(prefix="lakemark-benchmark-") as folder:
        table = create(Path(folder), "consistent_hashing")
        rows, size_bytes = fill_bucket(table, Path(folder), split_above_bytes)
        events: list[Event] = []
        policy = ResizePolicy(split_above_bytes=split_above_bytes, merge_below_bytes=0, max_bytes=1)
        resizing = BucketResizing(policy, LocalRunner(), events.append, in_background=in_background)
        writer = TableWriter(table._table, orders.SCHEMA, WriterSettings(None, first_ring_count=1))
        batches = [
            _stream_batch(table, resizing, writer, events, rows, version)
            for version in range(1, _STREAMED + 1)
        ]
        resizing.end(60.0)
        check_count(table, rows + _STREAMED * (_STREAM_ROWS - _STREAM_ROWS // 2))
    _print_split("background" if in_background else "inline", size_bytes, rows, batches)


def fill_bucket(table: lakemark.Table, folder: Path, above_bytes: int) -> tuple[int, int]:
    """Write rows until the bucket is above a size; return the number of rows, and the size."""
    rows, size_bytes = 0, 0
    while size_bytes <= above_bytes:
        table.upsert(orders.rows(np.arange(rows, rows + _BATCH_ROWS), partitions=1))
        table.compact()
        rows += _BATCH_ROWS
        size_bytes = max(path.stat().st_size for path in folder.rglob("*.parquet"))
    return rows, size_bytes


@dataclass(frozen=True, slots=True)
class _StreamBatch:
    """A batch of the stream.

    Attributes:
        seconds: how long it took.
        is_during: whether a bucket was prepared meanwhile.
        delay_s: how long the next batch waited.
        has_split: whether the bucket was split before the next batch.
        prepared_s: how long the preparation took; 0 without one.
    """

    seconds: float
    is_during: bool
    delay_s: float
    has_split: bool
    prepared_s: float


def _stream_batch(
    table: lakemark.Table,
    resizing: BucketResizing,
    writer: TableWriter,
    events: list[Event],
    known: int,
    version: int,
) -> _StreamBatch:
    """Write a batch, half of which are changes, and resize buckets as a pipeline does."""
    changed = _STREAM_ROWS // 2
    drawn = np.unique(orders.scattered(np.arange(changed), seed=version) % known)
    first = known + (version - 1) * (_STREAM_ROWS - changed)
    added = np.arange(first, first + _STREAM_ROWS - changed)
    batch = pa.concat_tables(orders.rows(numbers, 1, version) for numbers in (drawn, added))
    is_during = resizing.is_preparing(writer)
    began_s = time.perf_counter()
    table.upsert(batch)
    ended_s = time.perf_counter()
    resizing.run(writer)
    delay_s = time.perf_counter() - ended_s
    done = [one for one in events if isinstance(one, ServiceCompleted)]
    events.clear()
    prepared_s = sum(one.seconds for one in done if one.service == PREPARATION)
    return _StreamBatch(ended_s - began_s, is_during, delay_s, bool(done), prepared_s)


def _print_split(mode: str, size_bytes: int, rows: int, batches: list[_StreamBatch]) -> None:
    splits = [one for one in batches if one.has_split]
    if not splits:
        message = f"no bucket was split, but one has {size_bytes:,} bytes"
        raise RuntimeError(message)
    during = [one.seconds for one in batches if one.is_during]
    alone = statistics.median(one.seconds for one in batches if not one.is_during)
    print(
        f"{mode} split of a bucket of {size_bytes / _MIB:.0f} MiB, {rows:,} rows: "
        f"longest delay {max(one.delay_s for one in batches):.2f} s; "
        f"{len(batches)} batches of {_STREAM_ROWS:,} rows: median {alone:.2f} s",
        flush=True,
    )
    if during:
        print(
            f"  {len(during)} batches during the preparation, which took "
            f"{splits[0].prepared_s:.1f} s: median {statistics.median(during):.2f} s",
            flush=True,
        )


def create(folder: Path, index: str) -> lakemark.Table:
    """Create a table of orders with this index; with consistent hashing, of one bucket."""
    return lakemark.create(
        str(folder / "orders"),
        schema=orders.SCHEMA,
        record_key=orders.KEY,
        partition_by=orders.PARTITION,
        ordering=orders.ORDERING,
        index=index,
        buckets=1 if index == "consistent_hashing" else DEFAULT_BUCKETS,
    )


def check_count(table: lakemark.Table, rows: int) -> None:
    """Check that no row is missing, and that no row is stored twice."""
    found = sum(len(batch) for batch in table.snapshot([orders.KEY]))
    if found != rows:
        message = f"{found:,} rows, but {rows:,} were written"
        raise RuntimeError(message)


def in_process(function: Callable[..., T], *arguments: object) -> T:
    """Call a function in a new process, so that no measurement warms up another one."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


if __name__ == "__main__":
    main()
