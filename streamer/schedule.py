"""When the stream of a pipeline runs, if other pipelines share its process.

Two kinds of slots limit what a process does at the same time. A pipeline needs a slot to open its
tables and to keep a stream open, and a slot to read and write a batch. An idle pipeline needs
neither: its stream ends, and ``TopicWatch`` waits for its next record. A pipeline whose broker does
not answer asks again without a slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.position import Position
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.slots import Slots
from streamer.sources.topic_watch import TopicWatch, WatchedTopic
from streamer.working_for import working_for

#: Returns whether a thread should wait no longer; called about twice a second.
GivesUp = Callable[[], bool]

#: Seconds without a record after which a stream ends; and if other pipelines wait for its slot.
_IDLE_S, _IDLE_IF_WANTED_S = 5.0, 1.0

#: Seconds for which a busy stream keeps a slot for which others wait. Another start of the stream
#: takes less than a second.
_TURN_S = 30.0


class Schedule(Protocol):
    """Decides when the stream of one pipeline runs."""

    @property
    def is_shared(self) -> bool:
        """Whether other pipelines run in this process."""
        ...

    @property
    def can_await_records(self) -> bool:
        """Whether ``await_records`` waits, so that an idle pipeline needs no stream."""
        ...

    def stream(self, gives_up: GivesUp) -> AbstractContextManager[bool]:
        """Wait for the slot of a stream and hold it; yield False if the thread gave up."""
        ...

    def batch(self, gives_up: GivesUp) -> AbstractContextManager[bool]:
        """Wait for the slot of a batch and hold it; yield False if the thread gave up."""
        ...

    def ends_turn(self, streaming_s: float) -> bool:
        """Return whether a stream should end, although it has work, because others wait."""
        ...

    def ends_idle(self, idle_s: float) -> bool:
        """Return whether a stream that has had nothing to read for some seconds should end."""
        ...

    def await_records(self, read_to: Position, topic_id: str, gives_up: GivesUp) -> None:
        """Wait until the topic may have records after ``read_to``; see ``can_await_records``."""
        ...


class _Unshared:
    """The schedule of a pipeline that has its process for itself: the stream never ends."""

    is_shared = can_await_records = False

    def stream(self, gives_up: GivesUp) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def batch(self, gives_up: GivesUp) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def ends_turn(self, streaming_s: float) -> bool:
        return False

    def ends_idle(self, idle_s: float) -> bool:
        return False

    def await_records(self, read_to: Position, topic_id: str, gives_up: GivesUp) -> None:
        """Return at once."""


UNSHARED: Final[Schedule] = _Unshared()


@dataclass(frozen=True)
class SharedSchedule:
    """The schedule of one of the pipelines that share a process.

    Args:
        pipeline: the name of the pipeline.
        source: its source.
        streams: the slots of streams.
        batches: the slots of batches.
        watch: watches the topics of idle pipelines.
    """

    pipeline: str
    source: KafkaSourceConfig
    streams: Slots
    batches: Slots
    watch: TopicWatch

    @property
    def is_shared(self) -> bool:
        """See ``Schedule``."""
        return True

    @property
    def can_await_records(self) -> bool:
        """See ``Schedule``."""
        return self._topic.can_be_watched

    def stream(self, gives_up: GivesUp) -> AbstractContextManager[bool]:
        """See ``Schedule``."""
        return self.streams.hold(gives_up)

    @contextmanager
    def batch(self, gives_up: GivesUp) -> Iterator[bool]:
        """See ``Schedule``. Until the block ends, this thread works for the pipeline."""
        with working_for(self.pipeline), self.batches.hold(gives_up) as has_slot:
            yield has_slot

    def ends_turn(self, streaming_s: float) -> bool:
        """See ``Schedule``."""
        return self.streams.are_wanted and streaming_s > _TURN_S

    def ends_idle(self, idle_s: float) -> bool:
        """See ``Schedule``. A topic that cannot be watched needs its stream, in turns."""
        if self.streams.are_wanted:
            return idle_s > _IDLE_IF_WANTED_S
        return idle_s > _IDLE_S and self.can_await_records

    def await_records(self, read_to: Position, topic_id: str, gives_up: GivesUp) -> None:
        """See ``Schedule``."""
        assert isinstance(read_to, KafkaCheckpoint), read_to
        self._topic.wait(read_to, topic_id, gives_up)

    @cached_property
    def _topic(self) -> WatchedTopic:
        return self.watch.of(self.source)
