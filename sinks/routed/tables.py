"""What a routed sink needs of the tables to which it writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.progress import Progress
from sinks.batch import BatchResult, RoutedBatch
from transforms.rejects import Rejects

#: Decides about a failure of a table, from the error and the number of consecutive failures: the
#: seconds until the table is tried again; or None if it is set aside for the rest of the run.
JudgeFailure: TypeAlias = Callable[[Exception, int], float | None]


@dataclass(frozen=True, slots=True)
class TableStart:
    """Where a table continues that is behind the stream.

    Attributes:
        position: its position, or a later one if Kafka no longer has all offsets and the pipeline
            allows losses.
        lost: the lost ranges in between (``LostRange.facts``).
    """

    position: KafkaCheckpoint
    lost: Sequence[Mapping[str, object]] = ()


#: Returns where a table continues, from its position and Kafka's id of the topic. Raises an error
#: if Kafka no longer has the offsets, and the pipeline allows no losses.
FindStart: TypeAlias = Callable[[KafkaCheckpoint, str], TableStart]


class RoutedTable(Protocol):
    """One open table. Only one thread at a time uses it."""

    @property
    def is_created(self) -> bool:
        """Whether the table exists. Otherwise records become dead letters, as none is usable."""
        ...

    def recover(self) -> Progress | None:
        """Roll back the instants of dead writers, and return how far the table has read."""
        ...

    def write(self, batch: RoutedBatch, threads: int) -> BatchResult:
        """Commit records together with the position of the table; on failure, publish nothing."""
        ...


class RoutedTables(Protocol):
    """Opens the tables by name. Any thread may call it; the events of a table name the table."""

    def find(self, name: str) -> RoutedTable | None:
        """Open a table that exists; return None if it does not exist, or has no columns yet."""
        ...

    def create(self, name: str, records: pa.Table) -> RoutedTable | None:
        """Open a table, and create it if it does not exist.

        Returns:
            If the columns of a new table must be inferred, and no record is usable, a table that is
            not created (``RoutedTable.is_created``); call this again with its next records. None if
            all records are tombstones, because they have nothing to delete.

        Args:
            name: the name of the table.
            records: its first records, from which its columns may be inferred.
        """
        ...

    def set_aside(self, name: str, error: Exception, attempt: int, pause_s: float | None) -> None:
        """Report that a table has failed.

        Args:
            name: the name of the table.
            error: the failure.
            attempt: the number of consecutive failures.
            pause_s: seconds until the table is tried again; None if it is not.
        """
        ...

    def report_lost(self, name: str, lost: Sequence[Mapping[str, object]]) -> None:
        """Report that a table skips lost offsets, once this is stored."""
        ...


class UnroutedLetters(Protocol):
    """The dead-letter table of the records that belong to no table."""

    @property
    def url(self) -> str:
        """The URL of the table; "" if there are no dead letters."""
        ...

    def recover(self) -> Progress | None:
        """Open the table if it exists, and return how far it has read the stream."""
        ...

    def write(
        self, rejects: Rejects, start: KafkaCheckpoint, end: KafkaCheckpoint, topic_id: str
    ) -> pa.Table:
        """Commit rejects with a position; return them as changes of the table."""
        ...
