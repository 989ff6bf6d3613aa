"""Stores a stream of changes that may be larger than memory, divided by file group.

Changes are gathered up to the size of a run. Each run is sorted by bucket, and by record key (or by
other keys) unless the caller asks for the order of arrival. All runs except the last one are
written to local disk. The changes of a bucket can then be read as one stream. If the stream must be
sorted by key, its runs are merged in the way of an external merge sort.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.storage.scratch import scratch_folder, temporary_writes
from lakemark.write.partitioner import Bucket, SortedRows, sort_by_bucket

#: Arrow bytes of a run. While a run is sorted, it exists twice in memory.
RUN_BYTES = 128 << 20

#: Arrow bytes of a stored batch. A merge holds at least one batch of each run in memory.
_BATCH_BYTES = 1 << 20

#: Number of runs that are merged at a time. If a bucket has more runs, some are merged first.
_MERGED_RUNS = 64

#: Arrow bytes that a merge of few runs holds in memory: several batches of each run, because each
#: step of a merge costs as much as copying some hundred rows.
_MERGE_BYTES = 32 << 20

Numbers = npt.NDArray[np.int32]

#: The values of one row in the columns of an order, each with whether it is not null.
_Key: TypeAlias = tuple[tuple[bool, Any], ...]


class SortMode(StrEnum):
    """The order of the rows of each partition, or of each bucket of a table with buckets.

    Source: ``BulkInsertSortMode`` of Apache Hudi 1.2.0. Its modes differ in how Spark distributes
    the rows. Here the rows of a partition always come together, so that files reach their size.

    Attributes:
        NONE: the order of arrival.
        PARTITION: sorted by record key within each run (``PARTITION_SORT``). Each row group then
            has a narrow range of keys, and no merge is needed.
        GLOBAL: sorted by record key (``GLOBAL_SORT``). Each file then has a range of keys that
            overlaps with no other new file, so that later lookups of keys skip most files.
    """

    NONE = "none"
    PARTITION = "partition"
    GLOBAL = "global"


class SortedRuns:
    """Changes in runs that are sorted by bucket. On exit, the files on disk are removed."""

    def __init__(
        self,
        sort: SortMode,
        run_bytes: int = RUN_BYTES,
        order_by: Sequence[str] = (RECORD_KEY,),
    ) -> None:
        """Create an empty object.

        Args:
            sort: the order in which ``read`` returns the changes of a bucket.
            run_bytes: Arrow bytes of a run.
            order_by: the columns by which changes are sorted, instead of the record key; they
                contain integers, decimals, texts or binaries, and nulls come first.
        """
        self._sort, self._run_bytes, self._order_by = sort, run_bytes, tuple(order_by)
        self._opened = ExitStack()
        self._folder: Path | None = None
        self._file_numbers = count()
        self._gathered: list[tuple[pa.Table, Numbers]] = []
        self._gathered_bytes = 0
        self._runs: list[_Run] = []
        self.num_rows = 0

    def __enter__(self) -> SortedRuns:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    def add(self, changes: pa.Table, numbers: Numbers) -> None:
        """Add changes, and write a run to disk each time the gathered changes reach its size.

        Args:
            changes: changes with record key and partition path.
            numbers: the bucket number of each change.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        if not changes.num_rows:
            return
        if self._gathered and self._gathered_bytes + changes.nbytes > self._run_bytes:
            self._runs.append(self._store(self._sorted_run()))
        self._gathered.append((changes, numbers))
        self._gathered_bytes += changes.nbytes
        self.num_rows += changes.num_rows

    def finish(self) -> list[Bucket]:
        """Sort the last run, which stays in memory, and return all buckets in ascending order.

        Call this method once, before ``read``.
        """
        if self._gathered:
            self._runs.append(_MemoryRun(self._sorted_run()))
        return sorted({bucket for run in self._runs for bucket in run.buckets})

    def read(self, bucket: Bucket) -> Iterator[pa.Table]:
        """Yield the changes of a bucket. Changes of one key keep the order in which they arrived.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        sources = [run.read(bucket) for run in self._runs if bucket in run.buckets]
        if self._sort is SortMode.GLOBAL:
            yield from self._merge(bucket, sources)
        else:
            for source in sources:
                yield from source

    def _sorted_run(self) -> SortedRows:
        changes = pa.concat_tables([changes for changes, _ in self._gathered])
        numbers = np.concatenate([numbers for _, numbers in self._gathered])
        self._gathered, self._gathered_bytes = [], 0
        in_order = self._sort is SortMode.NONE
        order = None if in_order else _order_of(changes, self._order_by)
        # All columns are copied only once, because this takes longer than the comparison of keys.
        return sort_by_bucket(changes.column(PARTITION_PATH), numbers, changes, order=order)

    def _store(self, run: SortedRows) -> _DiskRun:
        return _DiskRun.write(self._next_path(), run.rows.schema, run.divide())

    def _merge(self, bucket: Bucket, sources: list[Iterator[pa.Table]]) -> Iterator[pa.Table]:
        while len(sources) > _MERGED_RUNS:
            merged = self._merged(sources[:_MERGED_RUNS])
            first = next(merged)
            parts = ((bucket, part) for part in _chained(first, merged))
            run = _DiskRun.write(self._next_path(), first.schema, parts)
            # The merged run comes first, because its changes arrived first.
            sources = [run.read(bucket), *sources[_MERGED_RUNS:]]
        return self._merged(sources)

    def _merged(self, sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
        share_bytes = _MERGE_BYTES // max(1, len(sources))
        return merge_sorted([_joined(one, share_bytes) for one in sources], self._order_by)

    def _next_path(self) -> Path:
        if self._folder is None:
            self._folder = self._opened.enter_context(scratch_folder("bulk-insert"))
        return self._folder / f"{next(self._file_numbers)}.arrow"


def merge_sorted(
    sources: Sequence[Iterator[pa.Table]], order_by: Sequence[str] = (RECORD_KEY,)
) -> Iterator[pa.Table]:
    """Merge streams of tables, each of which is sorted by some columns, into one sorted stream.

    At most one table of each source is held in memory, unless many changes have the same key.

    Args:
        sources: the streams. Of changes with the same key, those of earlier sources come first.
        order_by: the columns, as for ``SortedRuns``.
    """
    heads = [head for head in (_Head(source, order_by) for source in sources) if head.fill()]
    while heads:
        bound = min(head.last_key for head in heads)
        parts = [part for head in heads for part in head.take_up_to(bound)]
        together = pa.concat_tables(parts)
        yield together.take(_order_of(together, order_by))
        heads = [head for head in heads if head.fill()]


class _Run(Protocol):
    @property
    def buckets(self) -> Iterable[Bucket]: ...

    def read(self, bucket: Bucket) -> Iterator[pa.Table]: ...


class _MemoryRun:
    """A run in memory."""

    def __init__(self, run: SortedRows) -> None:
        self._rows = dict(run.divide())

    @property
    def buckets(self) -> Iterable[Bucket]:
        return self._rows.keys()

    def read(self, bucket: Bucket) -> Iterator[pa.Table]:
        rows = self._rows[bucket]
        yield from _slices(rows)


@dataclass(slots=True)
class _Extent:
    """The part of a file that has the batches of one bucket.

    Attributes:
        start: position of the first message in bytes.
        batches: number of batches.
    """

    start: int
    batches: int = 0


class _DiskRun:
    """A run in an Arrow IPC stream, with the position of each bucket's batches in the file."""

    def __init__(self, path: Path, schema: pa.Schema, extents: dict[Bucket, _Extent]) -> None:
        self._path, self._schema, self._extents = path, schema, extents

    @classmethod
    def write(
        cls, path: Path, schema: pa.Schema, parts: Iterable[tuple[Bucket, pa.Table]]
    ) -> _DiskRun:
        """Write a run. All parts of a bucket follow each other."""
        extents: dict[Bucket, _Extent] = {}
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            temporary_writes("rows that exceed the memory for sorting"),
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_stream(file, schema, options=options) as writer,
        ):
            for bucket, rows in parts:
                extent = extents.setdefault(bucket, _Extent(file.tell()))
                for part in _slices(rows):
                    for batch in part.combine_chunks().to_batches():
                        writer.write_batch(batch)
                        extent.batches += 1
        return cls(path, schema, extents)

    @property
    def buckets(self) -> Iterable[Bucket]:
        return self._extents.keys()

    def read(self, bucket: Bucket) -> Iterator[pa.Table]:
        extent = self._extents[bucket]
        with pa.OSFile(str(self._path)) as file:
            file.seek(extent.start)
            remaining = extent.batches
            while remaining:
                message = pa.ipc.read_message(file)
                if message.type == "schema":  # it precedes the first batch of the file
                    continue
                remaining -= 1
                yield pa.Table.from_batches([pa.ipc.read_record_batch(message, self._schema)])


class _Head:
    """The first table of a sorted stream that was not returned yet."""

    def __init__(self, source: Iterator[pa.Table], order_by: Sequence[str]) -> None:
        self._source, self._order_by = source, order_by
        self._rows: pa.Table | None = None

    def fill(self) -> bool:
        """Read the next table if the current one was returned; return False at the end."""
        if self._rows is None:
            self._rows = next(self._source, None)
        return self._rows is not None

    @property
    def last_key(self) -> _Key:
        return self._key(-1)

    def take_up_to(self, bound: _Key) -> Iterator[pa.Table]:
        """Yield the changes with keys up to the bound, also those in the following tables."""
        while self.fill() and self._key(0) <= bound:
            assert self._rows is not None
            # The rows are sorted, so few of them are compared.
            positions = range(self._rows.num_rows)
            size = bisect_right(positions, bound, key=self._key)
            rows, self._rows = self._rows, None
            yield rows.slice(0, size)
            if size < rows.num_rows:
                self._rows = rows.slice(size)
                return

    def _key(self, position: int) -> _Key:
        assert self._rows is not None
        at = position % self._rows.num_rows
        values = (self._rows.column(name)[at].as_py() for name in self._order_by)
        return tuple((value is not None, value) for value in values)


def _order_of(changes: pa.Table, order_by: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the stable order by some columns, nulls first, and texts in the order of the bytes."""
    order: npt.NDArray[np.int64] = np.arange(changes.num_rows)
    for name in reversed(order_by):  # each sort is stable, so the first column is sorted last
        values = changes.column(name).combine_chunks().take(pa.array(order))
        indices = pc.array_sort_indices(values, null_placement="at_start")
        order = order[indices.to_numpy()]
    return order


def _joined(tables: Iterator[pa.Table], max_bytes: int) -> Iterator[pa.Table]:
    """Yield tables of about ``max_bytes`` that have the rows of one or several tables."""
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    for part in tables:
        if waiting and waiting_bytes + part.nbytes > max_bytes:
            yield pa.concat_tables(waiting)
            waiting, waiting_bytes = [], 0
        waiting.append(part)
        waiting_bytes += part.nbytes
    if waiting:
        yield pa.concat_tables(waiting)


def _slices(rows: pa.Table) -> Iterator[pa.Table]:
    size = max(1, rows.num_rows * _BATCH_BYTES // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size)


def _chained(first: pa.Table, following: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from following
