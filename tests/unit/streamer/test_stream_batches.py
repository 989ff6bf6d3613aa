"""Micro-batches are published in their order, while the next one is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.errors import Permanent
from lakemark.execution.runner import LocalRunner
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import Exchange, ReadBatch
from streamer.schedule import UNSHARED
from streamer.slots import Slots
from streamer.stream_batches import PlannedBatch, StreamBatches
from tests.waiting import until

LONG_S = 120.0

#: Nothing happens in this time that the test does not allow.
MOMENT_S = 0.05


#: The number of the batch that a stream has already published.
_EARLIER = 99


class ReadWhenWritten:
    """An exchange that reads a batch when it writes it."""

    def run(self, *_: object) -> list[Any]:
        return []


@dataclass
class Stream:
    """Calls ``on_batch`` as Spark does, one batch after the other, and records what happens.

    Attributes:
        reads_ahead: whether a batch is read while the previous one is published.
        has_published_first: whether the stream has already published a batch, which is not noted.
        happened: a text for each batch that was read or published, in order.
        may_publish: for a held batch, the event that permits its publication.
        sizes: Arrow bytes of a batch. If there is no size, the batch is read when it is written.
        unreadable: batches that cannot be read.
        refused: batches that cannot be published.
        may_read: for a held batch, the event that permits to read it.
        failures: errors of batches that cannot be published, other than ``refused``.
        announced: the batches that were announced, in order.
        announced_at: when each published batch was announced.
        stopping: set to stop the run.
        slots: the slots of batches, if other pipelines share the process.
    """

    reads_ahead: bool = True
    has_published_first: bool = True
    happened: list[str] = field(default_factory=list)
    may_publish: dict[int, threading.Event] = field(default_factory=dict)
    sizes: dict[int, int | None] = field(default_factory=dict)
    unreadable: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)
    may_read: dict[int, threading.Event] = field(default_factory=dict)
    failures: dict[int, BaseException] = field(default_factory=dict)
    announced: list[int] = field(default_factory=list)
    announced_at: dict[int, float] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    slots: Slots = field(default_factory=lambda: Slots(1))
    changed: threading.Condition = field(default_factory=threading.Condition)
    batches: StreamBatches = field(init=False)

    def __post_init__(self) -> None:
        self.batches = StreamBatches(
            self._make,
            lambda batch, number: self.announced.append(number),
            self._read,
            self._publish,
            self.stopping,
            reads_ahead=self.reads_ahead,
            slot=UNSHARED.batch if self.reads_ahead else self.slots.hold,
        )
        if self.has_published_first:
            self.batches.on_batch(cast(Any, _EARLIER), _EARLIER)
            self.happened.clear()
            self.announced.clear()

    @contextmanager
    def calls(self, *numbers: int) -> Iterator[None]:
        """Call ``on_batch`` for these batches in a thread, and end the stream after the block."""

        def call() -> None:
            for number in numbers:
                self.batches.on_batch(cast(Any, number), number)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        try:
            yield
        finally:
            thread.join(LONG_S)
            assert not thread.is_alive()
            assert self.batches.wait(LONG_S)
            self.batches.end()

    def hold(self, number: int) -> threading.Event:
        """Let a batch be published only when the returned event is set."""
        return self.may_publish.setdefault(number, threading.Event())

    def hold_read(self, number: int) -> threading.Event:
        """Let a batch be read only when the returned event is set; note when reading begins."""
        return self.may_read.setdefault(number, threading.Event())

    def wait_for(self, *happened: str) -> None:
        """Wait until exactly this has happened, and check that nothing more happens soon."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.happened) >= len(happened), LONG_S)
            self.changed.wait(MOMENT_S)
            assert self.happened == list(happened)

    def _make(self, records: object, number: int) -> KafkaBatch:
        start, end = (KafkaCheckpoint("t", {0: offset}) for offset in (number, number + 1))
        return KafkaBatch(records=cast(Any, number), start=start, end=end)

    def _read(self, batch: KafkaBatch) -> Exchange[Any]:
        number = cast(int, batch.records)
        if number in self.unreadable:
            message = f"{number} is unreadable"
            raise Permanent(message)
        if number in self.may_read:
            self._note(f"begin {number}")
            assert self.may_read[number].wait(LONG_S)
        size = self.sizes.get(number, 8)
        if size is None:
            return ReadWhenWritten()
        self._note(f"read {number}")
        return ReadBatch([pa.table({"value": pa.nulls(size, pa.int8())})], LocalRunner(1))

    def _publish(self, planned: PlannedBatch) -> None:
        self.announced_at[planned.id] = planned.announced_at
        assert self.may_publish.get(planned.id, self._always()).wait(LONG_S)
        if planned.id in self.failures:
            raise self.failures[planned.id]
        if planned.id in self.refused:
            message = f"{planned.id} is refused"
            raise Permanent(message)
        self._note(f"publish {planned.id}")

    def _always(self) -> threading.Event:
        event = threading.Event()
        event.set()
        return event

    def _note(self, what: str) -> None:
        with self.changed:
            self.happened.append(what)
            self.changed.notify_all()


def test_one_batch_is_read_ahead_and_all_are_published_in_order() -> None:
    stream = Stream()
    may_publish = stream.hold(0)
    with stream.calls(0, 1, 2, 3):
        stream.wait_for("read 0", "read 1")
        assert stream.announced == [0], "the events of two batches would mix"
        may_publish.set()
    assert stream.announced == [0, 1, 2, 3]
    published = [one for one in stream.happened if one.startswith("publish")]
    assert published == ["publish 0", "publish 1", "publish 2", "publish 3"]
    assert stream.batches.failure is None


def test_no_batch_is_read_while_the_first_one_is_published() -> None:
    stream = Stream(has_published_first=False)
    may_publish = stream.hold(0)
    with stream.calls(0, 1):
        stream.wait_for("read 0")
        may_publish.set()
    assert stream.happened == ["read 0", "publish 0", "read 1", "publish 1"]


def test_times_of_batches_do_not_overlap() -> None:
    stream = Stream()
    may_publish = stream.hold(0)
    began = time.monotonic()
    with stream.calls(0, 1):
        stream.wait_for("read 0", "read 1")
        released = time.monotonic()
        may_publish.set()
    assert began <= stream.announced_at[0] < released
    assert released <= stream.announced_at[1] <= time.monotonic()


def test_nothing_is_read_ahead_if_that_is_off() -> None:
    stream = Stream(reads_ahead=False)
    with stream.calls(0, 1):
        pass
    assert stream.happened == ["read 0", "publish 0", "read 1", "publish 1"]


def test_batch_holds_its_slot_until_it_is_published() -> None:
    stream = Stream(reads_ahead=False)
    may_publish = stream.hold(0)
    with ExitStack() as others_end:
        others_batch = others_end.enter_context(ExitStack())
        others_batch.enter_context(stream.slots.hold(bool))
        others_end.enter_context(stream.calls(0))
        until(lambda: stream.batches.awaits_slot)
        assert not stream.batches.is_idle
        assert not stream.announced, "the wait is not part of the time of the batch"
        others_batch.close()
        stream.wait_for("read 0")
        with stream.slots.hold(lambda: True) as has_slot:
            assert not has_slot
        may_publish.set()
    assert stream.happened == ["read 0", "publish 0"]
    with stream.slots.hold(bool) as has_slot:
        assert has_slot


@pytest.mark.parametrize("end", ["stop", "close"])
def test_batch_that_waits_for_its_slot_is_dropped_if_the_stream_ends(end: str) -> None:
    stream = Stream(reads_ahead=False)
    with stream.slots.hold(bool), stream.calls(0, 1):
        until(lambda: stream.batches.awaits_slot)
        if end == "stop":
            stream.stopping.set()
        else:
            stream.batches.close()
        assert stream.batches.finish_batch(LONG_S)
    assert not stream.happened
    assert not stream.slots.are_wanted


def test_close_lets_the_batch_in_progress_be_published() -> None:
    stream = Stream(reads_ahead=False)
    may_publish = stream.hold(0)
    with stream.calls(0, 1):
        stream.wait_for("read 0")
        stream.batches.close()
        assert not stream.batches.wait(MOMENT_S)
        may_publish.set()
    assert stream.happened == ["read 0", "publish 0"]
    assert stream.batches.failure is None


def test_batch_that_was_read_ahead_of_a_failure_is_dropped() -> None:
    stream = Stream(refused={0})
    may_publish = stream.hold(0)
    with stream.calls(0, 1, 2):
        stream.wait_for("read 0", "read 1")
        may_publish.set()
    assert stream.happened == ["read 0", "read 1"]
    assert str(stream.batches.failure) == "0 is refused"


def test_batch_is_published_although_the_next_one_cannot_be_read() -> None:
    stream = Stream(unreadable={1})
    may_publish = stream.hold(0)
    with stream.calls(0, 1):
        stream.wait_for("read 0")
        assert stream.batches.failure is None, "a new start would meet the publication"
        may_publish.set()
    assert stream.happened == ["read 0", "publish 0"]
    assert str(stream.batches.failure) == "1 is unreadable"


def test_failure_of_the_earlier_batch_is_the_one_reported() -> None:
    stream = Stream(refused={0}, unreadable={1})
    may_publish = stream.hold(0)
    with stream.calls(0, 1):
        stream.wait_for("read 0")
        may_publish.set()
    assert str(stream.batches.failure) == "0 is refused"


def test_stop_drops_the_batch_that_was_read_ahead() -> None:
    stream = Stream()
    may_publish = stream.hold(0)
    with stream.calls(0, 1, 2):
        stream.wait_for("read 0", "read 1")
        stream.stopping.set()
        assert not stream.batches.wait(0.0)
        may_publish.set()
    assert stream.happened == ["read 0", "read 1", "publish 0"]
    assert stream.batches.failure is None


def test_stop_drops_the_batch_that_is_being_read_ahead_and_does_not_wait_for_it() -> None:
    stream = Stream()
    may_publish, may_read = stream.hold(0), stream.hold_read(1)
    with stream.calls(0, 1, 2):
        stream.wait_for("read 0", "begin 1")
        stream.stopping.set()
        assert not stream.batches.finish_batch(MOMENT_S)
        may_publish.set()
        assert stream.batches.finish_batch(LONG_S), "the batch that is read will be dropped"
        assert not stream.batches.has_batch_in_progress
        assert not stream.batches.is_idle
        may_read.set()
    assert stream.happened == ["read 0", "begin 1", "publish 0", "read 1"]
    assert stream.announced == [0]


def test_stop_while_a_large_batch_is_published_reads_no_further_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("streamer.stream_batches._MAX_BYTES_TO_READ_AHEAD", 1 << 20)
    stream = Stream(sizes={0: 2 << 20})
    may_publish = stream.hold(0)
    with stream.calls(0, 1):
        stream.wait_for("read 0")
        stream.stopping.set()
        may_publish.set()
    assert stream.happened == ["read 0", "publish 0"]


def test_stop_finishes_the_batch_that_is_being_read_while_no_other_is_published() -> None:
    stream = Stream()
    may_read = stream.hold_read(0)
    with stream.calls(0, 1):
        stream.wait_for("begin 0")
        stream.stopping.set()
        assert not stream.batches.finish_batch(MOMENT_S)
        may_read.set()
        assert stream.batches.finish_batch(LONG_S)
    assert stream.happened == ["begin 0", "read 0", "publish 0"]


class Untranslatable(PySparkException):
    """An error of Spark whose message cannot be read."""

    def __str__(self) -> str:
        message = "no message"
        raise ValueError(message)


@pytest.mark.parametrize("reads_ahead", [True, False])
def test_failure_that_cannot_be_translated_ends_the_stream_too(reads_ahead: bool) -> None:
    failure = Untranslatable("unreadable")
    stream = Stream(reads_ahead=reads_ahead, failures={0: failure})
    with stream.calls(0, 1):
        assert stream.batches.wait(LONG_S)
    assert stream.batches.failure is failure


@pytest.mark.parametrize("size", [None, 2 << 20])
def test_batch_that_is_large_is_alone_in_memory(
    size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.stream_batches._MAX_BYTES_TO_READ_AHEAD", 1 << 20)
    stream = Stream(sizes={1: size})
    may_publish, may_publish_large = stream.hold(0), stream.hold(1)
    read = ["read 1"] if size else []
    with stream.calls(0, 1, 2):
        stream.wait_for("read 0", *read)
        may_publish.set()
        stream.wait_for("read 0", *read, "publish 0")
        may_publish_large.set()
    assert stream.happened[-3:] == ["publish 1", "read 2", "publish 2"]
