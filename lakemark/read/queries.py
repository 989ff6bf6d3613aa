"""What can be asked of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows as they are: base files with the changes since.

    Attributes:
        as_of: as they were at a moment, in one of the forms of ``time_travel.query_instant``.
    """

    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class ReadOptimized:
    """The rows of the base files alone: cheaper, and as old as each one's last compaction.

    Attributes:
        as_of: as for ``Snapshot``.
    """

    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class Incremental:
    """The rows that commits of a span have written, as of its end; see ``incremental``.

    Attributes:
        begin: completion time after which it begins (requested time in table version 6), or
            ``earliest``.
        end: the last in it; None has no end.
    """

    begin: str
    end: str | None = None


Query: TypeAlias = Snapshot | ReadOptimized | Incremental
