"""A condition on rows, and what it rules out before a row is read.

Arrow's expressions cannot be taken apart, but Arrow simplifies one by what is guaranteed to hold
for all rows of a file: what cannot be true any more rules the file out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

_PARQUET = ds.ParquetFileFormat()

#: How Arrow prints a column that is named by its position.
_BY_POSITION = "FieldPath("


def columns_of(condition: pc.Expression, schema: pa.Schema) -> list[str]:
    """Columns that a condition may read, in the schema's order; never one too few.

    Arrow prints every name that it refers to, so a column whose name is not in there is not read.
    """
    printed = str(condition)
    if _BY_POSITION in printed:
        return list(schema.names)
    return [name for name in schema.names if name in printed]


def may_hold(
    condition: pc.Expression, guarantees: Sequence[pc.Expression], schema: pa.Schema
) -> list[bool]:
    """For each guarantee: whether rows of which it is true may meet the condition.

    Args:
        condition: what is asked for.
        guarantees: one for each file, such as ``(a >= 1) & (a <= 5)``; true of all its rows.
        schema: the columns of both.
    """
    nowhere = LocalFileSystem()  # only names files: none of them is opened
    fragments = [
        _PARQUET.make_fragment(str(number), nowhere, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, _PARQUET, nowhere)
    left = {fragment.path for fragment in dataset.get_fragments(filter=condition)}
    return [str(number) in left for number in range(len(guarantees))]


def row_groups_of(condition: pc.Expression, file: BinaryIO, schema: pa.Schema) -> list[int]:
    """Row groups of a Parquet file whose statistics do not rule the condition out."""
    position = file.tell()
    fragment = _PARQUET.make_fragment(pa.PythonFile(file, mode="r"))
    groups = fragment.subset(filter=condition, schema=schema).row_groups
    file.seek(position)
    return [group.id for group in groups]


def matching(rows: pa.Table, condition: pc.Expression | None) -> pa.Table:
    """The rows that meet a condition; null is not true."""
    return rows if condition is None else rows.filter(condition)
