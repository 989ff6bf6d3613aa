"""Sorts the first records of an index on local disk, so that memory does not limit an index.

The records of each source, such as a file slice, are stored as they are read. A source whose
records have changed meanwhile is dropped and added again. At the end, the records are divided by
the file group of the index that contains them (shard by shard), and each shard is sorted in the way
of an external merge sort. So memory holds at most one run, and one batch of each run of a shard.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile import Entries
from lakemark.storage.scratch import scratch_folder, temporary_writes

#: Arrow bytes of a run. While a run is sorted, it exists twice in memory.
RUN_BYTES = 64 << 20

#: Arrow bytes of a stored batch. A merge holds one batch of each run in memory.
_BATCH_BYTES = 1 << 20

#: The most shards into which the records are divided at a time, each in an open file.
_OPEN_SHARDS = 256

#: The records as they are stored, with the number of the source that has them.
_SCHEMA = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("source", pa.int32())])

#: Returns the number of the shard of each record, given the keys and the numbers of the sources.
ShardsOf = Callable[[pa.BinaryArray, npt.NDArray[np.int32]], npt.NDArray[np.int64]]

_WHAT = "the records of an index that is being built"


class SpilledEntries:
    """Records in any order, on disk. On exit of the context, the files are removed."""

    def __init__(self, run_bytes: int = RUN_BYTES) -> None:
        """Create an empty object.

        Args:
            run_bytes: Arrow bytes of a run.
        """
        self._run_bytes = run_bytes
        self._opened = ExitStack()
        self._numbers = count()
        self._stored: list[Path] = []
        self._gathered: list[pa.Table] = []
        self._gathered_bytes = 0
        self._counts: Counter[int] = Counter()
        self._key_bytes: Counter[int] = Counter()

    def __enter__(self) -> SpilledEntries:
        self._folder = self._opened.enter_context(scratch_folder("index"))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    def count_of(self, sources: Iterable[int]) -> int:
        """Return the number of records of some sources."""
        return sum(self._counts[source] for source in sources)

    def key_bytes_of(self, sources: Iterable[int]) -> int:
        """Return the size of the keys of these records, in bytes."""
        return sum(self._key_bytes[source] for source in sources)

    def add(self, entries: Entries, source: int) -> None:
        """Add records of a source.

        Args:
            entries: the records, in any order.
            source: the number of the source.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        rows = len(entries.keys)
        if not rows:
            return
        columns = [*entries, pa.repeat(pa.scalar(source, pa.int32()), rows)]
        self._gathered.append(pa.table(columns, schema=_SCHEMA))
        self._gathered_bytes += self._gathered[-1].nbytes
        self._counts[source] += rows
        self._key_bytes[source] += entries.keys.nbytes
        if self._gathered_bytes >= self._run_bytes:
            self._stored.append(self._store(self._gathered))
            self._gathered, self._gathered_bytes = [], 0

    def drop(self, source: int) -> None:
        """Drop all records of a source."""
        del self._counts[source], self._key_bytes[source]

    def store(self, content: bytes) -> Path:
        """Keep a file on local disk until the end of the context; return its path.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        path = self._folder / f"{next(self._numbers)}.hfile"
        with temporary_writes(_WHAT):
            path.write_bytes(content)
        return path

    def shards(self, number: int, shards_of: ShardsOf) -> Iterator[Iterator[pa.Table]]:
        """Yield the records of each shard, in the order of the shards' numbers.

        The records of a shard are tables with the columns ``key``, ``value`` and ``source``, sorted
        by key. Read them before the next shard.

        Args:
            number: the number of shards.
            shards_of: returns the shard of each record.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        for first in range(0, number, _OPEN_SHARDS):
            window = range(first, min(first + _OPEN_SHARDS, number))
            divided = self._divide(window, shards_of)
            for shard in window:
                path = divided.get(shard)
                yield iter(()) if path is None else self._sorted(_read(path))
                if path is not None:
                    path.unlink(missing_ok=True)

    def _divide(self, window: range, shards_of: ShardsOf) -> dict[int, Path]:
        """Write the records of these shards to a file for each shard that has any."""
        paths: dict[int, Path] = {}
        with temporary_writes(_WHAT), ExitStack() as writers:
            opened: dict[int, pa.ipc.RecordBatchStreamWriter] = {}
            for table in self._kept():
                columns = (table[name].combine_chunks() for name in ("key", "source"))
                keys, sources = columns
                shards = shards_of(keys, np.asarray(sources))
                for shard in np.unique(shards[np.isin(shards, window)]).tolist():
                    if shard not in opened:
                        paths[shard] = self._new_path()
                        opened[shard] = writers.enter_context(_writer(paths[shard]))
                    opened[shard].write_table(table.filter(pa.array(shards == shard)))
        return paths

    def _kept(self) -> Iterator[pa.Table]:
        """Yield all records, without those of dropped sources."""
        kept = pa.array(list(self._counts), pa.int32())
        stored = (table for path in self._stored for table in _combined(_read(path)))
        for table in (*stored, *_combined(self._gathered)):
            yield table.filter(pc.is_in(table["source"], value_set=kept))

    def _sorted(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Yield records sorted by key; runs are stored if there are several."""
        runs: list[Path] = []
        last: pa.Table | None = None
        for run in _combined(tables, self._run_bytes):
            if last is not None:
                runs.append(self._store([_in_order(last)]))
            last = run
        if last is not None and not runs:
            yield _in_order(last)
        elif last is not None:
            runs.append(self._store([_in_order(last)]))
            yield from _combined(_merged([_read(path) for path in runs]), self._run_bytes)
        for path in runs:
            path.unlink(missing_ok=True)

    def _store(self, tables: Iterable[pa.Table]) -> Path:
        path = self._new_path()
        with temporary_writes(_WHAT), _writer(path) as writer:
            for table in tables:
                rows = max(1, table.num_rows * _BATCH_BYTES // max(1, table.nbytes))
                writer.write_table(table, max_chunksize=rows)
        return path

    def _new_path(self) -> Path:
        return self._folder / f"{next(self._numbers)}.arrows"


def _writer(path: Path) -> pa.ipc.RecordBatchStreamWriter:
    return pa.ipc.new_stream(str(path), _SCHEMA, options=pa.ipc.IpcWriteOptions(compression="lz4"))


def _read(path: Path) -> Iterator[pa.Table]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])


def _combined(tables: Iterable[pa.Table], size_bytes: int = RUN_BYTES) -> Iterator[pa.Table]:
    """Combine small tables into tables of about this size, each column in one chunk."""
    gathered: list[pa.Table] = []
    gathered_bytes = 0
    for table in tables:
        gathered.append(table)
        gathered_bytes += table.nbytes
        if gathered_bytes >= size_bytes:
            yield pa.concat_tables(gathered).combine_chunks()
            gathered, gathered_bytes = [], 0
    if gathered:
        yield pa.concat_tables(gathered).combine_chunks()


def _in_order(table: pa.Table) -> pa.Table:
    order = pc.sort_indices(table, [("key", "ascending"), ("source", "ascending")])
    return table.take(order)


def _merged(runs: Iterable[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Merge sorted runs; each step uses up one batch of a run."""
    opened = [(run, table) for run in runs if (table := next(run, None)) is not None]
    while opened:
        limit = pa.scalar(min(table["key"][-1].as_py() for _, table in opened), pa.binary())
        ready, left = [], []
        for run, table in opened:
            end = pc.sum(pc.less_equal(table["key"], limit)).as_py() or 0
            ready.append(table.slice(0, end))
            rest = table.slice(end) if end < table.num_rows else next(run, None)
            if rest is not None:
                left.append((run, rest))
        yield _in_order(pa.concat_tables(ready).combine_chunks())
        opened = left
