"""Measures what an index costs a stream of batches.

``record_index``: the same batches are upserted into two new tables with a lookup index; one of them
also has a record index. Half of the rows of a batch change rows, the others are new.

``split``: a table with consistent hashing has one bucket that is just large enough to be split. The
split is timed, because with ``bucket_resizing.mode: inline`` the next batch of a pipeline waits for
it.

``delay``: such a table is written by a continuous pipeline, which splits the bucket. Each batch is
a file of changed and new rows, which is written when the previous batch is committed. So the time
of a batch is that from its file to its commit. The delay is the time of the longest batch, from the
one during which the split began to the last one, minus the median of the batches before the split.

Each table is written in a process of its own, without Spark. The tables are written in turn.

``python -m benchmarks.index_cost [record_index] [split] [delay] [--batches N] [--rows N]
[--repeats N] [--split-above MIB …] [--modes async inline]``
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakemark
from benchmarks import orders
from lakemark.operations.table_index import DEFAULT_BUCKETS
from streamer import pipeline
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import BackgroundServiceStarted, BatchWritten, Event, ServiceCompleted
from streamer.loop import StreamLoop

_PARTITIONS = 8
_MIB = 1 << 20

#: The approximate bytes of a row in a base file.
_ROW_BYTES = 50
_BATCH_ROWS = 500_000
_PLAIN, _INDEXED = "without", "with"
_MEASUREMENTS = ("record_index", "split", "delay")
_MODES = ("async", "inline")

#: Batches of ``delay`` before the split begins, and after it has ended.
_QUIET_BATCHES, _LAST_BATCHES = 20, 5

#: Batches of the second run before the split begins.
_BATCHES_BEFORE = 8

T = TypeVar("T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=_MEASUREMENTS, choices=_MEASUREMENTS)
    parser.add_argument("--batches", type=int, default=20, help="batches of a table")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a batch")
    parser.add_argument("--repeats", type=int, default=3, help="tables of each kind")
    parser.add_argument(
        "--split-above", type=int, nargs="+", default=(96,), help="sizes of a bucket in MiB"
    )
    parser.add_argument("--delay-rows", type=int, default=20_000, help="rows of a batch of `delay`")
    parser.add_argument("--modes", nargs="+", default=_MODES, choices=_MODES)
    arguments = parser.parse_args()
    if "record_index" in arguments.what:
        measure_record_index(arguments.batches, arguments.rows, arguments.repeats)
    for _ in range(arguments.repeats):
        for size in arguments.split_above:
            if "split" in arguments.what:
                in_process(measure_split, size * _MIB)
            for mode in arguments.modes if "delay" in arguments.what else ():
                in_process(measure_delay, size * _MIB, mode, arguments.delay_rows)


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
        rows, size_bytes, batch_s = fill_bucket(table, Path(folder), split_above_bytes)
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


def fill_bucket(table: lakemark.Table, folder: Path, above_bytes: int) -> tuple[int, int, float]:
    """Write rows until the table's bucket, without logs, is larger than this number of bytes.

    Returns:
        The number of rows, the bytes of the bucket, and the seconds of the last batch.
    """
    rows, size_bytes, batch_s = 0, 0, 0.0
    count = min(_BATCH_ROWS, max(1, above_bytes // _ROW_BYTES))
    while size_bytes <= above_bytes:
        batch = orders.rows(np.arange(rows, rows + count), partitions=1)
        began_s = time.perf_counter()
        table.upsert(batch)
        batch_s = time.perf_counter() - began_s
        table.compact()
        rows += len(batch)
        size_bytes = max(path.stat().st_size for path in folder.rglob("*.parquet"))
    return rows, size_bytes, batch_s


@dataclass
class DelayedRun:
    """Feeds a pipeline of files, and times its batches.

    Attributes:
        folder: the folder of the files and of the table.
        rows: the number of rows of a batch.
        known: the number of rows in the table.
        took_s: the seconds of each batch, from its file to its commit.
        began_in: the number of batches that were committed when the split began; -1 before.
        split_s: the seconds of the split.
        left: how many batches follow after the split.
        log_bytes: the size of the files that the batches wrote.
        ended: set when the last batch is committed.
    """

    folder: Path
    rows: int
    known: int
    took_s: list[float] = field(default_factory=list)
    began_in: int = -1
    split_s: float = 0.0
    left: int = _LAST_BATCHES
    log_bytes: int = 0
    put_at_s: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def listen(self, event: Event) -> None:
        """Note the event, and write the next file after a batch."""
        if isinstance(event, BatchWritten) and event.rows_written:
            self.took_s.append(time.perf_counter() - self.put_at_s)
            self.log_bytes += event.bytes_written
            self.left -= self.split_s > 0
            if self.left:
                self.put()
            else:
                self.ended.set()
        if isinstance(event, BackgroundServiceStarted) and self.began_in < 0:
            self.began_in = len(self.took_s)
        if isinstance(event, ServiceCompleted) and event.service == "bucket_resizing":
            self.split_s = self.split_s or event.seconds
            self.began_in = self.began_in if self.began_in >= 0 else len(self.took_s)

    def put(self) -> None:
        """Write the file of the next batch: half of its rows are new."""
        version, changed = len(self.took_s) + 1, self.rows // 2
        drawn = np.unique(orders.scattered(np.arange(changed), seed=version) % self.known)
        added = np.arange(self.known, self.known + self.rows - changed)
        parts = [orders.rows(numbers, 1, version) for numbers in (drawn, added)]
        self.known += len(added)
        made = self.folder / "made.part"
        pq.write_table(pa.concat_tables(parts), made)
        self.put_at_s = time.perf_counter()
        made.rename(self.folder / "in" / f"{version:05}.parquet")


def measure_delay(split_above_bytes: int, mode: str, rows: int) -> None:
    """Print by how much a split delays the batches of a continuous pipeline.

    The pipeline first runs without resizing. Then it runs with a limit that its logs exceed after
    some batches.

    Raises:
        RuntimeError: the table has another number of rows.
    """
    with TemporaryDirectory(prefix="lakemark-benchmark-") as name:
        folder = Path(name)
        table = create(folder, "consistent_hashing")
        known, base_bytes, _ = fill_bucket(table, folder, split_above_bytes)
        (folder / "in").mkdir()
        quiet = DelayedRun(folder, rows, known, left=_QUIET_BATCHES, split_s=1.0)
        run_pipeline(delay_config(folder, None), quiet)
        batch_bytes = quiet.log_bytes // _QUIET_BATCHES
        limit_bytes = base_bytes + quiet.log_bytes + _BATCHES_BEFORE * batch_bytes
        split = DelayedRun(folder, rows, quiet.known, took_s=quiet.took_s)
        run_pipeline(delay_config(folder, limit_bytes, mode), split)
        table.refresh()
        check_count(table, split.known)
    during = split.took_s[split.began_in :]
    longest_s, median_s = max(during), statistics.median(split.took_s[1:_QUIET_BATCHES])
    print(
        f"{mode} split of a bucket of {limit_bytes / _MIB:.0f} MiB: {split.split_s:.1f} s; "
        f"{len(during)} batches of {rows:,} rows since it began: longest {longest_s:.2f} s, "
        f"median without a split {median_s:.2f} s, delay {longest_s - median_s:+.2f} s",
        flush=True,
    )


def delay_config(
    folder: Path, split_above_bytes: int | None, mode: str = "async"
) -> PipelineConfig:
    """Return a pipeline that splits buckets above a size in this mode; None for no splits."""
    resizing: dict[str, object] = {"enabled": False}
    if split_above_bytes is not None:
        resizing = {"mode": mode, "split_above_bytes": split_above_bytes, "merge_below_bytes": 0}
    files = {"kind": "files", "path": str(folder / "in"), "format": "parquet"}
    return validated(
        {
            "source": {**files, "poll_interval_s": 0.01, "max_files_per_batch": 1},
            "table": {
                "path": str(folder / "orders"),
                "record_key": orders.KEY,
                "partition_by": orders.PARTITION,
                "ordering": orders.ORDERING,
            },
            "bucket_resizing": resizing,
            "compaction": {"enabled": False},
            "dead_letters": {"enabled": False},
            "run": {"trigger_interval_s": 0},
        }
    )


def run_pipeline(config: PipelineConfig, run: DelayedRun) -> None:
    """Run a pipeline until ``run.ended`` is set.

    Raises:
        Exception: the pipeline failed.
    """
    loops: list[StreamLoop] = []
    failures: list[BaseException] = []

    def stream() -> None:
        try:
            with pipeline.build(config, run.listen) as built:
                loops.append(built.loop)
                run.put()
                built.loop.run()
        except BaseException as error:
            failures.append(error)
            run.ended.set()

    thread = threading.Thread(target=stream)
    thread.start()
    run.ended.wait()
    for loop in loops:
        loop.stop()
    thread.join()
    if failures:
        raise failures[0]


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
