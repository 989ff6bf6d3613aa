"""Prepares table services in a thread while batches are written, and publishes them between two.

The thread writes files to a folder on local disk. It does not change the table, and holds no lock.
Between two batches, the prepared files are published. If batches have changed the table so that
nothing of them can be used, they are removed, which is an event. After some such preparations, the
service runs inline, while the next batch waits.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeAlias

from lakemark.errors import Unsupported
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.table_writer import TableWriter
from lakemark.services.clustering import PlanOutdated
from lakemark.storage.scratch import scratch_folder
from streamer.events import Listener, PreparationOutdated, ServiceCompleted
from streamer.service_guard import ServiceFailures

#: After so many preparations in a row of which a part was not published, the service runs inline.
_MAX_INCOMPLETE = 3

#: How often a publication is retried while commits of other writers are pending.
_MAX_REFUSALS = 10

#: Pipelines that share this process prepare one after the other, because each needs memory.
_SLOT = threading.Semaphore(1)

Done: TypeAlias = list[tuple[Instant, CommitMetadata]]


class PreparedWork(Protocol):
    """What a thread prepares for one table, in one or more rounds."""

    @property
    def left_out(self) -> str:
        """What the last publication left out, and why; "" if everything was published."""
        ...

    def run(self, folder: Path, is_cancelled: Callable[[], bool]) -> None:
        """Prepare the current round; called by the thread, with an empty folder.

        Raises:
            PlanOutdated: nothing of the preparation can be published.
            HudiError: the round failed.
        """
        ...

    def find_outdated(self) -> PlanOutdated | None:
        """Return why nothing of the preparation can be published any more; None if it can."""
        ...

    def next_round(self) -> Callable[[], None] | None:
        """Return what begins another round, which ``run`` then prepares, before the publication.

        Returns:
            None if the thread should prepare no more.
        """
        ...

    def publish(self) -> Done:
        """Publish what was prepared; nothing if it conflicts, or while a write is pending.

        Raises:
            HudiError: the publication failed.
        """
        ...

    def describe(self) -> str:
        """Return what was prepared, in a few words."""
        ...


class BackgroundPreparation:
    """Prepares a service of the tables of a pipeline, one table at a time.

    Args:
        name: the name of the preparation in events and metrics.
        begin: plans the service of a table if it is due. It raises ``Unsupported`` if the table
            only allows the service inline.
        run_inline: runs the service of a table if it is due, while the next batch waits.
        listener: receives the events.
        max_useless: after so many preparations in a row of which nothing was published, the service
            runs inline.
        monotonic_s: returns seconds of a clock that is never set back.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[TableWriter], PreparedWork | None],
        run_inline: Callable[[TableWriter], Done],
        listener: Listener,
        *,
        max_useless: int,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._begin_work, self._run_inline = name, begin, run_inline
        self._listener, self._max_useless = listener, max_useless
        self._monotonic_s = monotonic_s
        self._job: _Job | None = None
        self._discarded: list[_Job] = []
        self._wasted: Counter[str] = Counter()
        self._inline_next: set[str] = set()
        self._failures: dict[str, ServiceFailures] = {}
        self._paused_until: dict[str, float] = {}

    def run(self, writer: TableWriter) -> Done:
        """Begin a preparation that is due, or publish what was prepared; return what was published.

        Call this between two batches.

        Args:
            writer: the writer of the table, which also writes the batches.
        """
        self._discarded = [one for one in self._discarded if not one.discard(0.0)]
        if self._job is None:
            return self._begin(writer)
        if self._job.writer is writer and not self._job.is_running:
            return self._finish(self._job)
        return []

    def is_preparing(self, writer: TableWriter) -> bool:
        """Return whether the table is being prepared, or is about to be published."""
        return self._job is not None and self._job.writer is writer

    def discard(self) -> None:
        """Discard the current preparation, if there is one."""
        if self._job is not None:
            self._discard(self._job)

    def end(self, within_s: float) -> bool:
        """Discard all preparations; return whether a thread is still running after the time."""
        self.discard()
        ends_at = time.monotonic() + within_s
        self._discarded = [
            one for one in self._discarded if not one.discard(max(0.0, ends_at - time.monotonic()))
        ]
        return bool(self._discarded)

    def _begin(self, writer: TableWriter) -> Done:
        """Begin to prepare a table, or run the service inline if it cannot be prepared."""
        url = writer.table.location.url
        if self._monotonic_s() < self._paused_until.get(url, 0.0):
            return []
        if url in self._inline_next:
            done = self._run_inline(writer)
            if done:  # otherwise, the service is not due yet
                self._inline_next.remove(url)
            return done
        try:
            work = self._begin_work(writer)
        except Unsupported:
            return self._run_inline(writer)
        if work is not None and _SLOT.acquire(blocking=False):
            self._job = _Job(self._name, writer, work)
        return []

    def _finish(self, job: _Job) -> Done:
        """Publish what was prepared, unless it is useless."""
        url = job.writer.table.location.url
        is_outdated = isinstance(job.error, PlanOutdated)
        outdated = job.error if is_outdated else job.work.find_outdated()
        if outdated is not None:
            self._discard(job)
            self._report_waste(url, str(outdated), self._max_useless)
        elif job.error is not None:
            failures = self._failures.setdefault(
                url, ServiceFailures(self._name, url, self._listener)
            )
            self._paused_until[url] = self._monotonic_s() + failures.report(job.error)
            self._discard(job)
        elif (begin := job.work.next_round()) is not None:
            job.begin_round(begin)
        else:
            return self._publish(job)
        return []

    def _publish(self, job: _Job) -> Done:
        """Publish what was prepared; if another writer's commit is pending, try again later."""
        url, is_waiting = job.writer.table.location.url, False
        outdated: PlanOutdated | None = None
        try:
            done = job.work.publish()
            if not done:
                job.refusals += 1
                outdated = job.work.find_outdated()
                is_waiting = outdated is None and job.refusals < _MAX_REFUSALS
        finally:
            if not is_waiting:
                self._discard(job)
        if done:
            self._failures.pop(url, None)
            self._listener(ServiceCompleted(self._name, job.work.describe(), job.seconds, url))
            if job.work.left_out:
                self._report_waste(url, job.work.left_out, _MAX_INCOMPLETE)
            else:
                self._wasted.pop(url, None)
        elif not is_waiting:
            reason = str(outdated or "commits of other writers were pending each time")
            self._report_waste(url, reason, self._max_useless)
        return done

    def _discard(self, job: _Job) -> None:
        self._job = None
        if not job.discard(0.0):
            self._discarded.append(job)

    def _report_waste(self, url: str, reason: str, limit: int) -> None:
        """Report that not everything was published; after some times, the service runs inline."""
        self._wasted[url] += 1
        is_inline_next = self._wasted[url] >= limit
        if is_inline_next:
            self._wasted.pop(url)
            self._inline_next.add(url)
        self._listener(PreparationOutdated(self._name, reason, is_inline_next, url))


class _Job:
    """A preparation, which a thread executes in rounds. Each round ends with a free ``_SLOT``.

    Attributes:
        writer: the writer of the table.
        work: what is prepared.
        error: why the preparation failed; None if it did not.
        seconds: how long all rounds took.
        refusals: how often the work could not be published.
    """

    def __init__(self, name: str, writer: TableWriter, work: PreparedWork) -> None:
        self.writer, self.work = writer, work
        self.error: Exception | None = None
        self.seconds = 0.0
        self.refusals = self._rounds = 0
        self._name = name.replace("_", "-")
        self._cancelled, self._opened = threading.Event(), ExitStack()
        self._folder: Path | None = None
        self._thread = self._start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def begin_round(self, begin: Callable[[], None]) -> None:
        """Begin another round, unless others prepare.

        Args:
            begin: what ``PreparedWork.next_round`` has returned.
        """
        if not _SLOT.acquire(blocking=False):
            return
        try:
            begin()
        except BaseException:
            _SLOT.release()
            raise
        self._rounds += 1
        self._thread = self._start()

    def discard(self, within_s: float) -> bool:
        """Stop the thread, and remove the files; return False if the thread is still running."""
        self._cancelled.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            return False  # the next process removes the files
        self._opened.close()
        return True

    def _start(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the process may start no further thread
            _SLOT.release()
            raise
        return thread

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self.work.run(self._new_folder(), self._cancelled.is_set)
        except Exception as error:
            self.error = error
        finally:
            self.seconds += time.monotonic() - started
            _SLOT.release()

    def _new_folder(self) -> Path:
        if self._folder is None:
            self._folder = self._opened.enter_context(scratch_folder(self._name))
        folder = self._folder / str(self._rounds)
        folder.mkdir()
        return folder
