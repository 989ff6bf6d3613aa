"""Why a record cannot become a row: a text for people, a code and a column for programs."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class RejectCode(StrEnum):
    """The kind of a reason. Dead letters store the value, so a value never changes its meaning."""

    #: The value or the Kafka key is empty, or is not what ``decode.format`` says.
    INVALID_MESSAGE = "invalid_message"
    #: The rest of a file cannot be read.
    UNREADABLE_FILE = "unreadable_file"
    #: The schema of the record is not in the registry, or is not supported.
    UNKNOWN_SCHEMA = "unknown_schema"
    #: The columns of the record take more than ``decode.record_limit_bytes``.
    TOO_LARGE = "too_large"
    #: A value does not fit its column, or a column has two values.
    INVALID_VALUE = "invalid_value"
    #: A field without a column, which the policy rejects, or which cannot become a column.
    UNKNOWN_FIELD = "unknown_field"
    #: A step of ``transform`` failed for the record.
    TRANSFORM_FAILED = "transform_failed"
    #: The value is null, but tombstones are not configured.
    NULL_VALUE = "null_value"
    #: The record is a delete, but the pipeline only inserts rows.
    DELETE_REFUSED = "delete_refused"
    #: A field of the record key is null or empty.
    MISSING_KEY = "missing_key"
    #: Records with other values would have the same record key.
    AMBIGUOUS_KEY = "ambiguous_key"
    #: A column of ``table.ordering`` is null.
    MISSING_ORDERING = "missing_ordering"
    #: No log can store the ordering value of the delete.
    ORDERING_TOO_LONG = "ordering_too_long"
    #: The delete has no ordering value, so a replay of it would also delete a newer row.
    UNORDERED_DELETE = "unordered_delete"
    #: A partition field is missing.
    MISSING_PARTITION = "missing_partition"
    #: The partition value cannot name a folder.
    INVALID_PARTITION = "invalid_partition"
    #: The database did not send a value, and the table cannot fill it in.
    UNAVAILABLE_VALUE = "unavailable_value"
    #: The row violates a rule of ``expect``.
    RULE_VIOLATED = "rule_violated"
    #: The record key exists in another partition (``table.partition_change: reject``).
    OTHER_PARTITION = "other_partition"
    #: The field or header that names the table is null or missing.
    MISSING_ROUTE = "missing_route"
    #: No table may have the name in this field or header.
    INVALID_ROUTE = "invalid_route"
    #: ``route.allow`` does not contain the name.
    ROUTE_NOT_ALLOWED = "route_not_allowed"
    #: The name would be that of a further table, but ``route.max_tables`` exist.
    TOO_MANY_TABLES = "too_many_tables"


class RejectReason(str):
    """The text of a reason, with what programs need to know about it.

    Attributes:
        code: the kind of the reason.
        column: the column or field that is at fault, with a dotted name inside structs; None if no
            single one is known.
        step: the step of ``transform`` that rejected the record, such as ``transform.1.cast``; None
            for other stages.
    """

    __slots__ = ("code", "column", "step")
    code: RejectCode
    column: str | None
    step: str | None

    def __new__(
        cls, code: RejectCode, text: str, column: str | None = None, step: str | None = None
    ) -> Self:
        """Create a reason; see the attributes."""
        reason = super().__new__(cls, text)
        reason.code, reason.column, reason.step = code, column, step
        return reason

    def with_prefix(self, prefix: str) -> RejectReason:
        """Return the same reason with a text in front, such as what it is about."""
        return RejectReason(self.code, f"{prefix}: {self}", self.column, self.step)

    @classmethod
    def of_step(cls, step: str, text: str) -> RejectReason:
        """Return the reason of a step of ``transform``.

        Args:
            step: the name of the step.
            text: the reason that the step gave. It may be a ``RejectReason`` with a column.
        """
        column = text.column if isinstance(text, RejectReason) else None
        return cls(RejectCode.TRANSFORM_FAILED, f"{step}: {text}", column, step)
