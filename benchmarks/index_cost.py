"""Measures what an index costs a stream of batches.

``record_index``: the same batches are upserted into two new tables with a lookup index; one of them
also has a record index. Half of the rows of a batch change rows, the others are new.

``split``: a table with consistent hashing has one bucket that is just large enough to be split. The
split is timed, because the next batch of a pipeline waits for it.

Each table is written in a process of its own, without Spark. The tables are written in turn.

``python -m benchmarks.index_cost [--batches N] [--rows N] [--repeats N] [--split-above MIB]``
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pyarrow as pa

import lakemark
from benchmarks import orders
from lakemark.operations.table_index import DEFAULT_BUCKETS

_PARTITIONS = 8
_MIB = 1 << 20
_BATCH_ROWS = 500_000
_PLAIN, _INDEXED = "without", "with"

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=20, help="batches of a table")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a batch")
    parser.add_argument("--repeats", type=int, default=3, help="tables of each kind")
    parser.add_argument("--split-above", type=int, default=96, help="size of a bucket in MiB")
    arguments = parser.parse_args()
    measure_record_index(arguments.batches, arguments.rows, arguments.repeats)
    for _ in range(arguments.repeats):
        in_process(measure_split, arguments.split_above * _MIB)


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


def measure_split(split_above_bytes: int) -> None:
    """Print how long the split of a bucket takes that is just above this size, without logs.

    Raises:
        RuntimeError: the bucket was not split, or the table has another number of rows.
    """
    with TemporaryDirectory(prefix="lakemark-benchmark-") as folder:
        table = create(Path(folder), "consistent_hashing")
        rows, size_bytes, batch_s = 0, 0, 0.0
        while size_bytes <= split_above_bytes:
            batch = orders.rows(np.arange(rows, rows + _BATCH_ROWS), partitions=1)
            began_s = time.perf_counter()
            table.upsert(batch)
            batch_s = time.perf_counter() - began_s
            table.compact()
            rows += len(batch)
            size_bytes = max(path.stat().st_size for path in Path(folder).rglob("*.parquet"))
        began_s = time.perf_counter()
        result = table.resize_buckets(split_above_bytes=split_above_bytes)
        split_s = time.perf_counter() - began_s
        if not result.instants:
            message = f"no bucket was split, but one has {size_bytes:,} bytes"
            raise RuntimeError(message)
        check_count(table, rows)
    print(
        f"split of a bucket of {size_bytes / _MIB:.0f} MiB, {rows:,} rows: {split_s:.1f} s; "
        f"the last batch of {_BATCH_ROWS:,} rows: {batch_s:.1f} s",
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
