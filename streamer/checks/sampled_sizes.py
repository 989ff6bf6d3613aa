"""The sizes of records that a check has read, for the check of the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class SampledSizes:
    """The sizes of sampled records.

    Attributes:
        available: how many offsets the topic has.
    """

    available: int = 0
    _sizes: list[int] = field(default_factory=list)

    def add(self, sizes: Sequence[int]) -> None:
        """Add the sizes of records, in bytes."""
        self._sizes.extend(sizes)

    @property
    def mean_bytes(self) -> int | None:
        """The mean size of a record; None if none was read."""
        return sum(self._sizes) // len(self._sizes) if self._sizes else None
