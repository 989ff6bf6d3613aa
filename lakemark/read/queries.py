"""Types of queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from lakemark.read.query_instant import GivenTime


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Current rows: base files merged with the later changes.

    Attributes:
        as_of: time travel to this time, in one of the forms of ``parse_query_instant``.
    """

    as_of: GivenTime | None = None


@dataclass(frozen=True, slots=True)
class ReadOptimized:
    """Rows of the base files only; cheaper, but each row is as old as its last compaction.

    Attributes:
        as_of: as for ``Snapshot``.
    """

    as_of: GivenTime | None = None


@dataclass(frozen=True, slots=True)
class Incremental:
    """Rows that a range of commits wrote, as of the range's end; see ``read.incremental``.

    Attributes:
        begin: the range begins after this completion time (requested time in table version 6), or
            ``earliest``.
        end: the last time in the range; None if the range has no end.
    """

    begin: GivenTime
    end: GivenTime | None = None


Query: TypeAlias = Snapshot | ReadOptimized | Incremental
