"""Collects the rows of a batch that are rejected, each with its first reason."""

from __future__ import annotations

from dataclasses import dataclass, field

from transforms.decode.decode_result import Indices
from transforms.reject_reason import RejectCode, RejectReason


@dataclass(slots=True)
class Faults:
    """Rows that are rejected.

    Attributes:
        reasons: the reason for each rejected row.
    """

    reasons: dict[int, RejectReason] = field(default_factory=dict)

    def add_invalid(self, rows: Indices, text: str, path: str) -> None:
        """Reject rows whose bytes are not valid.

        Args:
            rows: the rows.
            text: the reason.
            path: the dotted name of the field at fault; empty if it is the whole message.
        """
        if path:
            text = f"field {path!r}: {text}"
        self.add(rows, RejectReason(RejectCode.INVALID_MESSAGE, text, path or None))

    def add(self, rows: Indices, reason: RejectReason) -> None:
        """Reject rows; those of -1 do not exist."""
        for row in rows[rows >= 0].tolist():
            self.reasons.setdefault(row, reason)
