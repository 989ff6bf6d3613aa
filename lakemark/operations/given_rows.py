"""The rows that a caller passes, as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.merge.merge_stream import split_batches

#: Arrow bytes of a table that ``each_table`` yields. A record batch may be much larger.
_TABLE_BYTES = 32 << 20

#: Rows in the forms in which a caller may pass them.
Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]


def as_table(rows: Rows, columns: pa.Schema) -> pa.Table:
    """Return all rows as one table.

    Args:
        rows: the rows.
        columns: the columns of the result if ``rows`` contains no batch.

    Raises:
        InvalidConfig: ``rows`` is something else, or its batches have different columns.
    """
    if isinstance(rows, pa.Table):
        return rows.combine_chunks()
    tables = list(each_table(rows))
    if not tables:
        return columns.empty_table()
    try:
        return pa.concat_tables(tables).combine_chunks()
    except pa.ArrowInvalid as error:
        message = f"the batches have different columns: {error}; convert them first"
        raise InvalidConfig(message) from error


def each_table(rows: Rows) -> Iterator[pa.Table]:
    """Yield the rows as tables of bounded size, each when it is needed.

    Raises:
        InvalidConfig: ``rows`` or one of its items is something else.
    """
    if isinstance(rows, pa.Table):
        yield from _divide(rows)
        return
    if isinstance(rows, pa.RecordBatchReader):
        yield rows.schema.empty_table()  # so that a reader without rows has columns
    if type(rows).__module__.partition(".")[0] == "pandas":  # not imported for this
        message = "rows are a pandas DataFrame; pass pyarrow.Table.from_pandas(rows)"
        raise InvalidConfig(message)
    is_batches = isinstance(rows, Iterable) and not isinstance(
        rows, str | bytes | Mapping | pa.RecordBatch
    )
    batches: Iterable[object] = rows if is_batches else [rows]
    for one in batches:
        if not isinstance(one, pa.RecordBatch):
            message = (
                f"rows are or contain {repr(one)[:80]}, which is not a record batch; pass an Arrow "
                "table (convert dictionaries with pyarrow.Table.from_pylist)"
            )
            raise InvalidConfig(message)
        yield from _divide(pa.Table.from_batches([one]))


def _divide(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in tables; without rows, yield an empty table, because it has columns."""
    if rows.num_rows:
        yield from split_batches(rows, _TABLE_BYTES)
    else:
        yield rows
