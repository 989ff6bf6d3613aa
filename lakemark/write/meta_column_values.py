"""Sets the meta columns whose values only the writer of a file knows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.meta_columns import COMMIT_SEQNO, COMMIT_TIME, FILE_NAME, META_COLUMNS


def set_meta_columns(
    rows: pa.Table, instant: str, task: int | str, file_name: str, first_row: int = 0
) -> pa.Table:
    """Set the meta columns of rows for a file.

    A row without a commit time is new: it gets the instant, and the sequence number
    ``<instant>_<task>_<row>``. A row with a commit time was written before (a compaction copies it)
    and keeps both. All rows get the file name.

    Args:
        rows: record key and partition path are already set; meta columns in any order, or absent.
        instant: requested time of the commit.
        task: distinguishes the files of one commit.
        file_name: the base file's name; for records of a log, the file id.
        first_row: number of the first of these rows in the file, counted from 0. It makes the
            sequence numbers of a commit unique, however its rows are divided into tables.
    """
    count = rows.num_rows
    meta = {name: _column(rows, name) for name in META_COLUMNS}
    if meta[COMMIT_TIME].null_count:
        prefix, row_numbers = f"{instant}_{task}_", np.arange(first_row, first_row + count)
        seqnos = pc.binary_join_element_wise(prefix, pa.array(row_numbers).cast(pa.string()), "")
        is_new = meta[COMMIT_TIME].is_null()
        meta[COMMIT_TIME] = pc.fill_null(meta[COMMIT_TIME], instant)
        meta[COMMIT_SEQNO] = pc.if_else(is_new, seqnos, meta[COMMIT_SEQNO])
    meta[FILE_NAME] = pa.repeat(pa.scalar(file_name, pa.string()), count)
    own = [name for name in rows.column_names if name not in META_COLUMNS]
    return pa.table({**meta, **{name: rows.column(name) for name in own}}, _schema(rows, own))


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray | pa.Array:
    return rows.column(name) if name in rows.column_names else pa.nulls(rows.num_rows, pa.string())


def _schema(rows: pa.Table, own: list[str]) -> pa.Schema:
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return pa.schema([*meta, *(rows.schema.field(name) for name in own)])
