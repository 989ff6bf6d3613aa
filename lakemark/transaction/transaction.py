"""The steps by which writers and table services change a table.

This list shows each step, and what remains after a crash right after the step:

0. start a heartbeat, if writers share the table
                     crash: a heartbeat file remains until it expires
1. create the requested instant
                     crash: a pending instant without files remains; the next writer rolls it back
2. create the inflight instant. If writers share the table, steps 1 and 2 are done under the lock,
   with the timeline that was loaded under the lock
                     crash: as after step 1
3. for each data file: write partition metafile, marker and data file (workers, ``lakemark.write``)
                     crash: files of a pending instant remain. No reader reads these files. The
                     rollback finds them by their names and deletes them
4. list the files of failed task attempts, which step 5 deletes if the instant is still ours
                     crash: as after step 3
5. acquire the lock, load the timeline again, and check:
   - earlier copy-on-write commits of other writers are already inflight
   - our instant is inflight and contains the name of our attempt; no rollback of it is pending
   - our heartbeat has not expired
   - no commit on which our commit is based was rolled back
   - no conflicting commit has completed
   - the caller's precondition is true (for example, the checkpoint has not changed)
                     crash: the lock remains until it expires. The next holder deletes all prepared
                     content
6. prepare: write the content of the completed instant, check that the lease is still valid, and
   generate a completion time that is later than all times on the timeline
                     crash: as after step 5
7. **publish**: check lease and heartbeat, then let the store create the completed instant from the
   prepared content. Only this request changes what readers see
                     crash: the commit is complete; prepared content and markers remain
8. release the lock; delete the prepared content and the markers

A writer may be suspended anywhere before step 7, for any time. A rollback of its instant, and a
writer that takes over the lock, first delete the prepared content. So step 7 of the suspended
writer fails when it resumes (``lakemark.transaction.publication``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar
from uuid import uuid4

from lakemark.errors import Fenced, OutcomeUnknown, StorageUnavailable, WriteConflict
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.commit_metadata import CommitMetadata, Operation
from lakemark.model.instant import Instant
from lakemark.storage.storage import AlreadyExists
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_commit, encode_replace_request
from lakemark.timeline.locks.table_lock import Lease, LeaseLost
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.attempt import (
    AttemptLost,
    clear_attempts,
    delete_files_of,
    discard,
    has_instant,
    inflight_content,
    new_attempt,
)
from lakemark.transaction.conflicts import check_conflicts, earlier_unseen_commits
from lakemark.transaction.heartbeat import Heartbeat, HeartbeatExpired
from lakemark.transaction.instant_files import awaited_logs
from lakemark.transaction.metadata_updater import recording_in
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.plan_owner import check_not_executed
from lakemark.transaction.publication import Publication
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.write.markers import drop_markers, marked_files

#: Raises ``Fenced`` or ``WriteConflict`` if changes of the table forbid the commit.
Precondition = Callable[[Timeline], None]

#: Returns the metadata of a commit. The argument is the timeline with all earlier commits.
Describe = Callable[[Timeline], CommitMetadata]

T = TypeVar("T")

_PUBLISH_ATTEMPTS = 3
_BEGIN_ATTEMPTS = 10
_LOOK_AGAIN_S = 0.25

_log = logging.getLogger(__name__)


class Transaction:
    """A pending instant, from its request to its publication."""

    def __init__(
        self,
        context: TableContext,
        instant: Instant,
        began_with: Timeline,
        heartbeat: Heartbeat | None,
        lock_wait_s: float,
    ) -> None:
        assert instant.state is State.INFLIGHT, instant
        self.instant = instant
        self._context = context
        self._began_with = began_with
        self._heartbeat = heartbeat
        self._lock_wait_s = lock_wait_s

    @property
    def began_with(self) -> Timeline:
        """The timeline on which the commit is based. Commits that complete later may conflict."""
        return self._began_with

    @classmethod
    def begin(
        cls,
        context: TableContext,
        action: Action,
        decide: Callable[[Timeline], T],
        operation: Operation = Operation.UPSERT,
    ) -> tuple[Transaction, T]:
        """Begin a commit (steps 1 and 2).

        If writers share the table, the timeline is loaded and the instant is created under one
        lease. Then all commits that are not on this timeline complete after our request, and
        archival keeps them active. A commit that completed while this writer waited for the lock is
        on this timeline, and is no conflict. So ``decide`` must use this timeline, and not an older
        one.

        Two writers may generate the same time. The requested file is empty, so both writers would
        consider it their own. The inflight file contains the id of its writer, so the second
        writer detects the other instant and generates another time.

        Args:
            context: the table's context.
            action: ``COMMIT``, ``DELTA_COMMIT``, or ``REPLACE_COMMIT`` for a commit that replaces
                rows.
            decide: called with the timeline on which the commit is based; if ``decide`` raises an
                error, no instant is created.
            operation: the operation that pending instants of ``REPLACE_COMMIT`` name.

        Returns:
            The transaction, and the result of ``decide``.

        Raises:
            WriteConflict: other writers took all the instant times that were tried.
            LeaseLost: the lease expired while this process held the lock.
        """
        if context.multi_writer is None:
            timeline = context.timeline.load()
            decided = decide(timeline)
            return cls._requested(context, action, timeline, operation), decided
        with context.lock.hold(LOCK_WAIT_S) as lease:
            timeline = context.timeline.load()
            decided = decide(timeline)  # model: load base
            begun = cls._requested(context, action, timeline, operation)
            begun._check_begun_under(lease)  # model: check begun
            context.multi_writer.let_clocks_pass()
        return begun, decided

    @classmethod
    def resume(
        cls, context: TableContext, pending: Instant, lock_wait_s: float = LOCK_WAIT_S
    ) -> Transaction:
        """Begin an attempt to execute a table service that any writer planned.

        If another writer began an attempt but died or abandoned the attempt, the files of that
        attempt are deleted first.

        Args:
            context: the table's context.
            pending: the planned service.
            lock_wait_s: the time in seconds for which this call, and later ``commit``, wait for the
                table's lock.

        Raises:
            WriteConflict: another writer is or may be executing the plan (``plan_owner``), has
                completed or removed the plan, or is rolling back an attempt.
            LeaseLost: the lease expired while this process held the lock.
        """
        with context.lock.hold(lock_wait_s) as lease:
            timeline = context.timeline.load()
            check_not_executed(context, timeline.find(pending.requested_at) or pending)
            _check_not_undone(context, pending, timeline)
            clear_attempts(context, pending, lease)  # model: clear attempts
            return cls._create_attempt(context, pending, lease, lock_wait_s)  # model: resume

    @classmethod
    def request(
        cls, context: TableContext, create: Callable[[Lease], Instant | None]
    ) -> Transaction | None:
        """Request a table service and begin an attempt to execute it, under one lease.

        So no commit of another writer finds the plan without the heartbeat of this attempt.

        Args:
            context: the table's context.
            create: creates the requested instant; returns None if there is nothing to do.

        Raises:
            LeaseLost: the lease expired while this process held the lock. The plan may exist.
        """
        with context.lock.hold(LOCK_WAIT_S) as lease:
            planned = create(lease)
            if planned is None:
                return None
            return cls._create_attempt(context, planned, lease, LOCK_WAIT_S)

    @classmethod
    def _requested(
        cls, context: TableContext, action: Action, timeline: Timeline, operation: Operation
    ) -> Transaction:
        newest_time, version = timeline.newest_time, context.timeline.version
        replaces = action is Action.REPLACE_COMMIT
        request = encode_replace_request(operation) if replaces else b""
        for _ in range(_BEGIN_ATTEMPTS):
            newest_time = context.timeline.clock.next_instant(newest_time, ClockSlot.INGEST)
            requested = Instant(newest_time, action, State.REQUESTED)
            with suppress(AlreadyExists), _heartbeat(context, newest_time) as heartbeat:
                context.timeline.create(requested, request)  # model: request commit
                content = inflight_content(action, version, uuid4().hex, operation)
                context.timeline.create(requested.inflight(), content)  # model: start commit
                return cls(context, requested.inflight(), timeline, heartbeat, LOCK_WAIT_S)
        message = f"other writers took instant {newest_time} and all earlier times that were tried"
        raise WriteConflict(message)

    @classmethod
    def _create_attempt(
        cls, context: TableContext, planned: Instant, lease: Lease, lock_wait_s: float
    ) -> Transaction:
        timeline = context.timeline.load()
        current = timeline.find(planned.requested_at)
        if current is None or current.state is not State.REQUESTED:
            message = f"{planned} was completed, begun or removed by another writer"
            raise WriteConflict(message)
        attempt = new_attempt(current)
        content = inflight_content(attempt.action, context.timeline.version, attempt.attempt)
        try:
            with _heartbeat(context, planned.requested_at) as heartbeat:
                lease.check()
                context.timeline.create(attempt, content)
                begun = cls(context, attempt, timeline, heartbeat, lock_wait_s)
                begun._check_attempt_under(lease)  # model: check taken up
                return begun
        except AlreadyExists:
            message = f"{planned} was begun by another writer"
            raise WriteConflict(message) from None

    def commit(
        self,
        metadata: CommitMetadata,
        precondition: Precondition | None = None,
        describe: Describe | None = None,
    ) -> tuple[Instant, Timeline]:
        """Publish all files of the commit atomically (steps 4 to 8).

        This method may be called again after ``LockTimeout``.

        Args:
            metadata: the metadata of the commit.
            precondition: called under the lock.
            describe: called under the lock, for metadata that depends on earlier commits; returns
                the metadata to publish, with the same files.

        Returns:
            The completed instant, and the timeline that contains this instant.

        Raises:
            Fenced: another writer rolled back or completed the instant; nothing was published.
            AttemptLost: another writer rolled back, completed or retried this planned service; the
                files of this attempt are deleted.
            WriteConflict: another commit changed the same file groups.
            ClusteringPlanned: a clustering of one of the commit's file groups is planned.
            LockTimeout: another writer held the table's lock for too long.
            HeartbeatExpired: other writers may consider this writer dead.
            LeaseLost: another writer may have taken over the lock; nothing was published.
            OutcomeUnknown: the store did not answer whether it published the instant.
        """
        leftovers = self._leftovers(
            path for stat in metadata.write_stats for path in stat.sizes_bytes
        )
        content = self._content(metadata)
        self._context.timeline.make_durable()  # takes long for many files, so not under the lock
        with self._lock(metadata) as (lease, timeline):
            self._check_others(metadata, timeline)
            awaited = awaited_logs(self._context.timeline, timeline) if leftovers else ()
            delete_files_of(self._context, self.instant, leftovers, awaited)
            if precondition is not None:
                precondition(timeline)
            if describe is not None:
                metadata = describe(timeline)
                content = self._content(metadata)
            completed = self._publish_under(lease, metadata, content, timeline)
        self._delete_leftovers()
        self.stop_heartbeat()
        return completed, timeline.with_instant(completed)

    def _check_others(self, metadata: CommitMetadata, timeline: Timeline) -> None:
        """Check that no other writer has undone our instant, or changed our file groups."""
        context = self._context
        self._check_ours(timeline)  # model: check commit
        self._check_base(timeline)
        check_conflicts(
            self.instant,
            metadata,
            self._began_with,
            timeline,
            context.timeline,
            lambda planned: has_heartbeat(context.storage, planned, context.multi_writer),
            non_blocking=context.is_non_blocking,
        )

    def _publish_under(
        self, lease: Lease, metadata: CommitMetadata, content: bytes, timeline: Timeline
    ) -> Instant:
        """Update the metadata table, then publish the commit; return the completed instant."""
        publication = Publication(self._context.timeline, lease, self.instant)
        publication.prepare(content)
        with recording_in(self._context.metadata_updater) as updater:
            with lease.reporting_loss():
                updater.on_commit(self.instant, metadata, timeline)
            # model: generate completion time
            return self._publish(publication, self._context.generate_time(timeline.newest_time))

    def stop_heartbeat(self) -> None:
        """Stop the heartbeat. If the instant is pending, other writers may now roll it back."""
        if self._heartbeat is not None:
            self._heartbeat.stop()  # model: stop heartbeat

    def cancel(self) -> None:
        """Remove the instant from the timeline. The caller has written no data files for it."""
        self._context.timeline.forget(self.instant)  # model: cancel
        self.stop_heartbeat()

    def _check_begun_under(self, lease: Lease) -> None:
        """Remove our instant if the lease was lost, and raise ``LeaseLost``.

        Without the lock, other writers may have committed before they could see our instant.
        """
        try:
            lease.check()
        except LeaseLost:
            self.cancel()
            raise

    def _check_attempt_under(self, lease: Lease) -> None:
        """Delete our inflight instant if the lease was lost and the plan no longer exists.

        Then another writer executed the plan, and the instant was archived, before our inflight
        file was created. If the plan still exists, the next attempt deletes the inflight file.
        """
        try:
            lease.check()
        except LeaseLost:
            if not self._context.timeline.is_requested(self.instant):
                self._context.timeline.forget(self.instant)
            raise

    def _content(self, metadata: CommitMetadata) -> bytes:
        return encode_commit(self.instant.action, metadata, self._context.timeline.version)

    @contextmanager
    def _lock(self, metadata: CommitMetadata) -> Iterator[tuple[Lease, Timeline]]:
        """Hold the lock and load the timeline, after all earlier writers have loaded theirs.

        A writer that requested its commit earlier may not have loaded the timeline on which its
        commit is based. That writer needs the lock to load this timeline, so this method waits
        without holding the lock.
        """
        while True:
            with self._context.lock.hold(self._lock_wait_s) as lease:
                timeline = self._context.timeline.load()
                if not self._find_earlier_unseen(timeline, metadata):
                    yield lease, timeline
                    return
            while self._find_earlier_unseen(self._context.timeline.load(), metadata):
                time.sleep(_LOOK_AGAIN_S)

    def _find_earlier_unseen(self, timeline: Timeline, metadata: CommitMetadata) -> list[Instant]:
        context = self._context
        return earlier_unseen_commits(
            self.instant, metadata, timeline, context.multi_writer, context.timeline.clock
        )

    def _leftovers(self, written: Iterable[str]) -> list[str]:
        """Return the files of failed task attempts, which readers must never find.

        The files are listed before the lock is acquired. They are deleted under the lock if the
        instant is still ours. So files of an attempt that began after ours are never deleted.
        """
        announced = marked_files(self._context.storage, self.instant.requested_at)
        return sorted(set(announced) - set(written))

    def check_inflight(self) -> None:
        """Load the timeline, and check that the instant is still inflight and ours.

        Raises:
            AttemptLost: another attempt at the planned service has begun, or the service was
                completed or rolled back.
            Fenced: another writer rolled back or completed the instant.
        """
        self._check_inflight(self._context.timeline.load())

    def _check_ours(self, timeline: Timeline) -> None:
        """Check that our heartbeat has not expired, and that the instant is inflight and ours.

        If the heartbeat of our attempt has expired, another attempt may have completed. The other
        attempt deleted the files that existed when it began, but not the files that we have written
        since. So an attempt that has lost its instant deletes its own files, even if its heartbeat
        has expired.
        """
        try:
            self._check_alive()
        except HeartbeatExpired:
            if self.instant.attempt:
                self._check_inflight(timeline)
            raise
        self._check_inflight(timeline)

    def _check_inflight(self, timeline: Timeline) -> None:
        reason = self._find_loss(timeline)
        if reason and self.instant.attempt:  # a table service, whose plan any writer may execute
            discard(self._context, self.instant, timeline)
            raise AttemptLost(self.instant, reason)
        if reason:
            raise Fenced(self.instant.requested_at, reason)

    def _find_loss(self, timeline: Timeline) -> str:
        """Return the reason why our instant is lost; "" if it is still inflight and ours."""
        name = self.instant.requested_at
        current = timeline.find(name)
        if current is None or current.state is State.REQUESTED:
            return "another writer rolled it back; the newer writer continues"
        if current.is_completed:
            return "it has already completed"
        for rollback in _rollbacks_of(self._context, name, timeline):
            return f"rollback {rollback.requested_at} is about to remove it"
        if self.instant.attempt and not has_instant(self._context, self.instant):
            return "another attempt at it has begun"
        return ""

    def _check_alive(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.check()

    def _check_base(self, timeline: Timeline) -> None:
        """Check that no commit on which ours is based was undone, for example by an operator."""
        name = self.instant.requested_at
        for restore in timeline.pending(Action.RESTORE):
            raise Fenced(name, f"{restore} is under way")
        for seen in self._began_with.completed(*COMMITS):
            if not timeline.is_committed(seen.requested_at):
                raise Fenced(name, f"{seen}, on which it is based, was rolled back")

    def _publish(self, publication: Publication, completed_at: str) -> Instant:
        """Publish the instant (step 7).

        If the store's answer is lost, look for the completed instant, and publish again if it does
        not exist.
        """
        for attempt in range(_PUBLISH_ATTEMPTS):
            try:
                self._check_alive()
                return publication.publish(completed_at)  # model: publish
            except StorageUnavailable:
                published = self._find_published(completed_at)
                if published is not None:
                    return published
            except (LeaseLost, HeartbeatExpired):
                if attempt == 0:
                    raise
                break
        message = (
            f"the store did not say whether instant {self.instant.requested_at} was published; "
            "the next start reads the timeline to find out"
        )
        raise OutcomeUnknown(message)

    def _delete_leftovers(self) -> None:
        """Delete prepared content and markers (step 8).

        Errors are only logged, because the instant is already completed.
        """
        try:
            self._context.timeline.withdraw(self.instant)  # model: drop prepared
            drop_markers(self._context.storage, self.instant.requested_at)
        except StorageUnavailable as error:
            _log.warning("files that no reader reads remain of %s: %s", self.instant, error)

    def _find_published(self, completed_at: str) -> Instant | None:
        """Return our completed instant; None if it does not exist.

        In layout 1, the completion time is not compared, because the file name does not contain it.
        """
        try:
            found = self._context.timeline.load().find(self.instant.requested_at)
            self._context.timeline.make_durable()
        except StorageUnavailable:
            return None
        if found is None or not found.is_completed:
            return None
        return found if found.is_legacy or found.completed_at == completed_at else None


def _check_not_undone(context: TableContext, pending: Instant, timeline: Timeline) -> None:
    """Check that no rollback is pending, because it would delete the files of a new attempt."""
    for rollback in _rollbacks_of(context, pending.requested_at, timeline):
        message = f"{rollback} of an attempt at {pending} has not completed"
        raise WriteConflict(message)


def _rollbacks_of(
    context: TableContext, requested_at: str, timeline: Timeline
) -> Iterator[Instant]:
    for rollback, plan in context.timeline.pending_rollbacks(timeline):
        if plan.instant == requested_at:
            yield rollback


@contextmanager
def _heartbeat(context: TableContext, instant: str) -> Iterator[Heartbeat | None]:
    """Start the heartbeat of an instant, and stop the heartbeat if the block fails.

    The block creates the instant.
    """
    if context.multi_writer is None:
        yield None
        return
    heartbeat = context.multi_writer.heartbeat(context.storage, instant)
    try:
        yield heartbeat
    except AlreadyExists:  # the instant and the heartbeat file belong to another writer
        heartbeat.abandon()
        raise
    except BaseException:
        heartbeat.stop()
        raise
