"""One version of one record: the input and the result of a merger of single records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


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
