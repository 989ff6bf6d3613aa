"""Compaction beside the batches: a thread rewrites file slices while rows go on coming in.

What changes the table is done in turns. A batch has the turn from its first look at the table to
its last service; the compaction has it for a moment to begin, and for a moment to publish, always
between two batches. So a batch never sees the table change under it, and what both know of the
table — view, timeline, metadata table — has one owner at a time. Between begin and publish, where
all the time goes, neither waits for the other: batches write their logs to the slices that the plan
opened.

One plan is at work at a time, whatever the number of tables, so memory is that of one compaction.
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
from lakemark.write.new_file import ContentMismatch
from streamer.backoff import pause_after
from streamer.events import (
    CompactionBegun,
    CompactionDone,
    CompactionFailed,
    CompactionSettled,
    Listener,
    ServiceDone,
)

#: How long a plan is passed over that another writer was found at work on: the first time, and at
#: most. A conflict is only found once all was rewritten.
_LEFT_TO_OTHERS_S = 60.0
_LONGEST_LEFT_S = 3600.0

#: How often a batch that waits looks whether the run is to end.
_LOOK_S = 0.1


class CompactionGivenUp(Permanent):
    """A compaction beside the batches has failed for longer than the pipeline allows."""

    def __init__(self, instant: str, failing_s: float, error: str) -> None:
        super().__init__(
            f"compaction {instant} has failed for {failing_s:.0f} s, and the table's logs only "
            f"grow; the last failure: {error}; mend it and start again (the plan stands), or allow "
            "more with compaction.give_up_after_s"
        )
        self.instant, self.failing_s = instant, failing_s


@dataclass(frozen=True, slots=True)
class BesidePolicy:
    """How compaction beside the batches goes with them.

    Attributes:
        compaction: when one is planned.
        wait_budget_s: how long a batch waits for it at most; and so, for how long it waits for the
            table's lock when it has the turn. It tries again later.
        backlog_commits: with more delta commits than so many that are not compacted, batches wait.
        give_up_after_s: failing for so long ends the run; 0: never.
        backoff_s: seconds after the first failure; doubled after each further one.
        max_backoff_s: the longest pause.
    """

    compaction: CompactionPolicy
    wait_budget_s: float = 10.0
    backlog_commits: int = 20
    give_up_after_s: float = 3600.0
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0


class _Step(IntEnum):
    """What an attempt at a plan is at."""

    BEGIN = 0
    REWRITE = 1
    PUBLISH = 2


@dataclass
class _Job:
    """One plan at work.

    Attributes:
        writer: of the table.
        planned: the plan.
        step: what the attempt is at; published next, it waits for its turn.
        failures: in a row, at the same step or before it.
        failed_at: the step of the last of them.
        failing_since: when the first of them was, in seconds of ``time.monotonic``.
    """

    writer: TableWriter
    planned: Planned
    step: _Step = _Step.BEGIN
    failures: int = 0
    failed_at: _Step = _Step.BEGIN
    failing_since: float = 0.0

    def reach(self, step: _Step) -> None:
        """Go on to a step. What failed before it has passed now, and is forgotten."""
        self.step = step
        if self.failed_at < step:
            self.failures = 0

    @property
    def is_shared(self) -> bool:
        """Whether others write the table, whose work may stand against the plan."""
        return self.writer.table.context.sharing is not None

    @property
    def instant(self) -> str:
        """Requested time of the plan."""
        return self.planned[0].requested_at


@dataclass(frozen=True, slots=True)
class _PassedOver:
    """A plan that is left to others.

    Attributes:
        writer: of its table.
        times: how often it was.
        until: when it is tried again, in seconds of ``time.monotonic``.
    """

    writer: TableWriter
    times: int
    until: float


class AsyncCompactor:
    """Compacts the tables of a pipeline, one plan after the other, in a thread of its own.

    Attributes:
        turn: held by whoever changes or looks into the tables; may be taken again by who has it.

    Args:
        policy: how it goes with the batches.
        runner: where slices are rewritten; nobody else's.
        listener: is told of what was begun, done, and failed; from the thread as well.
    """

    def __init__(self, policy: BesidePolicy, runner: CancellableRunner, listener: Listener) -> None:
        self.turn = threading.Condition()
        self._policy, self._runner, self._listener = policy, runner, listener
        self._ending = threading.Event()
        self._job: _Job | None = None
        self._thread: threading.Thread | None = None
        self._given_up: CompactionGivenUp | None = None
        self._passed_over: dict[str, _PassedOver] = {}

    @property
    def is_progressing(self) -> bool:
        """Whether a plan is at work that has not failed."""
        job = self._job
        return job is not None and not job.failures

    def check(self) -> None:
        """Pass unless compaction has failed for too long.

        Raises:
            CompactionGivenUp: it has.
        """
        if self._given_up is not None:
            raise self._given_up

    def advance(self, writer: TableWriter) -> bool:
        """See to it that what is due for a table is at work; in turn, after a batch.

        Returns:
            Whether one of its plans has the place that all tables share from now on.

        Raises:
            CompactionGivenUp: see ``check``.
        """
        self.check()
        self._note_settled(writer)
        if self._job is not None or self._ending.is_set():
            return False
        now = time.monotonic()
        later = [name for name, one in self._passed_over.items() if one.until > now]
        todo = writer.compactions_to_do(self._policy.compaction, later)
        if todo:
            self._start(_Job(writer, todo[0]))
        return bool(todo)

    def wait(self, stopping: threading.Event) -> None:
        """Give the turn to what only has to be published; behind too far, wait for its end.

        No longer than the budget, and not for what has failed. In turn, once after a batch.

        Args:
            stopping: set when the run is to end, which this must not hold up.
        """
        job = self._job
        if job is None or job.failures:
            return
        behind = delta_commits_uncompacted(job.writer.table.timeline)
        if job.step is not _Step.PUBLISH and behind <= self._policy.backlog_commits:
            return
        started = now = time.monotonic()
        ends_at = started + self._policy.wait_budget_s
        while not (is_over := self._is_over(job)) and not stopping.is_set() and now < ends_at:
            self.turn.wait(min(_LOOK_S, ends_at - now))
            now = time.monotonic()
        text = f"{job.instant}: {'over' if is_over else 'still at work'}, {behind:,} commits behind"
        self._listener(ServiceDone("compaction_wait", text, time.monotonic() - started))

    def end(self, within_s: float) -> bool:
        """Begin nothing more, and let go of what is at work; the next start takes it up.

        Returns:
            Whether the thread is still at it after so many seconds.
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
        """Until it is published, or others did it, or given up, or the run ends."""
        try:
            while not self._ending.is_set():
                try:
                    self._attempt(job)
                    return
                except Cancelled:
                    return
                except Exception as error:
                    self._note_failure(job, error)
                    if isinstance(error, WriteConflict) and job.is_shared:
                        self._leave_to_others(job)
                        return
        finally:
            with self.turn:
                self._job = None
                self.turn.notify_all()

    def _attempt(self, job: _Job) -> None:
        job.reach(_Step.BEGIN)
        with self.turn:
            if self._ending.is_set():
                return
            started = time.monotonic()
            compaction = job.writer.begin_compaction(job.planned, self._policy.wait_budget_s)
            if compaction is None:
                self._leave_to_others(job)
                return
        try:
            operations = compaction.execution.plan.operations
            log_bytes = sum(one.log_bytes for one in operations)
            self._listener(CompactionBegun(job.instant, len(operations), log_bytes))
            job.reach(_Step.REWRITE)
            stats = compaction.rewrite(self._runner)
            job.reach(_Step.PUBLISH)
            while not self._is_settled(job, compaction, stats, started):
                pass
        except ContentMismatch:
            with self.turn:
                compaction.undo()
            raise
        finally:
            compaction.leave()

    def _is_settled(
        self, job: _Job, compaction: Compaction, stats: Sequence[WriteStat], started: float
    ) -> bool:
        """Publish, unless the run ends; False when the lock was kept: what is written stands."""
        try:
            with self.turn:
                if self._ending.is_set():
                    return True
                job.writer.publish_compaction(compaction, stats)
                self._passed_over.pop(job.instant, None)
                seconds = time.monotonic() - started
                self._listener(CompactionDone.of(job.instant, stats, seconds))
        except LockTimeout as error:
            self._note_failure(job, error)
            return False
        return True

    def _leave_to_others(self, job: _Job) -> None:
        """Pass the plan over for a while: what stands against it may end, or its writer die."""
        with self.turn:
            before = self._passed_over.get(job.instant)
            times = before.times + 1 if before else 1
            pause_s = pause_after(times, _LEFT_TO_OTHERS_S, _LONGEST_LEFT_S)
            until = time.monotonic() + pause_s
            self._passed_over[job.instant] = _PassedOver(job.writer, times, until)

    def _note_settled(self, writer: TableWriter) -> None:
        """Tell of plans that were left to others and have gone, as of the table's last refresh.

        Not of the one that is tried again now, of whose end its attempt will tell.
        """
        pending = {one.requested_at for one in writer.table.timeline.pending(Action.COMPACTION)}
        at_work = {self._job.instant} if self._job else set()
        of_table = {name for name, one in self._passed_over.items() if one.writer is writer}
        for name in sorted(of_table - pending - at_work):
            del self._passed_over[name]
            self._listener(CompactionSettled(name))

    def _note_failure(self, job: _Job, error: Exception) -> None:
        """Tell of it, and pause; or give up."""
        policy, now = self._policy, time.monotonic()
        job.failing_since = job.failing_since if job.failures else now
        job.failures, job.failed_at = job.failures + 1, job.step
        failing_s = now - job.failing_since
        pause_s = pause_after(job.failures, policy.backoff_s, policy.max_backoff_s)
        name = type(error).__name__
        self._listener(
            CompactionFailed(job.instant, str(error), job.failures, failing_s, pause_s, name)
        )
        if policy.give_up_after_s and failing_s > policy.give_up_after_s:
            self._given_up = CompactionGivenUp(job.instant, failing_s, f"{name}: {error}")
            self._ending.set()
        with self.turn:
            self.turn.notify_all()
        self._ending.wait(pause_s)
