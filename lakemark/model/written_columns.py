"""The bits of ``WRITTEN_COLUMNS``: the columns of the table that each change has values for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.changes import CHANGE_COLUMNS, WRITTEN_COLUMNS

#: A row for each change, a column for each column of the table.
Written = npt.NDArray[np.bool_]


def written_field(column_count: int) -> pa.Field:
    """Return the field of bits for a table of that many columns, meta columns included."""
    return pa.field(WRITTEN_COLUMNS, pa.binary(-(-column_count // 8)), nullable=False)


def pack(written: Written) -> pa.Array:
    """Build the column of bits."""
    count, column_count = written.shape
    bits = np.ascontiguousarray(np.packbits(written, axis=1, bitorder="little"))
    kind = written_field(column_count).type
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bits)])


def all_written(count: int, column_count: int) -> pa.Array:
    """Build the column of bits of rows that have values for every column."""
    return pack(np.ones((count, column_count), np.bool_))


def is_written(bits: bytes, column_count: int) -> list[bool]:
    """For each column of the table, whether rows with these bits have a value for it."""
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=column_count, bitorder="little")
    return [bool(flag) for flag in flags]


def has_partial_rows(changes: pa.Table) -> bool:
    """Return whether some row has values for only a part of the columns."""
    if WRITTEN_COLUMNS not in changes.column_names or not changes.num_rows:
        return False
    kinds = changes.column(WRITTEN_COLUMNS).unique()
    full = all_written(1, len(own_columns(changes)))
    return len(kinds) > 1 or bool(kinds[0].as_py() != full[0].as_py())


def own_columns(changes: pa.Table) -> list[str]:
    """The table's columns in a table of changes; bit ``i`` belongs to the ``i``-th of them."""
    return [name for name in changes.column_names if name not in CHANGE_COLUMNS]
