"""The columns of ``lakemark query --columns``, which may be fields of structs: ``user.name``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakemark.schema.field_path import column_at


def columns_of(names: Sequence[str]) -> list[str]:
    """Return the columns to read for names of columns and fields; no column has a dot in its name.

    Each column is returned once, but for a name that is given twice, so that the query refuses it.
    """
    columns = [name.partition(".")[0] for name in names]
    return columns if len(set(names)) < len(names) else list(dict.fromkeys(columns))


def select_fields(rows: pa.RecordBatchReader, names: Sequence[str]) -> pa.RecordBatchReader:
    """Return rows with these columns and fields. A field of a null is null.

    Args:
        rows: the rows, with the columns that ``columns_of`` returns.
        names: the columns and fields, in this order. A field keeps its dotted name.

    Raises:
        InvalidConfig: a struct has no such field.
    """
    if rows.schema.names == [*names]:
        return rows

    def select(some: pa.Table) -> pa.Table:
        return pa.table([column_at(some, name) for name in names], names=[*names])

    def selected() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield from select(pa.Table.from_batches([batch])).to_batches()

    schema = select(rows.schema.empty_table()).schema
    return pa.RecordBatchReader.from_batches(schema, selected())
