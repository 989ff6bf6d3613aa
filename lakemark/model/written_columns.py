"""The bits of ``WRITTEN_COLUMNS``: which of the table's columns each row of a change carries."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.changes import CHANGE_COLUMNS, WRITTEN_COLUMNS

#: One row for each change, one column for each of the table's.
Written = npt.NDArray[np.bool_]


def written_field(column_count: int) -> pa.Field:
    """The column of bits in changes to a table of so many columns, meta columns among them."""
    return pa.field(WRITTEN_COLUMNS, pa.binary(-(-column_count // 8)), nullable=False)


def pack(written: Written) -> pa.Array:
    """The column of bits."""
    count, column_count = written.shape
    bits = np.ascontiguousarray(np.packbits(written, axis=1, bitorder="little"))
    kind = written_field(column_count).type
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bits)])


def all_written(count: int, column_count: int) -> pa.Array:
    """The column of bits of rows that carry every column."""
    return pack(np.ones((count, column_count), np.bool_))


def is_written(bits: bytes, column_count: int) -> list[bool]:
    """For each of the table's columns whether rows with these bits carry it."""
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=column_count, bitorder="little")
    return [bool(flag) for flag in flags]


def has_partial_rows(changes: pa.Table) -> bool:
    """Whether some row carries a part of the columns only."""
    if WRITTEN_COLUMNS not in changes.column_names or not changes.num_rows:
        return False
    kinds = changes.column(WRITTEN_COLUMNS).unique()
    full = all_written(1, len(own_columns(changes)))
    return len(kinds) > 1 or bool(kinds[0].as_py() != full[0].as_py())


def own_columns(changes: pa.Table) -> list[str]:
    """The table's columns in a table of changes; bit ``i`` is of the ``i``-th of them."""
    return [name for name in changes.column_names if name not in CHANGE_COLUMNS]
