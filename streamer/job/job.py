"""Runs several pipelines in one process until all have ended."""

from __future__ import annotations

import math
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeAlias

from lakemark.errors import HudiError, Permanent
from lakemark.execution.limits import usable_threads
from streamer.capture_logs import capture_logs, log_clashes
from streamer.config.errors import ConfigError
from streamer.config.pipeline import PipelineConfig
from streamer.events import Listener, RunFailed, WarningLogged
from streamer.job.job_pipeline import JobPipeline
from streamer.job.member import Member
from streamer.job.outcome import Outcome
from streamer.job.plan import JobPlan, TopicTemplate
from streamer.job.topic_discovery import TopicDiscovery
from streamer.jvm_exit import jvm_end
from streamer.loop import STOP_GRACE_S
from streamer.metrics.server import RunMonitors, monitor_runs
from streamer.pipeline import open_session
from streamer.shared_process import SharedProcess, share_process
from streamer.sources.errors import TopicNotFound
from streamer.wording import counted
from streamer.working_for import current_pipeline

_POLL_S = 0.2

#: Seconds that the pipelines have to end after their batches in progress.
_END_WITHIN_S = 10.0

#: How many failed pipelines the error names.
_NAMED = 10

#: What a topic that was found has: a pipeline, or only an outcome if the topic is not suitable.
_Found: TypeAlias = JobPipeline | Outcome


class PipelinesFailed(Permanent):
    """Some pipelines of a job have failed; the others ran to their end."""

    def __init__(self, failed: Sequence[str], num_pipelines: int) -> None:
        more = ", …" if len(failed) > _NAMED else ""
        super().__init__(
            f"{len(failed)} of {counted(num_pipelines, 'pipeline')} failed: "
            f"{', '.join(failed[:_NAMED])}{more}; the event RunFailed of each contains the reason"
        )
        self.failed, self.num_pipelines = tuple(failed), num_pipelines


@contextmanager
def open_job(
    plan: JobPlan, num_batches: int | None, output: Callable[[str], Listener]
) -> Iterator[Job]:
    """Start Spark, and serve the metrics of all pipelines, until the block ends.

    Args:
        plan: what the job runs.
        num_batches: how many batches may be read and written at the same time; None for half of
            the cores, but at least two.
        output: returns the listener of a pipeline, by name; "" for the events of the process.

    Raises:
        CannotListen: another process uses the port of the metrics endpoint.
        HudiError: Spark does not start.
    """
    of_process = output("")
    _allow_many_files()
    with monitor_runs(plan.process.metrics, of_process, plan.redactor()) as monitors:

        def warn(*warning: str) -> None:
            monitors.listener_of(current_pipeline(), of_process)(WarningLogged(*warning))

        with capture_logs(warn):
            log_clashes()
            spark = open_session(plan.process, is_shared=True)
            with share_process(spark, num_batches or max(2, usable_threads() // 2)) as process:
                yield Job(plan, process, monitors, output)


def _allow_many_files() -> None:
    """Let this process and Spark's JVM open as many files as the system allows.

    Each pipeline has connections and open files, and the usual limit, 1024, is soon reached.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS does not accept its own limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class Job:
    """The pipelines of a process.

    Searches for topics add pipelines from their own threads, one at a time.

    Args:
        plan: what the job runs.
        process: what the pipelines share.
        monitors: monitors the pipelines.
        output: returns the listener of a pipeline, by name.
    """

    def __init__(
        self,
        plan: JobPlan,
        process: SharedProcess,
        monitors: RunMonitors,
        output: Callable[[str], Listener],
    ) -> None:
        self._plan, self._process = plan, process
        self._monitors, self._output = monitors, output
        self._members = list[Member]()
        self._found = dict[tuple[str, str], _Found]()
        self._adding = threading.Lock()  # not held by ``stop``, which a signal handler calls
        self._stop_by = math.inf
        self.outcomes = list[Outcome]()

    @property
    def has_unfinished_work(self) -> bool:
        """Whether threads may still be at work."""
        return any(one.has_unfinished_work for one in self._members)

    def stop(self) -> bool:
        """Ask all pipelines to stop; may be called from a signal handler.

        Returns:
            True, because ``run`` sees the request.
        """
        self._stop_by = min(self._stop_by, time.monotonic() + STOP_GRACE_S + _END_WITHIN_S)
        for one in tuple(self._members):
            one.stop()
        return True

    def run(self) -> None:
        """Run all pipelines until they end.

        Raises:
            PipelinesFailed: a pipeline has failed.
            OutOfMemory, JvmEnded: Spark's JVM has exited, and nothing had asked the job to stop.
        """
        for config in self._plan.configs:
            with self._adding:
                self._begin(self._pipeline(config))
        for template in self._plan.templates:
            with self._adding:
                self._begin(self._search(template))
        end_of_jvm = self._wait()
        if end_of_jvm is not None:
            raise end_of_jvm
        failed = [one.pipeline for one in self.outcomes if one.has_failed]
        if failed:
            raise PipelinesFailed(failed, len(self.outcomes))

    def _wait(self) -> Permanent | None:
        """Wait until nothing runs; return why the JVM has exited, if this ended the job.

        The pipelines that wait for records do not notice this exit. After a stop, it is expected: a
        supervisor may stop the JVM together with this process.
        """
        end_of_jvm = None
        while self._is_running() and time.monotonic() < self._stop_by:
            time.sleep(_POLL_S)
            if self._stop_by == math.inf and (end_of_jvm := jvm_end()) is not None:
                self.stop()
        return end_of_jvm

    def _is_running(self) -> bool:
        return any(one.is_running for one in tuple(self._members))

    def _add(self, template: TopicTemplate, topic: str, *, is_back: bool) -> None:
        """See ``AddsTopic``. An unsuitable topic counts as a failed pipeline."""
        if self._plan.names(topic, template.sample.kafka.bootstrap_servers):
            return
        with self._adding:
            known = self._found.get((template.file, topic))
            if known is None:
                self._found[template.file, topic] = self._add_new(template, topic)
            elif isinstance(known, JobPipeline) and _may_start_again(known, is_back=is_back):
                self._found[template.file, topic] = again = known.again()
                self._begin(again)

    def _add_new(self, template: TopicTemplate, topic: str) -> _Found:
        try:
            config = template.pipeline_of(topic)
            if problems := self._plan.shared.add(template.file, config):
                raise ConfigError(problems)
        except HudiError as error:
            name = f"{template.file}: {topic}"  # another pipeline may have the name of the topic
            outcome = self._outcome(name, topic)
            monitor = self._monitors.add_refused(name, topic, outcome)
            monitor.listener(RunFailed(type(error).__name__, str(error)))
            return outcome
        pipeline = self._pipeline(self._plan.shared.share(config), was_found=True)
        self._begin(pipeline)
        return pipeline

    def _pipeline(self, config: PipelineConfig, *, was_found: bool = False) -> JobPipeline:
        outcome = self._outcome(config.name, config.source.origin)
        monitor = self._monitors.add(config, outcome)
        return JobPipeline(config, self._process, monitor, outcome, was_found=was_found)

    def _search(self, template: TopicTemplate) -> TopicDiscovery:
        name = f"{template.file}: topics {template.pattern}"
        outcome = self._outcome(name, template.pattern)
        monitor = self._monitors.add_search(name, template.pattern, outcome)
        return TopicDiscovery(template, self._process.spark, monitor, outcome, self._add)

    def _outcome(self, pipeline: str, topic: str) -> Outcome:
        outcome = Outcome(pipeline, topic, self._output(pipeline))
        self.outcomes.append(outcome)
        return outcome

    def _begin(self, member: Member) -> None:
        self._members = [*(one for one in self._members if one.has_unfinished_work), member]
        if self._stop_by < math.inf:  # ``stop`` may have missed this member
            member.stop()
        member.start()


def _may_start_again(pipeline: JobPipeline, *, is_back: bool) -> bool:
    """Return whether a pipeline has ended because its topic was missing, but was found again."""
    outcome = pipeline.outcome
    was_missing = is_back or outcome.error_type == TopicNotFound.__name__
    return outcome.has_failed and was_missing and not pipeline.is_running
