"""Which data rows delete, by what stands in them.

``_hoodie_is_deleted``   a boolean, read whether it is declared or not: true deletes
``_hoodie_operation``    a string, read only where it is declared: ``D`` and ``-U`` delete
a marker of the table's  a text, read whether it is declared or not: equality deletes

Source: ``RecordContext.isDeleteRecord`` and ``HoodieOperation`` of Apache Hudi 1.2.0, which ends at
an operation of another name; such a row is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.model.changes import DeleteMarker
from lakemark.model.meta_columns import IS_DELETED
from lakemark.schema.field_path import column_at

Mask = npt.NDArray[np.bool_]

OPERATION = "_hoodie_operation"

#: Insert, update: what a row was before and what it is after, delete.
OPERATIONS = ("I", "-U", "U", "D")
_DELETING = ("D", "-U")


@dataclass(frozen=True, slots=True)
class DeleteMarks:
    """The marks that rows of some columns may carry.

    Attributes:
        declared: the declared columns.
        marker: the table's own mark.

    Raises:
        InvalidConfig: a mark is declared as a type that cannot hold it.
    """

    declared: pa.Schema
    marker: DeleteMarker | None = None

    def __post_init__(self) -> None:
        self._check(IS_DELETED, pa.bool_(), "boolean")
        self._check(OPERATION, pa.string(), "string")
        if self.marker is not None:
            check_marker(self._nothing.schema, self.marker)

    @property
    def undeclared(self) -> list[pa.Field]:
        """Columns that are read for their mark alone."""
        fields = [pa.field(IS_DELETED, pa.bool_())]
        if self.marker is not None and "." not in self.marker.field:
            fields.append(pa.field(self.marker.field, pa.string()))
        names = {*self.declared.names}
        return [field for field in fields if field.name not in names]

    @property
    def kept(self) -> list[str]:
        """Columns of the table that may mark a row."""
        marker = [self.marker.field.partition(".")[0]] if self.marker else []
        return [n for n in (IS_DELETED, OPERATION, *marker) if n in self.declared.names]

    def find(self, rows: pa.Table) -> Mask:
        """Which rows delete.

        Args:
            rows: the declared columns and the undeclared ones.
        """
        marks = [rows.column(IS_DELETED)]
        if OPERATION in self.declared.names:
            deleting = pa.array(_DELETING)
            marks.append(pc.is_in(rows.column(OPERATION), value_set=deleting))
        if self.marker is not None:
            text = column_at(rows, self.marker.field).cast(pa.string())
            marks.append(pc.equal(text, self.marker.text))
        deletes: Mask = np.zeros(rows.num_rows, np.bool_)
        for mark in marks:
            deletes |= _to_mask(pc.fill_null(mark, fill_value=False))
        return deletes

    def find_unknown_operations(self, rows: pa.Table) -> Mask:
        """Which rows name an operation that there is not."""
        if OPERATION not in self.declared.names:
            return np.zeros(rows.num_rows, np.bool_)
        operations = rows.column(OPERATION)
        is_known = pc.is_in(operations, value_set=pa.array(OPERATIONS))
        return ~_to_mask(pc.or_(is_known, operations.is_null()))

    @property
    def _nothing(self) -> pa.Table:
        return pa.schema([*self.declared, *self.undeclared]).empty_table()

    def _check(self, name: str, wanted: pa.DataType, text: str) -> None:
        index = self.declared.get_field_index(name)
        if index >= 0 and self.declared.field(index).type != wanted:
            message = f"column {name!r} marks deletes; declare it as {text}"
            raise InvalidConfig(message)


def check_marker(columns: pa.Schema, marker: DeleteMarker) -> None:
    """See that values of the marker's column can be its text.

    Raises:
        InvalidConfig: there is no such column, or none of its values has that text.
    """
    kind = column_at(columns.empty_table(), marker.field).type
    marks = f"column {marker.field!r} marks deletes by the text {marker.text!r}"
    if not _has_one_text(kind):
        message = f"{marks}; declare it as string, boolean or an integer, not {kind}"
        raise InvalidConfig(message)
    if not _is_text_of(kind, marker.text):
        message = f"{marks}, which no value of type {kind} has; declare it as string"
        raise InvalidConfig(message)


def _is_text_of(kind: pa.DataType, text: str) -> bool:
    """Whether some value of this type is spelled so."""
    try:
        value = pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return False
    return bool(value.cast(pa.string()).as_py() == text)


def _has_one_text(kind: pa.DataType) -> bool:
    """Whether Java and Arrow spell a value of this type alike."""
    return bool(pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind))


def _to_mask(booleans: pa.ChunkedArray) -> Mask:
    mask: Mask = booleans.to_numpy().astype(np.bool_)
    return mask
