"""The interface of sources: what a run needs to read records, whatever they come from.

A run calls ``start`` with the position that the table records, opens a stream there, and commits
each batch of the stream together with the position after it. The source remembers nothing between
two runs. ``tests/contract/test_source.py`` tests these invariants on the implementations:

- The batches of a stream follow one another: each batch starts where the previous one ended.
- A stream that starts at the end of a batch returns the records after that batch, each once, and
  none of the batch.
- An empty batch is never returned.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

import pyarrow as pa

from checkpoints.position import Position
from sinks.audit import OffsetGap
from sinks.batch import Batch
from streamer.sources.kafka_offsets import LostRange

#: Checks the offsets of a batch up to a position that have no record; returns the lost ranges.
CheckRead: TypeAlias = Callable[[Any, Sequence[OffsetGap]], Sequence[Mapping[str, object]]]


class SourceStart(Protocol):
    """The start of a run; see ``streamer.sources.kafka_offsets.Start``."""

    @property
    def checkpoint(self) -> Position:
        """How far the source counts as read."""
        ...

    @property
    def lost(self) -> Sequence[LostRange]:
        """The lost ranges that the run skips."""
        ...

    @property
    def topic_id(self) -> str:
        """Kafka's id of the topic; "" if it is not known, or in another source."""
        ...

    @property
    def needs_commit(self) -> bool:
        """Whether the table must record this start before any record is read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How a stream runs.

    Attributes:
        mode: ``once`` ends the stream when everything that existed at its start is read.
        trigger_interval_s: seconds between the beginnings of two batches.
        scratch: a folder for temporary files, which is deleted after the stream.
    """

    mode: Literal["continuous", "once"]
    trigger_interval_s: float
    scratch: Path


class RunningStream(Protocol):
    """A stream that runs in threads of its own. Spark's ``StreamingQuery`` has these methods."""

    @property
    def isActive(self) -> bool:
        """Whether the stream has not ended."""
        ...

    def exception(self) -> BaseException | None:
        """Return the error with which the stream ended; None if there is none."""
        ...

    def stop(self) -> None:
        """End the stream, and wait for its end."""
        ...


class SourceStream(Protocol):
    """A stream of batches that begins at one position."""

    def plan(self, given: Any, batch_id: int) -> Batch | None:
        """Return the next batch; None if there is nothing to read.

        Args:
            given: what the stream has passed to ``on_batch``.
            batch_id: the number of the batch in this stream, beginning with 0.
        """
        ...

    def start(self, on_batch: Callable[[Any, int], None]) -> RunningStream:
        """Start to call ``on_batch`` for each batch, which then calls ``plan``."""
        ...


class FirstRecords(Protocol):
    """The records with which the first run begins, from which a new table gets its columns."""

    def start(self, checkpoint: Position | None, topic_id: str = "") -> SourceStart:
        """See ``Source.start``; called without a checkpoint, to check that they can be read."""
        ...

    def sample(self, count: int) -> pa.Array:
        """See ``Source.sample``."""
        ...


class Source(ABC):
    """Reads the records of one source in batches, from a position.

    The methods that are not abstract suit a source without partitions, and without other programs
    that watch how far it is read.
    """

    @abstractmethod
    def start(self, checkpoint: Position | None, topic_id: str = "") -> SourceStart:
        """Determine where a run starts.

        Args:
            checkpoint: the position that the table records; None for the first run.
            topic_id: the topic id that the table records; "" if there is none.

        Raises:
            SourceError: the source cannot be read, or the position belongs to another source.
        """

    @abstractmethod
    def open_stream(
        self, begun: SourceStart, settings: StreamSettings, check_read: CheckRead
    ) -> SourceStream:
        """Open a stream.

        Args:
            begun: the start that ``start`` has returned.
            settings: how the stream runs.
            check_read: called before a batch is published, with the position after the batch and
                the offsets without a record. It calls ``check_read`` of this source.

        Raises:
            SourceError: the source cannot be read.
        """

    @abstractmethod
    def sample(self, count: int) -> pa.Array:
        """Return about ``count`` values, from which the columns of a new table are inferred.

        They are those with which the first run begins: bytes, or structs of columns.

        Raises:
            SourceError: the source cannot be read.
        """

    def check_read(self, topic_id: str, gaps: Sequence[OffsetGap]) -> Sequence[LostRange]:
        """Check a batch before it is published; see ``KafkaSource.check_read``."""
        return ()

    @property
    def has_new_secrets(self) -> bool:
        """Whether secrets of the source were replaced since ``start``.

        Then a failure may be due to the former ones, and another start uses the new ones.
        """
        return False

    def check_reachable(self) -> None:  # noqa: B027
        """Check that the source can be reached; otherwise raise a ``SourceError``."""

    def lag(self, checkpoint: Any) -> Mapping[int, int]:
        """Count the unread offsets of each partition.

        Raises:
            SourceError: the source does not answer.
        """
        return {}

    def lag_if_known(self, checkpoint: Any) -> Mapping[int, int]:
        """Do the same as ``lag``, but return an empty mapping if the source does not answer.

        This is for events, which must be emitted even if the source or Spark has failed. The stream
        reports its own failures.
        """
        try:
            return self.lag(checkpoint)
        except Exception:
            return {}

    def ask_lag(self, checkpoint: Any) -> Callable[[], Mapping[int, int]]:
        """Ask for the lag of a position now, without waiting for the answer.

        Returns:
            A function that waits for the answer, and returns it as ``lag_if_known`` does.
        """
        return dict

    def forget_first_start(self) -> None:  # noqa: B027
        """Note that the table has recorded a position of this run."""

    def report_position(self, position: Any) -> None:  # noqa: B027
        """Report a committed position, if the source keeps it for other programs."""

    def flush_positions(self, within_s: float) -> None:  # noqa: B027
        """Wait at most ``within_s`` seconds until the newest position was reported."""

    def close(self) -> None:  # noqa: B027
        """Close the connections of this object."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
