"""What the loop of a stream needs of a sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from checkpoints.progress import Progress
from lakemark.transaction.conflicts import ReplacementPending
from sinks.batch import BatchResult
from sinks.hudi.exchange import Exchange


class StreamSink(Protocol):
    """Writes the batches of a stream: to one table (``HudiSink``), or to many (``RoutedSink``)."""

    @property
    def url(self) -> str:
        """The URL of the table, or what stands for the URLs of several tables."""
        ...

    @property
    def dead_letters(self) -> str:
        """The URL of the dead-letter table; "" if there is none."""
        ...

    @property
    def columns(self) -> pa.Schema:
        """The columns that batches write, without meta columns. Any thread may use this property.

        A batch may add columns, and widen them.
        """
        ...

    @property
    def restart_due_in_s(self) -> float | None:
        """Seconds until the stream should start again at ``progress``; None if it need not."""
        ...

    def recover(self) -> list[str]:
        """Roll back the pending instants of dead writers, and return them."""
        ...

    def progress(self) -> Progress | None:
        """Return how far the source has been read; None if it is not recorded."""
        ...

    def commit_start(
        self, start: Any, topic_id: str = "", lost: Sequence[Mapping[str, object]] = ()
    ) -> object:
        """Record where reading starts, before any record is read."""
        ...

    def write(self, batch: Any, exchange: Exchange[Any]) -> BatchResult:
        """Publish a whole batch together with its position. On failure, publish nothing."""
        ...

    def can_be_clustered(self, refusal: ReplacementPending) -> bool:
        """Return whether a writer can execute the clustering that refuses a batch."""
        ...

    def still_refuses(self, refusal: ReplacementPending) -> bool:
        """Return whether a batch would still be refused, as of the last ``recover``."""
        ...
