"""Finds data rows that delete their records.

These columns can mark a row as a delete:

- ``_hoodie_is_deleted``, a boolean, if it is true. The column need not be declared.
- ``_hoodie_operation``, a string, if it is ``D`` or ``-U``. The column must be declared.
- the column of the table's delete marker, if it has the configured text. The column need not be
  declared.

Source: ``RecordContext.isDeleteRecord`` and ``HoodieOperation`` of Apache Hudi 1.2.0. If a row has
an unknown operation, Apache Hudi fails, but lakemark rejects only that row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.model.changes import DeleteMarker
from lakemark.model.meta_columns import DELETE_OPERATIONS, IS_DELETED, OPERATION
from lakemark.schema.field_path import column_at

Mask = npt.NDArray[np.bool_]

#: The known operations: insert, the row before an update, the row after an update, and delete.
OPERATIONS = ("I", "-U", "U", "D")


@dataclass(frozen=True, slots=True)
class DeleteMarks:
    """The columns that mark deletes in a table.

    Attributes:
        declared: the declared columns of the table.
        marker: the delete marker of the table.

    Raises:
        InvalidConfig: a column that marks deletes is declared with an unsuitable type.
    """

    declared: pa.Schema
    marker: DeleteMarker | None = None

    def __post_init__(self) -> None:
        self._check(IS_DELETED, pa.bool_(), "boolean")
        self._check(OPERATION, pa.string(), "string")
        if self.marker is not None:
            check_marker(self._empty_rows.schema, self.marker)

    @property
    def undeclared_fields(self) -> list[pa.Field]:
        """Columns that are not declared, but must be read because they can mark deletes."""
        fields = [pa.field(IS_DELETED, pa.bool_())]
        if self.marker is not None and "." not in self.marker.field:
            fields.append(pa.field(self.marker.field, pa.string()))
        names = {*self.declared.names}
        return [field for field in fields if field.name not in names]

    @property
    def declared_marks(self) -> list[str]:
        """Names of the declared columns that can mark deletes."""
        marker = [self.marker.field.partition(".")[0]] if self.marker else []
        return [n for n in (IS_DELETED, OPERATION, *marker) if n in self.declared.names]

    def find(self, rows: pa.Table) -> Mask:
        """Return which rows are deletes.

        Args:
            rows: rows with the declared columns and the ``undeclared_fields``.
        """
        marks = [rows.column(IS_DELETED)]
        if OPERATION in self.declared.names:
            operations = pa.array(DELETE_OPERATIONS)
            marks.append(pc.is_in(rows.column(OPERATION), value_set=operations))
        if self.marker is not None:
            text = column_at(rows, self.marker.field).cast(pa.string())
            marks.append(pc.equal(text, self.marker.text))
        deletes: Mask = np.zeros(rows.num_rows, np.bool_)
        for mark in marks:
            deletes |= _to_mask(pc.fill_null(mark, fill_value=False))
        return deletes

    def find_unknown_operations(self, rows: pa.Table) -> Mask:
        """Return which rows have an operation that Hudi does not define."""
        if OPERATION not in self.declared.names:
            return np.zeros(rows.num_rows, np.bool_)
        operations = rows.column(OPERATION)
        is_known = pc.is_in(operations, value_set=pa.array(OPERATIONS))
        return ~_to_mask(pc.or_(is_known, operations.is_null()))

    @property
    def _empty_rows(self) -> pa.Table:
        return pa.schema([*self.declared, *self.undeclared_fields]).empty_table()

    def _check(self, name: str, wanted: pa.DataType, declaration: str) -> None:
        index = self.declared.get_field_index(name)
        if index >= 0 and self.declared.field(index).type != wanted:
            message = f"column {name!r} marks deletes; declare it as {declaration}"
            raise InvalidConfig(message)


def check_marker(columns: pa.Schema, marker: DeleteMarker) -> None:
    """Check that a value of the marker's column can equal the marker's text.

    Raises:
        InvalidConfig: the column does not exist, or no value of its type is written as that text.
    """
    data_type = column_at(columns.empty_table(), marker.field).type
    marks = f"column {marker.field!r} marks deletes by the text {marker.text!r}"
    if not _has_one_text(data_type):
        message = f"{marks}; declare it as string, boolean or an integer, not {data_type}"
        raise InvalidConfig(message)
    if not _is_text_of(data_type, marker.text):
        message = f"{marks}, which no value of type {data_type} has; declare it as string"
        raise InvalidConfig(message)


def _is_text_of(data_type: pa.DataType, text: str) -> bool:
    """Return whether some value of this type is written as this text."""
    try:
        value = pa.scalar(text).cast(data_type)
    except pa.ArrowInvalid:
        return False
    return bool(value.cast(pa.string()).as_py() == text)


def _has_one_text(data_type: pa.DataType) -> bool:
    """Return whether Java and Arrow convert values of this type to the same text."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_boolean(data_type)
        or pa.types.is_integer(data_type)
    )


def _to_mask(booleans: pa.ChunkedArray) -> Mask:
    mask: Mask = booleans.to_numpy().astype(np.bool_)
    return mask
