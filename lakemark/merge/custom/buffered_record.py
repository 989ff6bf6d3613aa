"""The input of a ``BufferedRecordMerger``: one version of a record, and the table's columns.

Source: ``BufferedRecord``, ``RecordContext`` and ``BufferedRecords`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import pyarrow as pa

from lakemark.merge.ordering import is_java_integer
from lakemark.schema.field_path import column_at


class Operation(StrEnum):
    """Whether a version inserts, updates or deletes its record (``HoodieOperation``).

    Storage does not distinguish inserts from updates, so a merger gets only updates and deletes. In
    a result, ``INSERT`` and ``UPDATE`` have the same meaning. The values are those that Hudi
    stores.
    """

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


@dataclass(frozen=True, slots=True)
class BufferedRecord:
    """One version of a record.

    Attributes:
        record_key: the record key. A merger must not change it.
        ordering_value: value of the ordering field; a tuple if there are several ordering fields.
            None in a table without ordering fields, and for a delete that always wins.
        operation: update or delete. A delete may have data too.
        data: Python values of the table's columns by name, without meta columns. A partial row has
            only the columns that were written, and a delete without data has None. Do not change
            the mapping in place.
    """

    record_key: str
    ordering_value: object
    operation: Operation
    data: Mapping[str, object] | None

    @property
    def is_delete(self) -> bool:
        """Whether this version deletes the record."""
        return self.operation is Operation.DELETE


@dataclass(frozen=True)
class RecordContext:
    """The table's columns and ordering fields.

    Attributes:
        schema: the table's columns without meta columns.
        ordering_fields: the ordering fields, most significant first. A dotted name is a field of a
            struct.
    """

    schema: pa.Schema
    ordering_fields: tuple[str, ...] = ()

    @cached_property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return list(self.schema.names)

    def get_value(self, record: BufferedRecord, column: str) -> object:
        """Return the value of a column, or of a field of a struct; None if the record lacks it.

        Args:
            record: the record.
            column: name of a column, or ``a.b`` for field ``b`` of struct ``a``.

        Raises:
            KeyError: the table has no such column.
        """
        head, *rest = (column,) if column in self.columns else tuple(column.split("."))
        if head not in self.columns:
            message = f"the table has no column {column}; it has {', '.join(self.columns)}"
            raise KeyError(message)
        value: Any = None if record.data is None else record.data.get(head)
        for name in rest:
            value = None if value is None else value[name]
        return value

    def record_key(self, record: BufferedRecord) -> str:
        """Return the record's key."""
        return record.record_key

    def merge_with_record(
        self, record: BufferedRecord, values: Mapping[str, object]
    ) -> BufferedRecord:
        """Return the record with new values in some columns, and with its new ordering value."""
        changed = replace(record, data={**self.data_of(record), **values})
        return replace(changed, ordering_value=self.ordering_value(changed))

    def delete(self, record: BufferedRecord) -> BufferedRecord:
        """Return a delete with the record's ordering value and data."""
        return replace(record, operation=Operation.DELETE)

    def ordering_value(self, record: BufferedRecord) -> object:
        """Return the ordering value that is in the record's data."""
        values = tuple(self.get_value(record, name) for name in self.ordering_fields)
        return (values[0] if values else None) if len(values) < 2 else values

    def data_of(self, record: BufferedRecord) -> Mapping[str, object]:
        """Return the record's data.

        For a delete without data, return only its ordering value, in the ordering columns.
        """
        if record.data is not None or record.ordering_value is None:
            return record.data or {}
        values = record.ordering_value
        data: dict[str, Any] = {}
        for field, value in zip(
            self.ordering_fields, values if isinstance(values, tuple) else (values,), strict=True
        ):
            inside = data
            *path, last = (field,) if field in self.columns else field.split(".")
            for name in path:
                inside = inside.setdefault(name, {})
            inside[last] = value
        return data

    def newer_wins(self, older: BufferedRecord, newer: BufferedRecord) -> bool:
        """Return whether the newer record wins by the rule of ``Records.wins_over``."""
        if not self.ordering_fields or self._is_unconditional(newer):
            return True
        if self._is_unconditional(older):
            return newer.data is not None
        return bool(_sort_key(newer.ordering_value) >= _sort_key(older.ordering_value))

    def _is_unconditional(self, record: BufferedRecord) -> bool:
        if not record.is_delete or record.ordering_value is None:
            return record.is_delete
        if len(self.ordering_fields) != 1:
            return False
        kind = column_at(self.schema.empty_table(), self.ordering_fields[0]).type
        return is_java_integer(kind) and _is_zero(record.ordering_value)


def _is_zero(value: object) -> bool:
    """Return whether the value is 0, or a date with the day number 0."""
    return value == 0 or str(value) == "1970-01-01"


def _sort_key(value: object) -> Any:
    """Return a key that sorts values as Java does: null first, -0 before 0, and NaN last."""
    if isinstance(value, tuple):
        return tuple(_sort_key(one) for one in value)
    if value is None:
        return (0,)
    if isinstance(value, float):
        is_nan = math.isnan(value)
        return (1, is_nan, 0.0 if is_nan else value, is_nan or math.copysign(1, value))
    return (1, value)
