"""Divides the rows of one table by the hash of their keys, with the help of the local disk.

Rows with the same key are in the same bucket, in both tables. So two tables that are larger than
memory are compared bucket by bucket.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.java_hash import byte_hash
from lakemark.schema.field_path import column_at
from lakemark.storage.scratch import temporary_writes

#: With ``MEMORY_BYTES`` of rows in each bucket, this is enough for 32 GiB of Arrow data.
BUCKETS = 128

#: About how many bytes of rows are in memory before they are written to the disk.
MEMORY_BYTES = 256 << 20


class KeyBuckets:
    """The rows of one table, divided into buckets.

    Attributes:
        schema: the columns of the rows.
        num_rows: the number of rows.

    Args:
        schema: the columns of the rows.
        key: the columns of the key; a name with dots is the path of a field in structs.
        folder: a temporary folder, which this object creates.
        memory_bytes: see ``MEMORY_BYTES``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        key: Sequence[str],
        folder: Path,
        memory_bytes: int = MEMORY_BYTES,
    ) -> None:
        self.schema, self._key, self._folder = schema, key, folder
        folder.mkdir()
        self._memory_bytes = memory_bytes
        self._held: list[list[pa.RecordBatch]] = [[] for _ in range(BUCKETS)]
        self._held_bytes = 0
        self._files: list[Path] = []
        self.num_rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            DiskFull: the disk of the temporary folder is full.
        """
        table = pa.Table.from_batches([rows])
        key = [key_column(table, name) for name in self._key]
        numbers = key_hashes(key, len(rows)) % BUCKETS
        order = np.argsort(numbers, kind="stable")
        ends = np.cumsum(np.bincount(numbers, minlength=BUCKETS))
        divided = rows.take(pa.array(order))
        for bucket, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if begin < end:
                self._held[bucket].append(divided.slice(begin, end - begin))
        self.num_rows += len(rows)
        self._held_bytes += divided.nbytes
        if self._held_bytes > self._memory_bytes:
            self._spill()

    def tables(self) -> Iterator[pa.Table]:
        """Return the rows of each bucket, in the order of the buckets."""
        opened = [pa.ipc.open_file(pa.memory_map(str(path))) for path in self._files]
        for bucket in range(BUCKETS):
            spilled = [one.get_batch(bucket) for one in opened]
            yield pa.Table.from_batches([*spilled, *self._held[bucket]], self.schema)

    def _spill(self) -> None:
        """Write the rows in memory to one file, which has a record batch for each bucket."""
        path = self._folder / f"{len(self._files)}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            temporary_writes("rows to compare"),
            pa.ipc.new_file(str(path), self.schema, options=options) as file,
        ):
            for held in self._held:
                file.write_batch(_as_batch(held, self.schema))
        self._files.append(path)
        self._held = [[] for _ in range(BUCKETS)]
        self._held_bytes = 0


def key_column(rows: pa.Table, name: str) -> pa.Array:
    """Return a column of the key, in which values that ``equal_values`` finds equal are the same.

    So -0.0 becomes 0.0, and there is only one NaN.

    Args:
        rows: the rows.
        name: the name of the column; with dots, the path of a field in structs.
    """
    column = column_at(rows, name).combine_chunks()
    if not pa.types.is_floating(column.type):
        return column
    zero, nan = (pa.scalar(value, column.type) for value in (0.0, math.nan))
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, zero))


def key_hashes(key: Sequence[pa.Array], count: int) -> npt.NDArray[np.uint32]:
    """Return a hash of the key of each row.

    Args:
        key: the columns of the key, none of which is nested.
        count: the number of rows.
    """
    hashes = np.ones(count, np.uint32)
    for column in key:
        hashes = hashes * np.uint32(31) + byte_hash(_as_bytes(column)).view(np.uint32)
    # Java's hash differs only in the last bits for keys that end in different digits.
    return hashes ^ (hashes >> np.uint32(15))


def _as_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return column
    if pa.types.is_fixed_size_binary(column.type):
        return column.cast(pa.binary())
    return pc.cast(column, pa.string())


def _as_batch(held: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    rows = pa.Table.from_batches(held, schema).combine_chunks().to_batches()
    return rows[0] if rows else pa.RecordBatch.from_pylist([], schema)
