"""Stores a stream of changes that may be larger than memory, divided by file group.

Changes are gathered in memory. If they exceed the memory for them, the oldest ones are written to
local disk as a run, and what memory holds at the end is the last run. A run is sorted by bucket,
and by record key (or by other keys) unless the caller asks for the order of arrival. The changes of
a bucket can then be read as one stream. If the stream must be sorted by key, its runs are merged in
the way of an external merge sort.

Memory holds pieces of runs, each of which is sorted when it is complete. A run is a merge of
pieces, which are merged while it is read or written. So rows are copied twice in memory, but near
to each other, in the caches of the processor: to sort 128 MiB at once takes four times as long.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, count, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.storage.scratch import scratch_folder, temporary_writes
from lakemark.write.partitioner import Bucket, SortedRows, sort_by_bucket
from lakemark.write.shared_dictionaries import SharedDictionaries
from lakemark.write.stable_sort import Positions, sorted_positions

#: Arrow bytes of a run on disk.
RUN_BYTES = 128 << 20

#: Arrow bytes of a piece of a run.
_PIECE_BYTES = 8 << 20

#: Arrow bytes of the tables that a merge of the pieces of a run returns.
_STEP_BYTES = 16 << 20

#: Arrow bytes of a stored batch. A merge holds at least one batch of each run in memory.
_BATCH_BYTES = 1 << 20

#: Number of runs that are merged at a time. If a bucket has more runs, some are merged first.
_MERGED_RUNS = 64

#: Arrow bytes that a merge of runs holds in memory, unless a batch of each run has more.
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
        runs_in_memory: int = 1,
        partition_path: str | None = None,
    ) -> None:
        """Create an empty object.

        Args:
            sort: the order in which ``read`` returns the changes of a bucket.
            run_bytes: Arrow bytes of a run on disk.
            order_by: the columns by which changes are sorted, instead of the record key; they
                contain integers, decimals, texts or binaries, and nulls come first.
            runs_in_memory: the number of runs whose bytes memory may hold before one is written.
            partition_path: the partition of all changes, whatever their meta column contains; None
                for the partitions in this column.
        """
        self._run_bytes, self._memory_bytes = run_bytes, runs_in_memory * run_bytes
        self._sort, self._partition_path = sort, partition_path
        self._order_by = None if sort is SortMode.NONE else tuple(order_by)
        self._dictionaries = SharedDictionaries(plain=tuple(order_by))
        self._opened = ExitStack()
        self._folder: Path | None = None
        self._file_numbers = count()
        self._unsorted: list[tuple[pa.Table, Numbers]] = []
        self._unsorted_bytes = 0
        self._pieces: deque[SortedRows] = deque()
        self._piece_bytes = 0
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
        """Add changes; before, write runs to disk if memory would hold too many changes.

        Args:
            changes: changes with record key and partition path.
            numbers: the bucket number of each change.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        if not changes.num_rows:
            return
        while 0 < self._held_bytes and self._held_bytes + changes.nbytes > self._memory_bytes:
            self._store_run()
        encoded = self._dictionaries.encode(changes)
        if self._unsorted and self._unsorted[-1][0].schema != encoded.schema:
            self._sort_piece()
        for rows in _slices(encoded, _PIECE_BYTES):
            self._unsorted.append((rows, numbers[: rows.num_rows]))
            numbers = numbers[rows.num_rows :]
            self._unsorted_bytes += rows.nbytes
            if self._unsorted_bytes >= _PIECE_BYTES:
                self._sort_piece()
        self.num_rows += changes.num_rows

    def finish(self) -> list[Bucket]:
        """Sort the last run, which stays in memory, and return all buckets in ascending order.

        Call this method once, before ``read``.
        """
        self._sort_piece()
        if self._pieces:
            self._runs.append(self._memory_run(self._pieces))
        return sorted({bucket for run in self._runs for bucket in run.buckets})

    def read(self, bucket: Bucket) -> Iterator[pa.Table]:
        """Yield the changes of a bucket. Changes of one key keep the order in which they arrived.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        sources = [self._read(run, bucket) for run in self._runs if bucket in run.buckets]
        if self._sort is SortMode.GLOBAL:
            sources = [self._merge(bucket, sources)]
        for rows in chain.from_iterable(sources):
            yield self._dictionaries.decode(rows)

    @property
    def _held_bytes(self) -> int:
        return self._unsorted_bytes + self._piece_bytes

    def _sort_piece(self) -> None:
        if not self._unsorted:
            return
        changes = pa.concat_tables([rows for rows, _ in self._unsorted])
        numbers = np.concatenate([numbers for _, numbers in self._unsorted])
        self._unsorted, self._unsorted_bytes = [], 0
        order = None if self._order_by is None else _sorted_positions(changes, self._order_by)
        # All columns are copied only once, because this takes longer than the comparison of keys.
        piece = sort_by_bucket(self._paths_of(changes), numbers, changes, order=order)
        self._pieces.append(piece)
        self._piece_bytes += piece.rows.nbytes

    def _paths_of(self, changes: pa.Table) -> pa.ChunkedArray | pa.Array:
        if self._partition_path is None:
            paths = self._dictionaries.update(changes.select([PARTITION_PATH]))
            return self._dictionaries.decode(paths).column(0)
        return pa.repeat(pa.scalar(self._partition_path), changes.num_rows)

    def _store_run(self) -> None:
        self._sort_piece()
        pieces: list[SortedRows] = []
        while self._pieces and sum(piece.rows.nbytes for piece in pieces) < self._run_bytes:
            pieces.append(self._pieces.popleft())
            self._piece_bytes -= pieces[-1].rows.nbytes
        run = self._memory_run(pieces)
        parts = ((bucket, part) for bucket in run.buckets for part in run.read(bucket))
        self._runs.append(_DiskRun.write(self._next_path(), run.schema, parts))

    def _memory_run(self, pieces: Iterable[SortedRows]) -> _MemoryRun:
        return _MemoryRun(pieces, self._order_by, self._dictionaries.update)

    def _read(self, run: _Run, bucket: Bucket) -> Iterator[pa.Table]:
        return map(self._dictionaries.update, run.read(bucket))

    def _merge(self, bucket: Bucket, sources: list[Iterator[pa.Table]]) -> Iterator[pa.Table]:
        while len(sources) > _MERGED_RUNS:
            merged = self._merged(sources[:_MERGED_RUNS])
            first = next(merged)
            parts = ((bucket, part) for part in _chained(first, merged))
            run = _DiskRun.write(self._next_path(), first.schema, parts)
            # The merged run comes first, because its changes arrived first.
            sources = [self._read(run, bucket), *sources[_MERGED_RUNS:]]
        return self._merged(sources)

    def _merged(self, sources: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
        if len(sources) == 1:
            return sources[0]
        assert self._order_by is not None
        return merge_sorted(sources, self._order_by)

    def _next_path(self) -> Path:
        if self._folder is None:
            self._folder = self._opened.enter_context(scratch_folder("bulk-insert"))
        return self._folder / f"{next(self._file_numbers)}.arrow"


def merge_sorted(
    sources: Sequence[Iterator[pa.Table]],
    order_by: Sequence[str] = (RECORD_KEY,),
    held_bytes: int = _MERGE_BYTES,
) -> Iterator[pa.Table]:
    """Merge streams of tables, each of which is sorted by some columns, into one sorted stream.

    Args:
        sources: the streams. Of changes with the same key, those of earlier sources come first.
        order_by: the columns, as for ``SortedRuns``.
        held_bytes: Arrow bytes that are held in memory, unless a table of each source has more, or
            many changes have the same key.
    """
    heads = [_Head(source, order_by, held_bytes // len(sources)) for source in sources]
    while heads := [head for head in heads if head.fill()]:
        bound = min(head.last_key for head in heads)
        together = pa.concat_tables([part for head in heads for part in head.take_up_to(bound)])
        yield together.take(pa.array(_sorted_positions(together, order_by)))


class _Run(Protocol):
    @property
    def buckets(self) -> Iterable[Bucket]: ...

    def read(self, bucket: Bucket) -> Iterator[pa.Table]: ...


class _MemoryRun:
    """A run in memory, whose pieces are merged while it is read."""

    def __init__(
        self,
        pieces: Iterable[SortedRows],
        order_by: Sequence[str] | None,
        update: Callable[[pa.Table], pa.Table],
    ) -> None:
        """Divide the pieces by bucket.

        Args:
            pieces: the pieces in the order in which they arrived.
            order_by: the columns by which the changes of each bucket are sorted; None if they have
                the order in which they arrived.
            update: gives changes the schema of the latest ones (``SharedDictionaries.update``).
                Only the changes that are read at a time are updated, because this may make them
                many times as large.
        """
        self._order_by, self._update = order_by, update
        self._parts: dict[Bucket, list[pa.Table]] = {}
        for piece in pieces:
            for bucket, rows in piece.divide():
                self._parts.setdefault(bucket, []).append(rows)

    @property
    def schema(self) -> pa.Schema:
        first: pa.Table = next(iter(self._parts.values()))[0]
        return self._update(first.slice(0, 0)).schema

    @property
    def buckets(self) -> Iterable[Bucket]:
        return self._parts.keys()

    def read(self, bucket: Bucket) -> Iterator[pa.Table]:
        parts = self._parts[bucket]
        if self._order_by is None or len(parts) == 1:
            for _, alike in groupby(parts, key=lambda part: part.schema):
                yield from map(self._update, _slices(pa.concat_tables(alike), _STEP_BYTES))
        else:
            yield from _merge_in_memory(parts, self._order_by, self._update)


def _merge_in_memory(
    parts: Sequence[pa.Table],
    order_by: Sequence[str],
    update: Callable[[pa.Table], pa.Table],
) -> Iterator[pa.Table]:
    """Merge sorted tables; of changes with the same key, those of earlier tables come first."""
    order = _sorted_positions(pa.concat_tables([part.select(order_by) for part in parts]), order_by)
    counts = [part.num_rows for part in parts]
    part_of_row = np.repeat(np.arange(len(parts), dtype=np.uint32), counts)
    first_rows, done = np.cumsum([0, *counts[:-1]]), np.zeros(len(parts), np.int64)
    step = _rows_of(parts, _STEP_BYTES)
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        sources = part_of_row[rows]
        taken = np.bincount(sources, minlength=len(parts))
        # The tables are sorted, so these rows are the next ones of each table.
        sliced = (parts[n].slice(done[n], taken[n]) for n in np.flatnonzero(taken).tolist())
        following = [update(rows) for rows in sliced]
        moved = np.cumsum(taken) - taken - first_rows - done
        yield pa.concat_tables(following).take(pa.array(rows + moved[sources]))
        done += taken


def _sorted_positions(rows: pa.Table, order_by: Sequence[str]) -> Positions:
    return sorted_positions([rows.column(name) for name in order_by])


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
                for part in _slices(rows, _BATCH_BYTES):
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
    """The first tables of a sorted stream that were not returned yet.

    They are filled up before each step of a merge. If the streams have similar keys, a step then
    returns most rows that all streams hold. Otherwise it would return those of one stream.
    """

    def __init__(
        self, source: Iterator[pa.Table], order_by: Sequence[str], wanted_bytes: int
    ) -> None:
        self._source, self._order_by, self._wanted_bytes = source, order_by, wanted_bytes
        self._held: deque[pa.Table] = deque()
        self._held_bytes = 0

    def fill(self) -> bool:
        """Read tables until they have the wanted bytes; return False at the end."""
        while self._held_bytes < self._wanted_bytes and self._read():
            pass
        return bool(self._held) or self._read()

    @property
    def last_key(self) -> _Key:
        return self._key(self._held[-1], -1)

    def take_up_to(self, bound: _Key) -> Iterator[pa.Table]:
        """Yield the changes with keys up to the bound, also those that are not held yet."""
        while (self._held or self._read()) and self._key(self._held[0], 0) <= bound:
            rows = self._held.popleft()
            self._held_bytes -= rows.nbytes
            size = self._num_up_to(bound, rows)
            yield rows.slice(0, size)
            if size < rows.num_rows:
                self._held.appendleft(rows.slice(size))
                self._held_bytes += self._held[0].nbytes

    def _read(self) -> bool:
        rows = next(self._source, None)
        if rows is None:
            return False
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        return True

    def _num_up_to(self, bound: _Key, rows: pa.Table) -> int:
        if self._key(rows, -1) <= bound:
            return int(rows.num_rows)
        # The rows are sorted, so few of them are compared.
        positions = range(rows.num_rows)
        return bisect_right(positions, bound, key=lambda position: self._key(rows, position))

    def _key(self, rows: pa.Table, position: int) -> _Key:
        at = position % rows.num_rows
        values = (rows.column(name)[at].as_py() for name in self._order_by)
        return tuple((value is not None, value) for value in values)


def _slices(rows: pa.Table, max_bytes: int) -> Iterator[pa.Table]:
    """Yield slices of about ``max_bytes``."""
    step = _rows_of([rows], max_bytes)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def _rows_of(tables: Sequence[pa.Table], max_bytes: int) -> int:
    """Return how many rows of some tables have about ``max_bytes``; at least one."""
    total_bytes = sum(int(rows.nbytes) for rows in tables)
    total_rows = sum(int(rows.num_rows) for rows in tables)
    return max(1, total_rows * max_bytes // max(1, total_bytes))


def _chained(first: pa.Table, following: Iterator[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from following
