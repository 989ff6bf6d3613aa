"""Splits and merges the buckets of a pipeline's tables, inline or prepared in the background.

Inline, the next batch waits while all rows of a bucket are encoded. In the background, a thread
encodes them while batches are written, then the changes that were logged meanwhile, and so on. The
next batch waits only while the prepared files are copied to the table, and the last changes are
encoded (``lakemark.operations.prepared_resize``).

The thread does not change the table, and holds no lock. If other changes of the bucket make the
preparation useless, the files are removed, and the bucket is prepared again; after some attempts,
it is resized inline. The compactions of this pipeline wait for a preparation of the table, because
they would rewrite its buckets.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

from lakemark.errors import Unsupported
from lakemark.execution.runner import Runner
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.operations.prepared_resize import (
    PreparedResize,
    ResizePreparation,
    ResizeRound,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.clustering import PlanOutdated
from lakemark.services.resize_plan import ResizePolicy
from lakemark.storage.scratch import scratch_folder
from streamer.events import Listener, ServiceCompleted
from streamer.service_guard import ServiceFailures
from streamer.wording import counted

#: The names of the service, and of its preparation, in events and metrics.
SERVICE, PREPARATION = "bucket_resizing", "bucket_preparation"

#: After this number of useless preparations, the buckets are resized inline.
_MAX_ATTEMPTS = 3

#: Changes of this size are not encoded in a round of their own. A round is also the last one if not
#: less has been logged during it than during the round before, and after this number of rounds.
_FEW_BYTES, _MAX_ROUNDS = 2 << 20, 12

#: How often a prepared resize is retried while commits of other writers are pending. Meanwhile, the
#: bucket gets more logs, and is not compacted.
_MAX_REFUSALS = 10

#: Pipelines that share this process prepare one after the other, because each needs memory.
_SLOT = threading.Semaphore(1)

_Done: TypeAlias = list[tuple[Instant, CommitMetadata]]


class BucketResizing:
    """Resizes the buckets of the tables of a pipeline, one table at a time.

    Args:
        policy: decides which buckets are resized; None only to execute pending resizes.
        in_background: whether buckets are prepared while batches are written.
        runner: executes the tasks of resizes that were not prepared.
        listener: receives the events.
        monotonic_s: returns seconds of a clock that is never set back.
    """

    def __init__(
        self,
        policy: ResizePolicy | None,
        runner: Runner,
        listener: Listener,
        *,
        in_background: bool,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._in_background = policy, in_background
        self._runner, self._listener = runner, listener
        self._job: _Job | None = None
        self._useless: Counter[str] = Counter()
        self._monotonic_s = monotonic_s
        self._failures: dict[str, ServiceFailures] = {}
        self._paused_until: dict[str, float] = {}

    def run(self, writer: TableWriter) -> None:
        """Resize buckets that are due, begin to prepare them, or publish what was prepared.

        Call this between two batches.

        Args:
            writer: the writer of the table, which also writes the batches.
        """
        if self._policy is None or not self._in_background:
            self._resize(writer, self._policy)
            return
        self._resize(writer, None)
        if self._job is None:
            self._begin(writer, self._policy)
        elif self._job.writer is writer and not self._job.is_running:
            self._finish(self._job)

    def is_preparing(self, writer: TableWriter) -> bool:
        """Return whether buckets of the table are being prepared, or are about to be published."""
        return self._job is not None and self._job.writer is writer

    def end(self, within_s: float) -> bool:
        """Discard a preparation; return whether its thread is still running after the time."""
        self._in_background = False
        if self._job is not None and self._job.discard(within_s):
            self._job = None
        return self._job is not None

    def _resize(self, writer: TableWriter, policy: ResizePolicy | None) -> None:
        started = time.monotonic()
        self._report(writer, writer.resize_if_due(policy, self._runner), started)

    def _begin(self, writer: TableWriter, policy: ResizePolicy) -> None:
        """Begin to prepare buckets, or resize them inline if they cannot be prepared."""
        url = writer.table.location.url
        if self._monotonic_s() < self._paused_until.get(url, 0.0):
            return
        try:
            is_useless = self._useless[url] >= _MAX_ATTEMPTS
            preparation = None if is_useless else writer.begin_resize_preparation(policy)
        except Unsupported:
            is_useless, preparation = True, None
        if is_useless:
            self._useless.pop(url, None)
            self._resize(writer, policy)
        elif preparation is not None and _SLOT.acquire(blocking=False):
            self._job = _Job(writer, preparation)

    def _finish(self, job: _Job) -> None:
        """Publish what was prepared, unless it is useless."""
        table, url = job.writer.table, job.writer.table.location.url
        is_outdated = isinstance(job.error, PlanOutdated)
        if is_outdated or not job.preparation.is_current(table):
            self._useless[url] += 1
            self._discard(job)
        elif job.error is not None:
            failures = self._failures.setdefault(
                url, ServiceFailures(PREPARATION, url, self._listener)
            )
            self._paused_until[url] = self._monotonic_s() + failures.report(job.error)
            self._discard(job)
        elif job.needs_round():
            job.begin_round()
        else:
            self._publish(job)

    def _publish(self, job: _Job) -> None:
        """Publish what was prepared; if another writer's commit is pending, try again later."""
        table, url = job.writer.table, job.writer.table.location.url
        started, is_waiting = time.monotonic(), False
        try:
            done = job.writer.publish_prepared_resize(job.result())
            job.refusals += not done
            is_current = not done and job.preparation.is_current(table)
            is_waiting = is_current and job.refusals < _MAX_REFUSALS
        finally:
            if not is_waiting:
                self._discard(job)
        if not done and not is_waiting:
            self._useless[url] += 1
        if done:
            self._useless.pop(url, None)
            self._failures.pop(url, None)
            text = counted(len(job.preparation.plan.groups), "bucket") + " prepared"
            self._listener(ServiceCompleted(PREPARATION, text, job.seconds, url))
        self._report(job.writer, done, started)

    def _discard(self, job: _Job) -> None:
        self._job = None
        job.discard(0.0)

    def _report(self, writer: TableWriter, done: _Done, started: float) -> None:
        for instant, metadata in done:
            seconds, text = time.monotonic() - started, _summary(instant, metadata)
            self._listener(ServiceCompleted(SERVICE, text, seconds, writer.table.location.url))


class _Job:
    """A preparation, which a thread executes in rounds. Each round ends with a free ``_SLOT``.

    Attributes:
        writer: the writer of the table.
        preparation: the preparation as of the end of the current round.
        error: why the preparation failed; None if it did not.
        seconds: how long all rounds took.
        refusals: how often the resize could not be published.
    """

    def __init__(self, writer: TableWriter, preparation: ResizePreparation) -> None:
        self.writer, self.preparation = writer, preparation
        self.error: Exception | None = None
        self.seconds = 0.0
        self.refusals = self._rounds = 0
        self._limit_bytes = math.inf
        self._prepared: PreparedResize | None = None
        self._cancelled, self._opened = threading.Event(), ExitStack()
        self._folder: Path | None = None
        self._thread = self._start(preparation)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> PreparedResize:
        """Return what the thread has prepared without an error."""
        assert self._prepared is not None
        return self._prepared

    def needs_round(self) -> bool:
        """Return whether the last changes should be encoded in the background, too."""
        added_bytes = self.preparation.added_log_bytes(self.writer.table)
        is_worth = _FEW_BYTES < added_bytes < self._limit_bytes
        return is_worth and self._rounds < _MAX_ROUNDS

    def begin_round(self) -> None:
        """Begin to encode the changes that were logged since the last round, unless others do."""
        table = self.writer.table
        limit_bytes = self.preparation.added_log_bytes(table)
        added = self.result().begin_round(table)
        if _SLOT.acquire(blocking=False):
            self._limit_bytes, self._rounds = limit_bytes, self._rounds + 1
            self.preparation = added.preparation
            self._thread = self._start(added)

    def discard(self, within_s: float) -> bool:
        """Stop the thread, and remove the files; return False if the thread is still running."""
        self._cancelled.set()
        self._thread.join(within_s)
        if self._thread.is_alive():
            return False  # the next process removes the files
        self._opened.close()
        return True

    def _start(self, work: ResizePreparation | ResizeRound) -> threading.Thread:
        name = "bucket-preparation"
        thread = threading.Thread(target=self._run, args=(work,), name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the process may start no further thread
            _SLOT.release()
            raise
        return thread

    def _run(self, work: ResizePreparation | ResizeRound) -> None:
        started = time.monotonic()
        try:
            self._prepared = work.run(self._new_folder(), self._cancelled.is_set)
        except Exception as error:
            self.error = error
        finally:
            self.seconds += time.monotonic() - started
            _SLOT.release()

    def _new_folder(self) -> Path:
        if self._folder is None:
            self._folder = self._opened.enter_context(scratch_folder("buckets"))
        folder = self._folder / str(self._rounds)
        folder.mkdir()
        return folder


def _summary(instant: Instant, metadata: CommitMetadata) -> str:
    before = sum(map(len, metadata.replaced_file_ids.values()))
    files = [stat for stat in metadata.write_stats if stat.path]
    after = counted(len({(stat.partition_path, stat.file_id) for stat in files}), "bucket")
    return f"{instant.requested_at}: {counted(before, 'bucket')} rewritten into {after}"
