"""One pipeline of a job."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack

from checkpoints.checkpoint import KafkaCheckpoint
from streamer import pipeline
from streamer.config.pipeline import PipelineConfig
from streamer.events import Retrying, RunStopped
from streamer.job.member import Member
from streamer.job.outcome import Outcome
from streamer.keepalive import emit_keepalives
from streamer.loop import StreamLoop
from streamer.metrics.server import RunMonitor
from streamer.record_conversion import NoRecordsYet
from streamer.shared_process import SharedProcess
from streamer.sources.errors import BrokerUnreachable, TopicNotFound
from streamer.sources.topic_questions import topic_ranges

#: Seconds between two tries to infer columns, even if the topic cannot be watched.
_BETWEEN_TRIES_S = 2.0

#: Seconds for which a broker may not know a topic that was seen before, such as after a restart.
_MISSING_FOR_S = 30.0


class JobPipeline(Member):
    """One pipeline of a job: it opens its tables, and runs its loop.

    Args:
        config: the configuration of the pipeline.
        process: what the pipelines share.
        monitor: monitors the run; its listener receives all events.
        outcome: is updated by the listener of ``monitor``.
        was_found: whether a search has found the topic, so that it exists.
    """

    def __init__(
        self,
        config: PipelineConfig,
        process: SharedProcess,
        monitor: RunMonitor,
        outcome: Outcome,
        *,
        was_found: bool = False,
    ) -> None:
        super().__init__(outcome, monitor.listener, config.run)
        self._config, self._process, self._monitor = config, process, monitor
        self._schedule = process.schedule_of(config)
        self._loop: StreamLoop | None = None
        self._has_seen_topic, self._missing_since = was_found, math.inf
        self._was_broker_away = False
        monitor.control.bind_stop(self.stop)

    @property
    def has_unfinished_work(self) -> bool:
        """See ``Member``."""
        loop = self._loop
        return self.is_running or (loop is not None and loop.has_unfinished_work)

    def again(self) -> JobPipeline:
        """Return a pipeline that continues this one, which has ended because of an error."""
        outcome = self.outcome
        self._listener(Retrying(outcome.error, 1, self._limit, 0.0, outcome.error_type))
        return JobPipeline(self._config, self._process, self._monitor, outcome, was_found=True)

    def stop(self) -> None:
        """See ``Member``."""
        super().stop()
        loop = self._loop
        if loop is not None:
            loop.stop()

    def _run_once(self) -> None:
        self._process.use_pool(self._config.name)
        self._monitor.watch_wait(lambda: self.waiting_at)
        while True:
            try:
                if self._was_broker_away:  # waits before it has a slot that others need
                    topic_ranges(self._process.spark, self._config.kafka)
                return self._run_loop()
            except NoRecordsYet:
                if self._config.run.mode == "once":
                    return self._end("caught up")
                self._await_first_record()

    def _run_loop(self) -> None:
        with ExitStack() as ended:
            with self._schedule.stream(self._waits_no_longer) as has_slot:
                if not has_slot:
                    return self._end("interrupted")
                built = ended.enter_context(
                    pipeline.build(
                        self._config,
                        self._listener,
                        process=self._process,
                        paused=self._monitor.control.paused,
                    )
                )
            self._has_seen_topic, self._missing_since = True, math.inf
            ended.enter_context(self._monitor.watch(built))
            interval_s = self._config.run.alive_interval_s
            ended.enter_context(
                emit_keepalives(built.loop, built.source, self._listener, interval_s)
            )
            self._loop = built.loop
            if self._stopping.is_set():  # before the loop was known to ``stop``
                built.loop.stop()
            built.loop.run()

    def _may_pass(self, error: Exception) -> bool:
        """See ``Member``. A topic that was seen may only be missing for a while."""
        self._was_broker_away = isinstance(error, BrokerUnreachable)
        if not isinstance(error, TopicNotFound):
            return super()._may_pass(error)
        now = time.monotonic()
        self._missing_since = min(self._missing_since, now)
        return self._has_seen_topic and now - self._missing_since < _MISSING_FOR_S

    def _await_first_record(self) -> None:
        """Wait for the records from which the columns of a new table are inferred."""
        source = self._config.kafka
        ranges = topic_ranges(self._process.spark, source)
        if all(held.earliest == held.end for held in ranges.values()):
            ends = {number: held.end for number, held in ranges.items()}
            end = KafkaCheckpoint(source.topic, ends)
            self._schedule.await_records(end, "", self._waits_no_longer)
        self._pause(_BETWEEN_TRIES_S)

    def _end(self, reason: str) -> None:
        self._listener(RunStopped(reason, {}, 0, 0, 0.0))
