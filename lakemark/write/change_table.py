"""Builds a table of changes (``lakemark.model.changes``) from rows, keys and change kinds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.model.written_columns import written_field


def change_table(
    rows: pa.Table,
    keys: pa.Array,
    paths: pa.Array,
    kinds: npt.NDArray[np.int8],
    ordering_fields: Sequence[str],
    written_columns: pa.Array | None = None,
) -> pa.Table:
    """Return a table of changes.

    Args:
        rows: rows with the table's columns, without meta columns.
        keys: the record key of each row.
        paths: the partition path of each row.
        kinds: the ``ChangeKind`` of each row.
        ordering_fields: the table's ordering fields. A delete keeps only the values of these
            fields.
        written_columns: the column ``WRITTEN_COLUMNS``; None if each row has all columns.
    """
    columns = dict(
        zip(rows.column_names, _without_deleted(rows, kinds, ordering_fields), strict=True)
    )
    columns |= {RECORD_KEY: keys, PARTITION_PATH: paths, CHANGE_KIND: pa.array(kinds)}
    table = with_meta_columns(rows.schema)
    fields = [*table, CHANGE_KIND_FIELD]
    if written_columns is not None:
        fields.append(written_field(len(table)))
        columns[WRITTEN_COLUMNS] = written_columns
    nulls = pa.nulls(rows.num_rows, pa.string())
    schema = pa.schema(fields)
    return pa.table([columns.get(field.name, nulls) for field in schema], schema=schema)


def _without_deleted(
    rows: pa.Table, kinds: npt.NDArray[np.int8], ordering_fields: Sequence[str]
) -> list[pa.ChunkedArray]:
    """Return the columns, with nulls in the rows of deletes except in ordering columns."""
    if not kinds.any():
        return list(rows.columns)
    stays = pa.array(kinds == ChangeKind.UPSERT)
    ordering = {name.partition(".")[0] for name in ordering_fields}
    return [
        column if name in ordering else pc.if_else(stays, column, pa.scalar(None, column.type))
        for name, column in zip(rows.column_names, rows.columns, strict=True)
    ]
