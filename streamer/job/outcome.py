"""What became of each pipeline of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamer.events import BatchWritten, Event, Listener, Retrying, RunFailed, RunStopped


@dataclass
class Outcome:
    """A listener that sums up the events of one pipeline.

    Attributes:
        pipeline: the name of the pipeline.
        topic: its topic.
        next_listener: receives every event after it was added.
        result: ``caught up``, ``interrupted`` or ``failed``; ``unfinished`` before the end.
        error: the class and the message of the error, if the result is ``failed``.
        error_type: the class of the error, if the result is ``failed``.
        batches: the number of committed batches.
        rows: the number of rows in these batches; for a route, those of all its tables.
        rejects: the number of records that could not become rows.
        busy_s: the seconds that the batches took.
        lag: the number of unread offsets of each partition after the last batch.
    """

    pipeline: str
    topic: str
    next_listener: Listener
    result: str = "unfinished"
    error: str = ""
    error_type: str = ""
    batches: int = 0
    rows: int = 0
    rejects: int = 0
    busy_s: float = 0.0
    lag: Mapping[int, int] = field(default_factory=dict)

    @property
    def has_failed(self) -> bool:
        """Whether the pipeline failed permanently."""
        return self.result == "failed"

    def __call__(self, event: Event, /) -> None:
        """Add an event."""
        match event:
            case BatchWritten():
                self.batches += 1
                self.rows += event.rows_written + event.rows_of_tables
                self.rejects += event.rejects
                self.busy_s += event.seconds
                self.lag = event.lag
            case RunStopped():
                self.result = event.reason
            case RunFailed():
                self.result, self.error_type = "failed", event.error_type
                self.error = f"{event.error_type}: {event.error}"
            case Retrying():  # also after ``RunFailed``
                self.result, self.error, self.error_type = "unfinished", "", ""
            case _:
                pass
        self.next_listener(event)

    def row(self) -> Mapping[str, object]:
        """Return the outcome as a row of the summary."""
        return {
            "pipeline": self.pipeline,
            "topic": self.topic,
            "result": self.result,
            "batches": self.batches,
            "rows": self.rows,
            "rejects": self.rejects,
            "busy s": round(self.busy_s, 1),
            "behind": sum(self.lag.values()),
        }
