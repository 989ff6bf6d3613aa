"""Records in a commit which batch of a stream it contains, so that no batch is written twice.

A stream repeats a batch if it does not know whether the batch was committed. The commit therefore
contains the number of the batch, and a batch is skipped if a commit has its number or a later one.
A commit that is rolled back takes its record with it.

The format is that of Apache Hudi's sink for Spark's structured streaming, JSON under
``_hudi_streaming_sink_checkpoint``: ``{stream: "number"}``. Source:
``HoodieStreamingSink.SINK_CHECKPOINT_KEY`` and ``CommitUtils.getValidCheckpointForCurrentWriter``
of Apache Hudi 1.2.0, which only searches the active timeline.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore

BATCH_KEY = "_hudi_streaming_sink_checkpoint"


@dataclass(frozen=True, slots=True)
class StreamBatch:
    """A batch of a stream.

    Attributes:
        stream: the name of the stream; Apache Hudi's ``streaming.checkpoint.identifier``.
        number: the number of the batch, which grows from batch to batch.
    """

    stream: str
    number: int

    @classmethod
    def of(cls, stream: object, number: object) -> StreamBatch:
        """Return the batch that a caller names.

        Raises:
            InvalidConfig: the name is empty, or the number is not a whole number from 0 on.
        """
        if not isinstance(stream, str) or not stream:
            message = f"stream is {stream!r}; pass the name of the stream, which is not empty"
            raise InvalidConfig(message)
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            message = f"the number of the batch is {number!r}; pass a whole number from 0 on"
            raise InvalidConfig(message)
        return cls(stream, number)

    def __str__(self) -> str:
        return f"batch {self.number} of stream {self.stream!r}"

    def extra_metadata(self) -> dict[str, str]:
        """Return the extra metadata of the commit that contains the batch."""
        return {BATCH_KEY: json.dumps({self.stream: str(self.number)}, separators=(",", ":"))}

    def find_commit(self, store: TimelineStore, timeline: Timeline) -> str | None:
        """Return the requested time of the commit with this batch or a later one; None without.

        Archived commits are searched only if no active commit records a batch of the stream.

        Args:
            store: the reader of the timeline's instants.
            timeline: the active timeline.
        """
        last = self._last_of(timeline, store)
        if last is None and timeline.has_history:
            last = self._last_of_archived(store)
        return last[1] if last is not None and last[0] >= self.number else None

    def find_active_commit(self, store: TimelineStore, timeline: Timeline) -> str | None:
        """Return what ``find_commit`` returns, without a search of archived commits."""
        last = self._last_of(timeline, store)
        return last[1] if last is not None and last[0] >= self.number else None

    def _last_of(self, timeline: Timeline, store: TimelineStore) -> tuple[int, str] | None:
        commits = sorted(timeline.completed(*COMMITS), key=lambda i: i.requested_at, reverse=True)
        return self._last_in((i.requested_at, store.read_commit(i)) for i in commits)

    def _last_of_archived(self, store: TimelineStore) -> tuple[int, str] | None:
        archive = store.load_archived()
        wanted = [instant for instant in archive.instants() if instant.action in COMMITS]
        found = [
            (number, instant.requested_at)
            for instant, metadata in archive.read_commits(wanted)
            if (number := _number_in(metadata.extra_metadata, self.stream)) is not None
        ]
        return max(found, default=None)

    def _last_in(self, commits: Iterable[tuple[str, CommitMetadata]]) -> tuple[int, str] | None:
        for requested_at, metadata in commits:
            number = _number_in(metadata.extra_metadata, self.stream)
            if number is not None:
                return number, requested_at
        return None


def _number_in(extra_metadata: Mapping[str, str], stream: str) -> int | None:
    """Return the number of the batch that a commit records; other text counts as no record."""
    try:
        recorded = json.loads(extra_metadata.get(BATCH_KEY, "{}"))
        return int(recorded[stream])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


class BatchRepeated(Exception):
    """The batch was not written, because a commit contains it already.

    Attributes:
        instant: the requested time of that commit.
    """

    def __init__(self, instant: str) -> None:
        super().__init__(instant)
        self.instant = instant
