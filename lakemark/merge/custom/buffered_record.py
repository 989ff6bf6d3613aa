"""One version of one record: what a merger of single records is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Operation(StrEnum):
    """What a version does to its record; the value is Hudi's (``HoodieOperation``).

    Storage does not tell an insert from an update, so records arrive as updates or deletes; in a
    result the two mean the same.
    """

    INSERT = "I"
    UPDATE = "U"
    DELETE = "D"


@dataclass(frozen=True, slots=True)
class BufferedRecord:
    """One version of a record.

    Attributes:
        record_key: never changes.
        ordering_value: of the ordering field, or a tuple of several; None where there is none:
            in a table without such fields, or for a delete that wins whatever it meets.
        operation: a delete may still carry data.
        data: the table's own columns by name, as Python values; not to be changed in place. None
            for a delete that carries none. Of a record written in part, only what was written.
    """

    record_key: str
    ordering_value: object
    operation: Operation
    data: Mapping[str, object] | None

    @property
    def is_delete(self) -> bool:
        """Whether it deletes its record."""
        return self.operation is Operation.DELETE
