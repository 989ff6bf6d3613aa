"""Encodes and decodes ``WRITTEN_COLUMNS``: for which columns each change has values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.model.changes import CHANGE_COLUMNS, WRITTEN_COLUMNS

#: A matrix of flags, with a row for each change and a column for each column of the table.
Written = npt.NDArray[np.bool_]


def written_field(column_count: int) -> pa.Field:
    """Return the field ``WRITTEN_COLUMNS``.

    Args:
        column_count: number of the Hudi table's columns, including meta columns.
    """
    return pa.field(WRITTEN_COLUMNS, pa.binary(-(-column_count // 8)), nullable=False)


def pack(written: Written) -> pa.Array:
    """Encode flags as a column ``WRITTEN_COLUMNS``."""
    count, column_count = written.shape
    bits = np.ascontiguousarray(np.packbits(written, axis=1, bitorder="little"))
    kind = written_field(column_count).type
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bits)])


def all_written(count: int, column_count: int) -> pa.Array:
    """Build a column ``WRITTEN_COLUMNS`` for ``count`` rows that have values for every column."""
    return pack(np.ones((count, column_count), np.bool_))


def is_written(bits: bytes, column_count: int) -> list[bool]:
    """Decode a value of ``WRITTEN_COLUMNS`` to one flag for each column of the table."""
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=column_count, bitorder="little")
    return [bool(flag) for flag in flags]


def has_partial_rows(changes: pa.Table) -> bool:
    """Return whether any row has values for only some of the columns."""
    if WRITTEN_COLUMNS not in changes.column_names or not changes.num_rows:
        return False
    kinds = changes.column(WRITTEN_COLUMNS).unique()
    full = all_written(1, len(own_columns(changes)))
    return len(kinds) > 1 or bool(kinds[0].as_py() != full[0].as_py())


def own_columns(changes: pa.Table) -> list[str]:
    """Return the Hudi table's columns in a table of changes; column ``i`` has bit ``i``."""
    return [name for name in changes.column_names if name not in CHANGE_COLUMNS]
