"""Filters rows by a condition, and finds files that the condition excludes before they are read.

A program cannot take an Arrow expression apart. But Arrow can simplify an expression with a
guarantee that holds for all rows of a file. If the simplified expression is never true, the file is
skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import RECORD_KEY

_PARQUET = ds.ParquetFileFormat()

#: Arrow's text for a column that is referenced by position.
_BY_POSITION = "FieldPath("

#: The position of a row. No column has this name, because Avro allows no such name.
_ROW = "#row"


def referenced_columns(condition: pc.Expression, schema: pa.Schema) -> list[str]:
    """Return the columns that a condition may read, in the schema's order.

    Arrow prints every name in the expression, so a column whose name is not in the text is not
    read. The result may have too many columns, but never too few.
    """
    printed = str(condition)
    if _BY_POSITION in printed:
        return list(schema.names)
    return [name for name in schema.names if name in printed]


def may_match(
    condition: pc.Expression, guarantees: Sequence[pc.Expression], schema: pa.Schema
) -> list[bool]:
    """Return for each guarantee whether rows that meet it may also meet the condition.

    Args:
        condition: the condition.
        guarantees: one expression for each file, such as ``(a >= 1) & (a <= 5)``, that is true for
            all rows of the file.
        schema: the columns of the condition and the guarantees.

    Raises:
        InvalidConfig: as for ``filter_rows``.
    """
    nowhere = LocalFileSystem()  # the files exist only by name and are never opened
    fragments = [
        _PARQUET.make_fragment(str(number), nowhere, partition_expression=guarantee)
        for number, guarantee in enumerate(guarantees)
    ]
    dataset = ds.FileSystemDataset(fragments, schema, _PARQUET, nowhere)
    with _typed_errors(condition):
        left = {fragment.path for fragment in dataset.get_fragments(filter=condition)}
    return [str(number) in left for number in range(len(guarantees))]


def select_row_groups(condition: pc.Expression, file: BinaryIO, schema: pa.Schema) -> list[int]:
    """Return the row groups of a Parquet file whose statistics do not rule out a matching row."""
    position = file.tell()
    fragment = _PARQUET.make_fragment(pa.PythonFile(file, mode="r"))
    groups = fragment.subset(filter=condition, schema=schema).row_groups
    file.seek(position)
    return [group.id for group in groups]


def filter_rows(rows: pa.Table, condition: pc.Expression | None) -> pa.Table:
    """Return the rows for which a condition is true, not those for which it is null.

    Raises:
        InvalidConfig: Arrow cannot evaluate the condition on these rows.
    """
    if condition is None:
        return rows
    with _typed_errors(condition):
        return rows.filter(condition)


def find_matches(rows: pa.Table, condition: pc.Expression) -> npt.NDArray[np.bool_]:
    """Return for each row whether a condition is true for it, not if it is null.

    Raises:
        InvalidConfig: as for ``filter_rows``.
    """
    tested = rows.select(referenced_columns(condition, rows.schema))
    numbered = tested.append_column(_ROW, pa.array(np.arange(rows.num_rows)))
    matches = np.zeros(rows.num_rows, np.bool_)
    matches[filter_rows(numbered, condition).column(_ROW).to_numpy()] = True
    return matches


@contextmanager
def _typed_errors(condition: pc.Expression) -> Iterator[None]:
    """Convert Arrow's error about values that a condition cannot be evaluated on.

    The usual reason is a comparison of an integer column with a float: Arrow converts the integers
    to floats, and refuses integers that a float cannot represent exactly. An expression cannot be
    taken apart, so the comparison cannot be replaced by an exact one.
    """
    try:
        yield
    except pa.ArrowInvalid as error:
        message = (
            f"condition {condition} cannot be evaluated: {str(error).splitlines()[0]}; compare "
            "an integer column with an integer (7, not 7.0), or cast the column in the condition"
        )
        raise InvalidConfig(message) from error


def filter_keys(rows: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    """Return the rows with one of these record keys."""
    return rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))
