"""Stores rows on local disk, divided by record key. Each division can be merged separately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.java_hash import string_hash
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.storage.scratch import scratch_folder, temporary_writes

_DIVISION_BITS = 6

#: Number of divisions (files) of one spill.
DIVISION_COUNT = 1 << _DIVISION_BITS

#: How often rows can be divided. A division that is too large for memory is divided again by the
#: next bits of the hash, until all bits are used.
MAX_LEVEL = 32 // _DIVISION_BITS

#: Size of the tables that are read back. The stored batches are combined, because each added table
#: contributes only a few rows to a division.
_READ_BYTES = 32 << 20


class SpilledDivisions:
    """Stores each division of rows in an Arrow IPC stream, until the context manager exits."""

    def __init__(self, level: int) -> None:
        """Create an empty spill. Call ``fill`` to write rows.

        Args:
            level: how often the rows were already divided.
        """
        self._level = level
        self._opened = ExitStack()
        self._folder: Path | None = None
        self._writers: dict[int, pa.ipc.RecordBatchStreamWriter] = {}

    def __enter__(self) -> SpilledDivisions:
        self._folder = self._opened.enter_context(scratch_folder("merge"))
        return self

    def fill(self, tables: Iterable[pa.Table]) -> None:
        """Divide rows and write them to disk. Call this method only once.

        Args:
            tables: rows with a record key. Within a division, the rows keep their order.

        Raises:
            StorageUnavailable: the disk of the temporary folder is full.
        """
        with temporary_writes("rows of a file group that exceed the memory for merging"):
            try:
                for table in tables:
                    self._add(table)
            finally:
                for writer in self._writers.values():
                    writer.close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened.close()

    @property
    def divisions(self) -> list[int]:
        """The numbers of the divisions that have rows, in ascending order."""
        return sorted(self._writers)

    def read(self, division: int) -> Iterator[pa.Table]:
        """Yield the rows of a division in the order of arrival; yield nothing if it is empty.

        The stored batches are combined into tables of about 32 MiB.
        """
        if division not in self._writers:
            return
        with pa.OSFile(self._path(division)) as file, pa.ipc.open_stream(file) as stream:
            yield from _combine(stream)

    def _add(self, table: pa.Table) -> None:
        division_of_row = assign_divisions(table.column(RECORD_KEY), self._level)
        order = np.argsort(division_of_row, kind="stable")
        ordered = table.take(order)
        starts = np.searchsorted(division_of_row[order], np.arange(DIVISION_COUNT + 1))
        for division in np.flatnonzero(np.diff(starts)):
            start, end = starts[division], starts[division + 1]
            self._writer(int(division), table.schema).write_table(ordered.slice(start, end - start))

    def _writer(self, division: int, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        if division not in self._writers:
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            path = self._path(division)
            self._writers[division] = pa.ipc.new_stream(path, schema, options=options)
        return self._writers[division]

    def _path(self, division: int) -> str:
        assert self._folder is not None
        return str(self._folder / f"{division}.arrows")


def divide_by_key(
    tables: Iterable[pa.Table], memory_budget_bytes: int, level: int = 0
) -> Iterator[pa.Table]:
    """Divide rows into tables so that all rows of a record key are in the same table.

    If the rows exceed the memory budget, they are written to disk, divided by record key.

    Args:
        tables: rows with a record key, all with the same schema.
        memory_budget_bytes: largest size of a table. A table may be larger if its keys cannot be
            divided further.
        level: how often the rows were already divided.

    Yields:
        Tables that are not empty. Within a table, the rows keep their order.
    """
    arriving = iter(tables)
    held: list[pa.Table] = []
    held_bytes = 0
    for table in arriving:
        held.append(table)
        held_bytes += table.nbytes
        if held_bytes > memory_budget_bytes and level < MAX_LEVEL:
            break
    else:
        if held_bytes:
            yield pa.concat_tables(held)
        return
    with SpilledDivisions(level) as spilled:
        spilled.fill(chain(held, arriving))
        for division in spilled.divisions:
            yield from divide_by_key(spilled.read(division), memory_budget_bytes, level + 1)


def _combine(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for batch in batches:
        gathered.append(batch)
        gathered_bytes += batch.nbytes
        if gathered_bytes >= _READ_BYTES:
            yield pa.Table.from_batches(gathered).combine_chunks()
            gathered, gathered_bytes = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered).combine_chunks()


def assign_divisions(record_keys: pa.ChunkedArray, level: int) -> npt.NDArray[np.uint8]:
    """Return the division of each record key, from the bits of its hash that ``level`` selects."""
    chunks = [string_hash(chunk).view(np.uint32) for chunk in record_keys.chunks]
    hashes = np.concatenate([np.empty(0, dtype=np.uint32), *chunks])
    bits = _mix(hashes) << np.uint32(level * _DIVISION_BITS)
    return (bits >> np.uint32(32 - _DIVISION_BITS)).astype(np.uint8)


def _mix(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Apply the finaliser of MurmurHash3 to hashes.

    Without this step the divisions would be uneven, because all hashes of a bucket have the same
    remainder.
    """
    hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return hashes ^ (hashes >> np.uint32(16))
