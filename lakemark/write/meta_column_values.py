"""Sets those meta columns whose values are known only when a file is written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS


def set_meta_columns(
    rows: pa.Table, instant: str, series: int, file_name: str, first_row: int = 0
) -> pa.Table:
    """Set commit time, sequence number and file name of rows that are written to a file.

    A row without a commit time is new. Its commit time becomes the instant, and its sequence number
    becomes ``<instant>_<series>_<row>``. A row with a commit time is a copy of an existing row, for
    example in a compaction. Such a row keeps its commit time and sequence number.

    Args:
        rows: rows with record keys and partition paths. The other meta columns may be absent, and
            the meta columns may have any order.
        instant: requested time of the commit.
        series: number of the file group, which is different for each file of a commit.
        file_name: name of the base file; for a log, the file id.
        first_row: position of the first row in the file, from 0. With this position, the
            sequence numbers in a file are unique even if its rows arrive in several tables.
    """
    count = rows.num_rows
    meta = {name: _column(rows, name) for name in META_COLUMNS}
    if meta[COMMIT_TIME].null_count:
        # Arrow cannot replace nulls in a dictionary-encoded column.
        meta[COMMIT_TIME] = meta[COMMIT_TIME].cast(pa.string())
        prefix, row_numbers = f"{instant}_{series}_", np.arange(first_row, first_row + count)
        seqnos = pc.binary_join_element_wise(prefix, pa.array(row_numbers).cast(pa.string()), "")
        is_new = meta[COMMIT_TIME].is_null()
        meta[COMMIT_TIME] = pc.fill_null(meta[COMMIT_TIME], instant)
        meta[COMMIT_SEQNO] = pc.if_else(is_new, seqnos, meta[COMMIT_SEQNO])
    meta[FILE_NAME] = pa.repeat(pa.scalar(file_name, pa.string()), count)
    own = [name for name in rows.column_names if name not in META_COLUMNS]
    columns = {**meta, **{name: rows.column(name) for name in own}}
    return pa.table(columns, _schema(rows, meta, own))


def clear_meta_columns(rows: pa.Table) -> pa.Table:
    """Return the rows with nulls in the meta columns, as a table without meta columns has them.

    Source: ``HoodieAppendHandle`` and ``HoodieMergeHandle`` of Apache Hudi 1.2.0, which populate no
    meta column if ``hoodie.populate.meta.fields`` is false.
    """
    nulls = pa.nulls(rows.num_rows, pa.string())
    for name in META_COLUMNS:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), nulls)
    return rows


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    return rows.column(name) if name in rows.column_names else pa.nulls(rows.num_rows, pa.string())


def _schema(
    rows: pa.Table, meta: Mapping[str, pa.ChunkedArray | pa.Array], own: list[str]
) -> pa.Schema:
    fields = [pa.field(name, column.type) for name, column in meta.items()]
    return pa.schema([*fields, *(rows.schema.field(name) for name in own)])
