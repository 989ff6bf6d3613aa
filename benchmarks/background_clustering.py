"""Measures how long a clustering delays the batches of a stream.

The table has a lookup index and two partitions. One has small files, whose rows are in no order;
the batches go to the other one, and follow each other without a pause, as in a pipeline that lags
behind. Half of the rows of a batch change rows. The small files are clustered between two batches
(``inline``), or prepared meanwhile (``background``), or not at all (``none``). The delay of a batch
is the time from the end of the batch before to its beginning.

Each table is written in a process of its own, without Spark. The tables are written in turn.

``python -m benchmarks.background_clustering [--mib N] [--batches N] [--rows N] [--repeats N]``
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

import lakemark
from benchmarks import orders, tables
from benchmarks.index_cost import check_count, create, in_process
from benchmarks.peers.lakemark_cluster import SORTED_BY
from lakemark.execution.runner import LocalRunner
from lakemark.model.row_order import RowOrder
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.clustering_plan import ClusteringPolicy
from streamer.clustering import PREPARATION, ClusteringRules, PendingPlans, TableClustering
from streamer.events import Event, ServiceCompleted

NONE, INLINE, BACKGROUND = "none", "inline", "background"
_PARTITIONS = 2
_CLUSTERED = orders.partition_path(0)
_MIB = 1 << 20
_FILE_ROWS = 200_000

#: Batches before the clustering, so that no measured batch loads modules.
_WARM_UP = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=100, help="size of the small files")
    parser.add_argument("--batches", type=int, default=16, help="batches of a table")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a batch")
    parser.add_argument("--repeats", type=int, default=2, help="tables of each kind")
    arguments = parser.parse_args()
    for _ in range(arguments.repeats):
        for mode in (NONE, INLINE, BACKGROUND):
            in_process(measure, mode, arguments.mib * _MIB, arguments.batches, arguments.rows)


def measure(mode: str, small_bytes: int, batches: int, rows: int) -> None:
    """Print how long batches take, and how long they wait for a clustering.

    Raises:
        RuntimeError: the files were not clustered, or the table has another number of rows.
    """
    with TemporaryDirectory(prefix="lakemark-benchmark-") as folder:
        table = create(Path(folder), "lookup")
        known, files = fill(table, Path(folder) / "orders", small_bytes)
        stream = _Stream(table, mode, rows)
        written = [stream.write(number) for number in range(batches)]
        stream.clustering.end(60.0)
        check_count(table, known + batches * (rows - rows // 2))
    if mode != NONE and not stream.done:
        message = f"nothing was clustered in {batches} batches; write more of them (--batches)"
        raise RuntimeError(message)
    _print(f"{mode}, {files} small files of {small_bytes / _MIB:.0f} MiB", written[_WARM_UP:])
    for one in stream.done:
        print(f"  {one.service}: {one.seconds:.2f} s", flush=True)


def fill(table: lakemark.Table, path: Path, small_bytes: int) -> tuple[int, int]:
    """Write small files to one partition; return the number of rows, and that of the files."""
    rows, size_bytes, files = 0, 0, 0
    while size_bytes < small_bytes:
        numbers = np.random.default_rng(rows).permutation(np.arange(rows, rows + _FILE_ROWS))
        table.bulk_insert(orders.rows(numbers * _PARTITIONS, _PARTITIONS))
        rows += _FILE_ROWS
        written = tables.base_files(path)
        size_bytes, files = sum(Path(one).stat().st_size for one in written), len(written)
    return rows, files


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of the stream.

    Attributes:
        seconds: how long it took.
        is_during: whether a clustering was prepared meanwhile.
        delay_s: how long the next batch waited.
    """

    seconds: float
    is_during: bool
    delay_s: float


class _Stream:
    """Writes batches to the other partition, and clusters the table once.

    Attributes:
        clustering: clusters the table.
        done: what was completed.
    """

    def __init__(self, table: lakemark.Table, mode: str, rows: int) -> None:
        self.done: list[ServiceCompleted] = []
        self._table, self._mode, self._rows = table, mode, rows
        writer = TableWriter(table._table, orders.SCHEMA, WriterSettings(None))
        rules = ClusteringRules(
            ClusteringPolicy(order=RowOrder((SORTED_BY,))),
            after_commits=1,
            chooses=lambda path: path == _CLUSTERED,
            pending=PendingPlans.EXECUTE,
            in_background=mode == BACKGROUND,
        )
        self.clustering = TableClustering(writer, rules, LocalRunner(), self._note)

    def write(self, number: int) -> _Batch:
        """Write a batch, half of which are changes, and cluster as a pipeline does."""
        added, known = self._rows - self._rows // 2, number * (self._rows - self._rows // 2)
        changed = orders.scattered(np.arange(self._rows // 2), seed=number) % max(1, known)
        numbers = [np.unique(changed)[:known], np.arange(known, known + added)]
        batch = pa.concat_tables(
            orders.rows(part * _PARTITIONS + 1, _PARTITIONS, number) for part in numbers
        )
        is_during = self.clustering.is_preparing
        began_s = time.perf_counter()
        self._table.upsert(batch)
        ended_s = time.perf_counter()
        is_clustered = any(one.service != PREPARATION for one in self.done)
        if self._mode != NONE and number >= _WARM_UP and not is_clustered:
            self.clustering.run()
        return _Batch(ended_s - began_s, is_during, time.perf_counter() - ended_s)

    def _note(self, event: Event) -> None:
        if not isinstance(event, ServiceCompleted):
            raise RuntimeError(event)
        self.done.append(event)


def _print(what: str, batches: list[_Batch]) -> None:
    alone = [one.seconds for one in batches if not one.is_during]
    during = [one.seconds for one in batches if one.is_during]
    print(
        f"{what}: longest delay {max(one.delay_s for one in batches):.2f} s; "
        f"{len(alone)} batches without a preparation: median {statistics.median(alone):.2f} s",
        flush=True,
    )
    if during:
        print(
            f"  {len(during)} batches during the preparation: median "
            f"{statistics.median(during):.2f} s, longest {max(during):.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
