"""Stops a run if too many of its records are rejected."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from lakemark.errors import HudiError

#: The limit also applies to this number of the most recent records, including earlier batches.
_RECENT_RECORDS = 10_000


class TooManyRejects(HudiError):
    """More records were rejected than the pipeline allows. Nothing of the batch was published."""

    def __init__(self, rejected: int, records: int, max_share: float, first: str) -> None:
        super().__init__(
            f"{rejected} of {records} records were rejected ({rejected / records:.1%}), more than "
            f"the {max_share:.1%} that dead_letters.max_share allows; the first: {first}; "
            "correct the source or the declared schema, or allow more rejects "
            "(dead_letters.max_share, or dead_letters.tolerated for short topics)"
        )
        self.rejected, self.records, self.max_share = rejected, records, max_share


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """How many records may be rejected, in a batch and among the most recent records.

    Attributes:
        max_share: the largest share of the records, from 0 to 1.
        tolerated: the number of rejects that is always allowed, because among few records even a
            large share means little.
    """

    max_share: float
    tolerated: int = 0

    def is_exceeded(self, rejected: int, records: int) -> bool:
        """Return whether this number of rejects is too large for this number of records."""
        return rejected > max(self.tolerated, self.max_share * records)


#: Without dead letters, the first rejected record stops a run.
NO_REJECTS = RejectLimit(0.0)


class RejectCounter:
    """Counts the rejects of the batches that a run has published."""

    def __init__(self, limit: RejectLimit) -> None:
        self._limit = limit
        #: Rejects and records of published batches, newest first.
        self._recent: list[tuple[int, int]] = []

    def check(self, rejected: int, records: int, first: str) -> None:
        """Check the rejects of a batch, alone and together with the rejects of recent batches.

        Args:
            rejected: the number of rejects in the batch.
            records: the number of records in the batch, without ignored tombstones.
            first: one of the rejects, for the error.

        Raises:
            TooManyRejects: there are more rejects than the limit allows.
        """
        recent = _most_recent([(rejected, records), *self._recent])
        together = sum(r for r, _ in recent), sum(n for _, n in recent)
        for counted in ((rejected, records), together):
            if self._limit.is_exceeded(*counted):
                raise TooManyRejects(*counted, self._limit.max_share, first)

    def add(self, rejected: int, records: int) -> None:
        """Count a batch that was published; its numbers are those of ``check``."""
        self._recent = _most_recent([(rejected, records), *self._recent])


def _most_recent(counts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Keep the newest counts of rejects and records, as far back as the limit needs them."""
    before = accumulate((records for _, records in counts), initial=0)
    return [one for one, newer in zip(counts, before, strict=False) if newer < _RECENT_RECORDS]
