"""Runs ``lakemark`` with a stream that fails while a compaction rewrites slices.

python -m tests.unit.streamer.failing_run TABLE ARGUMENTS…
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from sinks.hudi.sink import HudiSink
from sinks.reject_limit import NO_REJECTS
from streamer import cli, pipeline
from streamer.background_compaction import BackgroundCompaction
from streamer.background_services import BackgroundPolicy, BackgroundServices
from streamer.config.pipeline import PipelineConfig
from streamer.events import Listener
from streamer.loop import StreamLoop
from streamer.services import ServicePolicies, TableServices
from streamer.sources.errors import TopicNotFound
from tests.tables import Row, commit, make, writer

TOPIC = "orders"

#: How long the slices take: longer by far than a busy machine takes to start and end the run.
HELD_S = 600.0


class HeldRunner(LocalRunner):
    """A runner whose tasks take ``HELD_S`` seconds."""

    def __init__(self) -> None:
        super().__init__(2)
        self.begun = threading.Event()

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        def held(task: Task) -> Result:
            self.begun.set()
            time.sleep(HELD_S)
            return function(task)

        return super().map(held, tasks)


class GoneTopic:
    """A source whose topic disappears while slices are rewritten."""

    def __init__(self, begun: threading.Event) -> None:
        self._begun = begun

    def start(self, *_: object) -> None:
        assert self._begun.wait(HELD_S)
        raise TopicNotFound(TOPIC, "nowhere")

    def flush_positions(self, within_s: float) -> None:
        pass


@contextmanager
def build(
    config: PipelineConfig,
    listener: Listener,
    *,
    paused: threading.Event,
    is_snapshot_read: bool,
) -> Iterator[pipeline.Pipeline]:
    """Build a pipeline on a table that has two slices to compact."""
    storage = open_storage(StorageLocation(sys.argv[1]))
    make(storage)
    rows = writer(storage)
    for number in (1, 2):
        commit(rows, [Row("a", number), Row("b", number, region="south")])
    runner, compaction = HeldRunner(), CompactionPolicy(1)
    background = BackgroundServices(
        [BackgroundCompaction(rows, compaction)], BackgroundPolicy(), lambda: runner, listener
    )
    services = TableServices([rows], ServicePolicies(compaction), runner, listener, background)
    sink = HudiSink(rows, None, cast(Any, None), NO_REJECTS)
    source = cast(Any, GoneTopic(runner.begun))
    loop = StreamLoop(
        TOPIC, source, sink, cast(Any, None), services, config.run, listener, paused=paused
    )
    yield pipeline.Pipeline(loop, sink, source)


if __name__ == "__main__":
    pipeline.build = cast(Any, build)
    sys.exit(cli.main(sys.argv[2:]))
