"""One version of one record, and the table's columns, for mergers of single records.

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
    """What a version does to its record; the value is Hudi's (``HoodieOperation``).

    Storage does not distinguish inserts from updates, so records arrive as updates or deletes. In
    a result, insert and update have the same meaning.
    """

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


@dataclass(frozen=True, slots=True)
class BufferedRecord:
    """One version of a record.

    Attributes:
        record_key: never changes.
        ordering_value: of the ordering field, or a tuple of several. None in a table without
            ordering fields, and for a delete that always wins.
        operation: a delete may have data.
        data: the table's own columns by name, as Python values; do not change it in place. None
            for a delete without data. For a partial row only the columns that were written.
    """

    record_key: str
    ordering_value: object
    operation: Operation
    data: Mapping[str, object] | None

    @property
    def is_delete(self) -> bool:
        """Whether it deletes its record."""
        return self.operation is Operation.DELETE


@dataclass(frozen=True)
class RecordContext:
    """The table's columns and ordering fields.

    Attributes:
        schema: of the data.
        ordering_fields: most significant first; a dotted name is a field of a struct.
    """

    schema: pa.Schema
    ordering_fields: tuple[str, ...] = ()

    @cached_property
    def columns(self) -> list[str]:
        """The names of the table's columns."""
        return list(self.schema.names)

    def get_value(self, record: BufferedRecord, column: str) -> object:
        """The value of a column, or for ``a.b`` of a field of a struct; None if it is absent.

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
        """Return the record with new values in some columns; its ordering value is updated."""
        changed = replace(record, data={**self.data_of(record), **values})
        return replace(changed, ordering_value=self.ordering_value(changed))

    def delete(self, record: BufferedRecord) -> BufferedRecord:
        """Return the record as a delete, with its ordering value and its data."""
        return replace(record, operation=Operation.DELETE)

    def ordering_value(self, record: BufferedRecord) -> object:
        """Return the ordering value in the record's data."""
        values = tuple(self.get_value(record, name) for name in self.ordering_fields)
        return (values[0] if values else None) if len(values) < 2 else values

    def data_of(self, record: BufferedRecord) -> Mapping[str, object]:
        """The record's data; for a delete without data, its ordering value in its columns."""
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
    """Return whether the value is zero, or in a column of dates the day with the number zero."""
    return value == 0 or str(value) == "1970-01-01"


def _sort_key(value: object) -> Any:
    """Null first; doubles like in Java: -0 before 0, and NaN last."""
    if isinstance(value, tuple):
        return tuple(_sort_key(one) for one in value)
    if value is None:
        return (0,)
    if isinstance(value, float):
        is_nan = math.isnan(value)
        return (1, is_nan, 0.0 if is_nan else value, is_nan or math.copysign(1, value))
    return (1, value)
