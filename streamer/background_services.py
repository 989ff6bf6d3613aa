"""Table services in the background: a thread rewrites files while batches continue.

The services are compaction, resizes of buckets, and clustering. A mutex protects the open tables. A
batch holds the mutex from its first read of the table until its last table service has ended. The
thread holds the mutex twice for each plan, always between two batches: briefly to begin, and
briefly to publish. So it does not change the table during a batch, and only one thread at a time
uses the view, the timeline and the metadata table, which both share in memory. Rewriting takes most
of the time, and runs without the mutex.

All tables and services of the pipeline together execute one plan at a time, which limits the memory
to that of one plan. The services take turns.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from lakemark.errors import LockTimeout, Permanent, WriteConflict
from lakemark.execution.runner import CancellableRunner, Cancelled, Runner
from lakemark.model.commit_metadata import WriteStat
from lakemark.operations.table_writer import TableWriter
from streamer.backoff import pause_after
from streamer.events import (
    BackgroundServiceFailed,
    BackgroundServiceResolved,
    BackgroundServiceStarted,
    CompactionCompleted,
    Listener,
    ServiceCompleted,
)
from streamer.service_guard import ServiceFailures

#: A plan that another writer executes is deferred for these seconds: the first pause, and the
#: longest pause. The pauses are long, because a conflict is found only after all files were
#: rewritten.
_DEFER_S = 60.0
_MAX_DEFER_S = 3600.0

#: How often a waiting batch checks whether the run should stop.
_POLL_S = 0.1

_log = logging.getLogger(__name__)


class ServiceGivenUp(Permanent):
    """A table service in the background has failed for longer than the pipeline allows."""

    def __init__(self, service: str, instant: str, failing_s: float, error: str) -> None:
        super().__init__(
            f"{service} {instant} has failed for {failing_s:.0f} s; the last failure: {error}; "
            "correct its cause and start again to execute the same plan, or raise "
            "compaction.give_up_after_s"
        )
        self.service, self.instant, self.failing_s = service, instant, failing_s


class YieldedToBatch(WriteConflict):
    """A plan was removed, because a batch that writes to its file groups waited for too long."""

    def __init__(self, instant: str, waited_s: float) -> None:
        super().__init__(
            f"{instant} was removed, because a batch that writes to its file groups had waited for "
            f"it for {waited_s:g} s; another plan is made later"
        )


@dataclass(frozen=True, slots=True)
class BackgroundPolicy:
    """How the thread waits and retries, and how long batches wait for it.

    Attributes:
        max_wait_s: the longest time that a batch waits for a plan. A plan, too, waits no longer
            than this for the table's lock; then it is retried.
        give_up_after_s: the run fails if a plan has failed for this number of seconds; 0: the run
            never fails for this reason.
        backoff_s: the pause after the first failure, in seconds; it doubles with each failure.
        max_backoff_s: the longest pause, in seconds.
    """

    max_wait_s: float = 10.0
    give_up_after_s: float = 3600.0
    backoff_s: float = 1.0
    max_backoff_s: float = 60.0


class Attempt(Protocol):
    """An attempt to execute a plan. The thread holds the mutex, except during ``rewrite``."""

    @property
    def file_groups(self) -> int:
        """The number of file groups to rewrite."""
        ...

    @property
    def num_bytes(self) -> int:
        """The bytes of the files that make the plan worth while, such as logs to merge."""
        ...

    def rewrite(self, runner: Runner) -> Sequence[WriteStat]:
        """Write the new files, which no reader sees before ``publish``. No mutex is held."""
        ...

    def publish(self, stats: Sequence[WriteStat]) -> None:
        """Publish the new files.

        Raises:
            LockTimeout: another writer held the lock for too long; call this method again.
        """
        ...

    def completed(
        self, stats: Sequence[WriteStat], seconds: float
    ) -> CompactionCompleted | ServiceCompleted:
        """Return the event of the published plan."""
        ...

    def clean_up(self, error: Exception) -> None:
        """Undo what a failed attempt must not leave behind."""
        ...

    def remove(self) -> bool:
        """Remove the plan and the files of this attempt, so that batches can write.

        It is called again after ``rewrite`` has ended, to delete the files written meanwhile.

        Returns:
            Whether the plan is removed; False if the plan must be executed.
        """
        ...

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat, so that other writers may execute the plan."""
        ...


@dataclass(frozen=True, slots=True)
class Work:
    """A plan to execute.

    Attributes:
        instant: the requested time of the plan.
        begin: begins an attempt, and waits for the table's lock for no more than the given seconds.
            The result is None if another writer executes, has completed or has removed the plan.
        begun: the first attempt, if it began together with the request of the plan.
    """

    instant: str
    begin: Callable[[float], Attempt | None]
    begun: Attempt | None = None


class BackgroundService(ABC):
    """A table service of one table. All methods are called holding the mutex.

    Attributes:
        name: the name of the service in events and metrics.
        writer: the writer of the table, which also writes the batches.
        retries_plans: whether a failed plan is executed again. Otherwise ``Attempt.clean_up``
            removes it, and ``find_work`` is called again after a pause.
    """

    name: str
    retries_plans = True

    def __init__(self, writer: TableWriter) -> None:
        self.writer = writer

    @property
    def table(self) -> str:
        """URL of the table."""
        return self.writer.table.location.url

    @abstractmethod
    def find_work(self, skipped: Collection[str], lock_wait_s: float) -> Work | None:
        """Return a pending plan; if there is none, request one that is due.

        Args:
            skipped: the requested times of plans to ignore.
            lock_wait_s: the time in seconds to wait for the table's lock.
        """

    @abstractmethod
    def pending(self) -> Collection[str]:
        """Return the requested times of the pending plans, as of the table's last refresh."""

    def backlog(self) -> str:
        """Return why batches must wait for the running plan; "" if they need not."""
        return ""


class _Step(IntEnum):
    """The steps of an attempt to execute a plan."""

    BEGIN = 0
    REWRITE = 1
    PUBLISH = 2


@dataclass
class _Job:
    """The plan that is being executed.

    Attributes:
        service: the service of the plan.
        work: the plan.
        runner: rewrites the files.
        attempt: the current attempt; None before it begins.
        step: the step of the current attempt. At ``PUBLISH``, the attempt waits for the mutex.
        failures: the number of consecutive failures at the same step or an earlier one.
        failed_at: the step of the last failure.
        failing_since: the time of the first failure, in seconds of ``time.monotonic``.
        started: when the current attempt began, on the same clock.
        is_removed: whether the plan was removed, because a batch conflicted.
    """

    service: BackgroundService
    work: Work
    runner: CancellableRunner
    attempt: Attempt | None = None
    step: _Step = _Step.BEGIN
    failures: int = 0
    failed_at: _Step = _Step.BEGIN
    failing_since: float = 0.0
    started: float = 0.0
    is_removed: bool = False

    def __post_init__(self) -> None:
        self.attempt = self.work.begun

    def reach(self, step: _Step) -> None:
        """Continue with a step, and forget the failures of the steps before it."""
        self.step = step
        if self.failed_at < step:
            self.failures = 0

    @property
    def is_shared(self) -> bool:
        """Whether other writers share the table; their commits may conflict with the plan."""
        return self.service.writer.table.context.multi_writer is not None

    @property
    def instant(self) -> str:
        """Requested time of the plan."""
        return self.work.instant


@dataclass(frozen=True, slots=True)
class _Deferred:
    """A plan that another writer executes, and that is retried later.

    Attributes:
        service: the service of the plan.
        times: how often the plan was deferred.
        until: when the plan is retried, in seconds of ``time.monotonic``.
    """

    service: BackgroundService
    times: int
    until: float


@dataclass
class _Pause:
    """The pause of a service that does not retry its plans, until a time of ``time.monotonic``."""

    failures: ServiceFailures
    until: float = 0.0


class BackgroundServices:
    """Executes the plans of a pipeline's tables in a separate thread, one after the other.

    Attributes:
        mutex: the lock that a thread holds while it reads or changes the open tables; reentrant.

    Args:
        services: the services of the tables, in the order of their first turns.
        policy: how the thread waits and retries.
        create_runner: creates a runner, which rewrites the files of one plan.
        listener: receives the events; some of them come from the thread.
    """

    def __init__(
        self,
        services: Iterable[BackgroundService],
        policy: BackgroundPolicy,
        create_runner: Callable[[], CancellableRunner],
        listener: Listener,
    ) -> None:
        self.mutex = threading.Condition()
        self._services = list(services)
        self._policy, self._create_runner, self._listener = policy, create_runner, listener
        self._ending = threading.Event()
        self._job: _Job | None = None
        self._last_instant = ""
        self._thread: threading.Thread | None = None
        self._given_up: ServiceGivenUp | None = None
        self._deferred: dict[str, _Deferred] = {}
        self._pauses = {
            one: _Pause(ServiceFailures(one.name, one.table, listener)) for one in self._services
        }

    @property
    def in_progress(self) -> str:
        """The service whose plan is being executed and has not failed, in words; else ""."""
        job = self._job
        return "" if job is None or job.failures else job.service.name.replace("_", " ")

    @property
    def instant(self) -> str:
        """The requested time of the plan that is being executed; "" if there is none."""
        job = self._job
        return "" if job is None else job.instant

    def handles(self, service: str, writer: TableWriter) -> bool:
        """Return whether a service of a table runs in the background."""
        return any(one.name == service and one.writer is writer for one in self._services)

    def executes(self, instant: str) -> bool:
        """Return whether a plan is being executed here, or was just executed."""
        with self.mutex:
            return instant == self.instant or self._is_last(instant)

    def check(self) -> None:
        """Raise if a plan has failed for too long.

        Raises:
            ServiceGivenUp: a plan has failed for ``give_up_after_s``.
        """
        if self._given_up is not None:
            raise self._given_up

    def start_next(self) -> bool:
        """Start the next due service. Call this after a batch, holding the mutex.

        Returns:
            Whether a service was started. The next service is then due first the next time.

        Raises:
            ServiceGivenUp: see ``check``.
        """
        self.check()
        self._report_resolved()
        if self._job is not None or self._ending.is_set():
            return False
        for service in tuple(self._services):
            work = self._find_work(service)
            if work is not None:
                self._services.remove(service)  # then the other services come first next time
                self._services.append(service)
                self._start(_Job(service, work, self._create_runner()))
                return True
        return False

    def wait(self, stopping: threading.Event) -> None:
        """Wait for a plan that is about to publish, or if its service is far behind.

        This waits for at most ``max_wait_s``, and does not wait for a plan that has failed. Call it
        once after each batch, holding the mutex.

        Args:
            stopping: set when the run should stop; this ends the wait.
        """
        job = self._job
        if job is None or job.failures:
            return
        behind = job.service.backlog()
        if job.step is _Step.PUBLISH or behind:
            self._wait_for(job, stopping, behind)

    def make_way(self, instant: str, stopping: threading.Event) -> bool:
        """Wait for a plan with which a batch conflicts; the batch can be written again after that.

        A plan of this pipeline that takes longer than ``max_wait_s`` is removed, if its service can
        make it again later. Call this without the mutex.

        Args:
            instant: the requested time of the plan.
            stopping: set when the run should stop; this ends the wait.

        Returns:
            Whether the plan was executed here, and is no longer in the way.
        """
        with self.mutex:
            job = self._job
            if job is None or job.instant != instant:
                return self._is_last(instant)
            self._wait_for(job, stopping, "a batch writes to its file groups")
            if self._job is job and not stopping.is_set():
                self._remove(job)
            return job.is_removed or self._is_last(instant)

    def end(self, within_s: float) -> bool:
        """Cancel the current plan, and start no more; the next run executes the plan.

        Returns:
            Whether the thread is still running after ``within_s`` seconds.
        """
        self._ending.set()
        if self._thread is None or not self._thread.is_alive():
            return False
        job = self._job
        if job is not None:
            job.runner.cancel()
        self._thread.join(within_s)
        return self._thread.is_alive()

    def _find_work(self, service: BackgroundService) -> Work | None:
        now = time.monotonic()
        if now < self._pauses[service].until:
            return None
        later = [name for name, one in self._deferred.items() if one.until > now]
        try:
            return service.find_work(later, self._policy.max_wait_s)
        except LockTimeout as error:  # no reason to fail a batch; the next one looks again
            _log.warning("no plan of %s was requested: %s", service.name, error)
            return None

    def _wait_for(self, job: _Job, stopping: threading.Event, reason: str) -> None:
        started = now = time.monotonic()
        ends_at = started + self._policy.max_wait_s
        while not (is_over := self._is_over(job)) and not stopping.is_set() and now < ends_at:
            self.mutex.wait(min(_POLL_S, ends_at - now))
            now = time.monotonic()
        state = "ended" if is_over else "still running"
        text = f"{job.instant}: {state}" + (f", {reason}" if reason else "")
        waited_s, name = time.monotonic() - started, f"{job.service.name}_wait"
        self._listener(ServiceCompleted(name, text, waited_s, job.service.table, job.instant))

    def _is_last(self, instant: str) -> bool:
        """Return whether a plan was executed last, and is no longer pending."""
        is_pending = any(instant in one.pending() for one in self._services)
        return instant == self._last_instant and not is_pending

    def _is_over(self, job: _Job) -> bool:
        return self._job is not job or job.failures > 0

    def _start(self, job: _Job) -> None:
        self._job = job
        name = f"{job.service.name}-{job.instant}"
        self._thread = threading.Thread(target=self._run, args=(job,), name=name, daemon=True)
        self._thread.start()

    def _run(self, job: _Job) -> None:
        """Attempt the plan until it is published, removed, deferred or given up, or the run stops.

        A service that does not retry its plans makes only one attempt.
        """
        try:
            while not self._ending.is_set():
                try:
                    self._attempt(job)
                    return
                except Cancelled:
                    return
                except Exception as error:
                    if job.is_removed:
                        return
                    if not job.service.retries_plans:
                        self._pause(job, error)
                        return
                    self._handle_failure(job, error)
                    if isinstance(error, WriteConflict) and job.is_shared:
                        self._defer(job)
                        return
        finally:
            with self.mutex:
                self._job, self._last_instant = None, job.instant
                self.mutex.notify_all()

    def _attempt(self, job: _Job) -> None:
        job.reach(_Step.BEGIN)
        attempt = self._begin(job)
        if attempt is None:
            return
        try:
            service = job.service
            self._listener(
                BackgroundServiceStarted(
                    service.name,
                    job.instant,
                    attempt.file_groups,
                    attempt.num_bytes,
                    service.table,
                )
            )
            job.reach(_Step.REWRITE)
            stats = attempt.rewrite(job.runner)
            job.reach(_Step.PUBLISH)
            while not self._try_publish(job, attempt, stats):
                pass
        except Exception as error:
            self._clean_up(job, attempt, error)
            raise
        finally:
            attempt.stop_heartbeat()
            job.attempt = None

    def _begin(self, job: _Job) -> Attempt | None:
        """Begin an attempt, unless it has begun; None if the run stops, or the plan is deferred."""
        if job.attempt is not None:  # it began with the request
            job.started = time.monotonic()
            return job.attempt
        with self.mutex:
            if self._ending.is_set():
                return None
            job.started = time.monotonic()
            job.attempt = job.work.begin(self._policy.max_wait_s)
            if job.attempt is None:
                self._defer(job)
            return job.attempt

    def _try_publish(self, job: _Job, attempt: Attempt, stats: Sequence[WriteStat]) -> bool:
        """Publish, unless the run stops; return False if another writer held the lock too long.

        The rewritten files are kept for the next attempt.
        """
        try:
            with self.mutex:
                if job.is_removed:
                    raise Cancelled
                if self._ending.is_set():
                    return True
                attempt.publish(stats)
                self._deferred.pop(job.instant, None)
                self._pauses[job.service].failures.forget()
                self._listener(attempt.completed(stats, time.monotonic() - job.started))
        except LockTimeout as error:
            self._handle_failure(job, error)
            return False
        return True

    def _clean_up(self, job: _Job, attempt: Attempt, error: Exception) -> None:
        """Undo what the attempt left behind; if the plan was removed, delete its late files."""
        with self.mutex:
            if not job.is_removed:
                if not isinstance(error, Cancelled):
                    attempt.clean_up(error)
                return
            try:
                attempt.remove()
            except Exception as late:
                _log.warning("files that no reader reads remain of %s: %s", job.instant, late)

    def _remove(self, job: _Job) -> None:
        """Remove a plan for which a batch waits, if its files are being rewritten."""
        attempt = job.attempt
        if attempt is None or job.step is not _Step.REWRITE:
            return
        try:
            job.is_removed = attempt.remove()
        except Exception as error:  # the batch waits again
            _log.warning("%s was not removed: %s", job.instant, error)
        if job.is_removed:
            job.runner.cancel()
            self._pause(job, YieldedToBatch(job.instant, self._policy.max_wait_s))

    def _pause(self, job: _Job, error: Exception) -> None:
        """Report that a plan was not executed, and let its service pause."""
        with self.mutex:
            job.failures += 1
            pause = self._pauses[job.service]
            pause.until = time.monotonic() + pause.failures.report(error)
            self.mutex.notify_all()

    def _defer(self, job: _Job) -> None:
        """Defer the plan and retry it later. Until then, the other writer may finish or die."""
        with self.mutex:
            before = self._deferred.get(job.instant)
            times = before.times + 1 if before else 1
            pause_s = pause_after(times, _DEFER_S, _MAX_DEFER_S)
            until = time.monotonic() + pause_s
            self._deferred[job.instant] = _Deferred(job.service, times, until)

    def _report_resolved(self) -> None:
        """Report deferred plans that are no longer pending, as of the tables' last refresh.

        The plan that is executed now is skipped, because its own thread reports how it ends.
        """
        if not self._deferred:
            return
        pending = {name for one in self._services for name in one.pending()}
        for name in sorted(self._deferred.keys() - pending - {self.instant}):
            service = self._deferred.pop(name).service
            self._listener(BackgroundServiceResolved(service.name, name, service.table))

    def _handle_failure(self, job: _Job, error: Exception) -> None:
        """Report a failure; then pause, or give up if the failures have lasted too long."""
        policy, now = self._policy, time.monotonic()
        job.failing_since = job.failing_since if job.failures else now
        job.failures, job.failed_at = job.failures + 1, job.step
        failing_s = now - job.failing_since
        pause_s = pause_after(job.failures, policy.backoff_s, policy.max_backoff_s)
        name, service = type(error).__name__, job.service
        self._listener(
            BackgroundServiceFailed(
                service.name,
                job.instant,
                str(error),
                job.failures,
                failing_s,
                pause_s,
                name,
                service.table,
            )
        )
        if policy.give_up_after_s and failing_s > policy.give_up_after_s:
            text = f"{name}: {error}"
            self._given_up = ServiceGivenUp(service.name, job.instant, failing_s, text)
            self._ending.set()
        with self.mutex:
            self.mutex.notify_all()
        self._ending.wait(pause_s)
