"""Interleavings of two processes that are known to fail, until the fault is mended.

The sample of ``make test`` passes over them, so that it fails for what is new alone;
``make test-matrix`` runs them and names the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.protocol.two_processes import Case, Stall


@dataclass(frozen=True, slots=True)
class KnownFault:
    """One fault that was seen.

    Attributes:
        kind: of the table, as cases name it.
        first: what the process does that stands still.
        second: what the other does.
        stall: what happens then.
        reason: one sentence.
    """

    kind: str
    first: str
    second: str
    stall: Stall
    reason: str

    def matches(self, case: Case) -> bool:
        """Whatever the request is: its number changes with every request that an act gains."""
        seen = (str(case.kind), case.first, case.second, case.stall)
        return seen == (self.kind, self.first, self.second, self.stall)


KNOWN_FAULTS = (
    KnownFault(
        "mor6+metadata",
        "compaction",
        "compaction",
        Stall.ARCHIVAL,
        "A compaction goes on after another process has completed and archived it, and the "
        "metadata table keeps statistics of files that are gone.",
    ),
    KnownFault(
        "mor6+metadata",
        "metadata",
        "restore",
        Stall.LEASE,
        "A late deletion removes the files of column_stats in the metadata table that a restore "
        "has built, and the next start does not notice.",
    ),
)


def known_fault(case: Case) -> KnownFault | None:
    """What the case is known to fail for; None when it is not."""
    return next((fault for fault in KNOWN_FAULTS if fault.matches(case)), None)
