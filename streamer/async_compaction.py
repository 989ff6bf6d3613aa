"""Asynchronous compaction: a thread rewrites file slices while batches continue.

A mutex protects the open tables. A batch holds the mutex from its first read of the table until its
last table service has ended. The compaction holds the mutex twice, always between two batches:
briefly to begin, and briefly to publish. So the compaction does not change the table during a
batch, and only one thread at a time uses the view, the timeline and the metadata table, which both
share in memory. Rewriting takes most of the time, and runs without the mutex. Meanwhile batches
write their logs to the new file slices that the plan opened.

All tables of the pipeline together execute one plan at a time, which limits the memory to that of
one compaction.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from lakemark.errors import LockTimeout, Permanent, WriteConflict
from lakemark.execution.runner import CancellableRunner, Cancelled
from lakemark.model.action import Action
from lakemark.model.commit_metadata import WriteStat
from lakemark.operations.compact import Compaction, Planned
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy, delta_commits_uncompacted
from lakemark.write.write_status import ContentMismatch
from streamer.backoff import pause_after
from streamer.events import (
    CompactionCompleted,
    CompactionFailed,
    CompactionResolved,
    CompactionStarted,
    Listener,
    ServiceCompleted,
)
from streamer.wording import counted

#: A plan that another writer executes is deferred for these seconds: the first pause, and the
#: longest pause. The pauses are long, because a conflict is found only after all file slices were
#: rewritten.
_DEFER_S = 60.0
_MAX_DEFER_S = 3600.0

#: How often a waiting batch checks whether the run should stop.
_POLL_S = 0.1


class CompactionGivenUp(Permanent):
    """An asynchronous compaction has failed for longer than the pipeline allows."""

    def __init__(self, instant: str, failing_s: float, error: str) -> None:
        super().__init__(
            f"compaction {instant} has failed for {failing_s:.0f} s, while the table's log files "
            f"grow; the last failure: {error}; correct its cause and start again to execute "
            "the same plan, or raise compaction.give_up_after_s"
        )
        self.instant, self.failing_s = instant, failing_s


@dataclass(frozen=True, slots=True)
class AsyncCompactionPolicy:
    """When asynchronous compaction runs, and how long batches wait for it.

    Attributes:
        compaction: when a compaction is planned.
        max_wait_s: the longest time that a batch waits for a compaction. A compaction, too, waits
            no longer than this for the table's lock; then it retries.
        backlog_commits: batches wait if more than this number of delta commits are not compacted.
        give_up_after_s: the run fails if a compaction has failed for this number of seconds; 0: the
            run never fails for this reason.
        backoff_s: the pause after the first failure, in seconds; it doubles with each failure.
        max_backoff_s: the longest pause, in seconds.
    """

    compaction: CompactionPolicy
    max_wait_s: float = 10.0
    backlog_commits: int = 20
    give_up_after_s: float = 3600.0
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0


class _Step(IntEnum):
    """The steps of an attempt to execute a plan."""

    BEGIN = 0
    REWRITE = 1
    PUBLISH = 2


@dataclass
class _Job:
    """The plan that is being executed.

    Attributes:
        writer: the writer of the table.
        planned: the plan.
        step: the step of the current attempt. At ``PUBLISH``, the attempt waits for the mutex.
        failures: the number of consecutive failures at the same step or an earlier one.
        failed_at: the step of the last failure.
        failing_since: the time of the first failure, in seconds of ``time.monotonic``.
    """

    writer: TableWriter
    planned: Planned
    step: _Step = _Step.BEGIN
    failures: int = 0
    failed_at: _Step = _Step.BEGIN
    failing_since: float = 0.0

    def reach(self, step: _Step) -> None:
        """Continue with a step, and forget the failures of the steps before it."""
        self.step = step
        if self.failed_at < step:
            self.failures = 0

    @property
    def is_shared(self) -> bool:
        """Whether other writers share the table; their commits may conflict with the plan."""
        return self.writer.table.context.multi_writer is not None

    @property
    def table(self) -> str:
        """URL of the table."""
        return self.writer.table.location.url

    @property
    def instant(self) -> str:
        """Requested time of the plan."""
        return self.planned[0].requested_at


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A plan that another writer executes, and that is retried later.

    Attributes:
        writer: the writer of the plan's table.
        times: how often the plan was deferred.
        until: when the plan is retried, in seconds of ``time.monotonic``.
    """

    writer: TableWriter
    times: int
    until: float


class AsyncCompactor:
    """Compacts the tables of a pipeline in a separate thread, one plan after the other.

    Attributes:
        mutex: the lock that a thread holds while it reads or changes the open tables; reentrant.

    Args:
        policy: when a compaction runs, and how long batches wait for it.
        runner: rewrites the file slices; nothing else uses this runner.
        listener: receives the events of compactions; some of them come from the thread.
    """

    def __init__(
        self, policy: AsyncCompactionPolicy, runner: CancellableRunner, listener: Listener
    ) -> None:
        self.mutex = threading.Condition()
        self._policy, self._runner, self._listener = policy, runner, listener
        self._ending = threading.Event()
        self._job: _Job | None = None
        self._thread: threading.Thread | None = None
        self._given_up: CompactionGivenUp | None = None
        self._deferred: dict[str, _Deferred] = {}

    @property
    def is_progressing(self) -> bool:
        """Whether a plan is being executed and has not failed."""
        job = self._job
        return job is not None and not job.failures

    def check(self) -> None:
        """Raise if compaction has failed for too long.

        Raises:
            CompactionGivenUp: a compaction has failed for ``give_up_after_s``.
        """
        if self._given_up is not None:
            raise self._given_up

    def start_next(self, writer: TableWriter, policy: CompactionPolicy | None = None) -> bool:
        """Start the next due compaction of a table. Call this after a batch, holding the mutex.

        Args:
            writer: the writer of the table.
            policy: when a compaction is due; None for the policy of the pipeline.

        Returns:
            Whether a compaction of this table was started. All tables share one thread.

        Raises:
            CompactionGivenUp: see ``check``.
        """
        self.check()
        self._report_resolved(writer)
        if self._job is not None or self._ending.is_set():
            return False
        now = time.monotonic()
        later = [name for name, one in self._deferred.items() if one.until > now]
        todo = writer.compactions_to_do(policy or self._policy.compaction, later)
        if todo:
            self._start(_Job(writer, todo[0]))
        return bool(todo)

    def wait(self, stopping: threading.Event) -> None:
        """Wait for a compaction that is about to publish, or if too many commits are uncompacted.

        This waits for at most ``max_wait_s``, and does not wait for a compaction that has failed.
        Call it once after each batch, holding the mutex.

        Args:
            stopping: set when the run should stop; this ends the wait.
        """
        job = self._job
        if job is None or job.failures:
            return
        behind = delta_commits_uncompacted(job.writer.table.timeline)
        if job.step is not _Step.PUBLISH and behind <= self._policy.backlog_commits:
            return
        started = now = time.monotonic()
        ends_at = started + self._policy.max_wait_s
        while not (is_over := self._is_over(job)) and not stopping.is_set() and now < ends_at:
            self.mutex.wait(min(_POLL_S, ends_at - now))
            now = time.monotonic()
        state = "ended" if is_over else "still running"
        text = f"{job.instant}: {state}, {counted(behind, 'commit')} behind"
        waited_s = time.monotonic() - started
        self._listener(ServiceCompleted("compaction_wait", text, waited_s, job.table))

    def end(self, within_s: float) -> bool:
        """Cancel the current compaction, and start no more; the next run executes its plan.

        Returns:
            Whether the thread is still running after ``within_s`` seconds.
        """
        self._ending.set()
        if self._thread is None or not self._thread.is_alive():
            return False
        self._runner.cancel()
        self._thread.join(within_s)
        return self._thread.is_alive()

    def _is_over(self, job: _Job) -> bool:
        return self._job is not job or job.failures > 0

    def _start(self, job: _Job) -> None:
        self._job = job
        name = f"compaction-{job.instant}"
        self._thread = threading.Thread(target=self._run, args=(job,), name=name, daemon=True)
        self._thread.start()

    def _run(self, job: _Job) -> None:
        """Attempt the plan until it is published, deferred or given up, or the run stops."""
        try:
            while not self._ending.is_set():
                try:
                    self._attempt(job)
                    return
                except Cancelled:
                    return
                except Exception as error:
                    self._handle_failure(job, error)
                    if isinstance(error, WriteConflict) and job.is_shared:
                        self._defer(job)
                        return
        finally:
            with self.mutex:
                self._job = None
                self.mutex.notify_all()

    def _attempt(self, job: _Job) -> None:
        job.reach(_Step.BEGIN)
        with self.mutex:
            if self._ending.is_set():
                return
            started = time.monotonic()
            compaction = job.writer.begin_compaction(job.planned, self._policy.max_wait_s)
            if compaction is None:
                self._defer(job)
                return
        try:
            operations = compaction.execution.plan.operations
            log_bytes = sum(one.log_bytes for one in operations)
            self._listener(CompactionStarted(job.instant, len(operations), log_bytes, job.table))
            job.reach(_Step.REWRITE)
            stats = compaction.rewrite(self._runner)
            job.reach(_Step.PUBLISH)
            while not self._try_publish(job, compaction, stats, started):
                pass
        except ContentMismatch:
            with self.mutex:
                compaction.undo()
            raise
        finally:
            compaction.stop_heartbeat()

    def _try_publish(
        self, job: _Job, compaction: Compaction, stats: Sequence[WriteStat], started: float
    ) -> bool:
        """Publish, unless the run stops; return False if another writer held the lock too long.

        The rewritten files are kept for the next attempt.
        """
        try:
            with self.mutex:
                if self._ending.is_set():
                    return True
                job.writer.publish_compaction(compaction, stats)
                self._deferred.pop(job.instant, None)
                seconds = time.monotonic() - started
                self._listener(CompactionCompleted.of(job.instant, stats, seconds, job.table))
        except LockTimeout as error:
            self._handle_failure(job, error)
            return False
        return True

    def _defer(self, job: _Job) -> None:
        """Defer the plan and retry it later. Until then, the other writer may finish or die."""
        with self.mutex:
            before = self._deferred.get(job.instant)
            times = before.times + 1 if before else 1
            pause_s = pause_after(times, _DEFER_S, _MAX_DEFER_S)
            until = time.monotonic() + pause_s
            self._deferred[job.instant] = _Deferred(job.writer, times, until)

    def _report_resolved(self, writer: TableWriter) -> None:
        """Report deferred plans that are no longer pending, as of the table's last refresh.

        The plan that is executed now is skipped, because its own thread reports how it ends.
        """
        pending = {one.requested_at for one in writer.table.timeline.pending(Action.COMPACTION)}
        attempted = {self._job.instant} if self._job else set()
        of_table = {name for name, one in self._deferred.items() if one.writer is writer}
        for name in sorted(of_table - pending - attempted):
            del self._deferred[name]
            self._listener(CompactionResolved(name, writer.table.location.url))

    def _handle_failure(self, job: _Job, error: Exception) -> None:
        """Report a failure; then pause, or give up if the failures have lasted too long."""
        policy, now = self._policy, time.monotonic()
        job.failing_since = job.failing_since if job.failures else now
        job.failures, job.failed_at = job.failures + 1, job.step
        failing_s = now - job.failing_since
        pause_s = pause_after(job.failures, policy.backoff_s, policy.max_backoff_s)
        name = type(error).__name__
        self._listener(
            CompactionFailed(
                job.instant, str(error), job.failures, failing_s, pause_s, name, job.table
            )
        )
        if policy.give_up_after_s and failing_s > policy.give_up_after_s:
            self._given_up = CompactionGivenUp(job.instant, failing_s, f"{name}: {error}")
            self._ending.set()
        with self.mutex:
            self.mutex.notify_all()
        self._ending.wait(pause_s)
