"""What a clean removed (``HoodieCleanMetadata``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CleanMetadata:
    """The completed content of a clean.

    Attributes:
        earliest_retained: requested time of the oldest commit whose files it kept for readers of
            the past; "" when it counted file versions instead.
    """

    earliest_retained: str = ""

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CleanMetadata:
        """From the stored record."""
        return cls(record.get("earliestCommitToRetain") or "")
