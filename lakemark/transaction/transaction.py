"""The one way to change a table, used by ingest and by every service.

The steps of a change, and what a crash right after each leaves:

0. where writers share the table: a heartbeat
                     a file that expires
1. requested         a pending instant without files; the next writer rolls it back
2. inflight          the same
   (where writers share the table both under the lock, with the timeline that was loaded there)
3. for each file: partition metafile, marker, file   (workers, ``table.write``)
                     files of a pending instant, seen by no reader; rolled back by name
4. reconcile         files of failed attempts are listed, and deleted in 5 if the instant is ours;
                     the others survive a power failure
5. under the lock: list the timeline again; whoever asked before us has looked at the table; our
   inflight still stands, and names our attempt; our heartbeat has not expired; no rollback aims at
   it; no commit that it was written over was undone; nothing it conflicts with completed; the
   caller's precondition (the checkpoint) holds
                     a lock that runs out by itself; who takes it over removes what is prepared
6. prepare           the completed content lies aside, and our lease is valid
   then a completion time later than every time on the timeline
7. **publish**       the store itself makes the completed instant out of the prepared content;
                     this is the only line that changes what readers see. Before each attempt: our
                     lease and our heartbeat are valid
8. unlock, drop the prepared content and the markers
                     leftovers of a completed instant, which nobody reads

The fence is in 6 and 7: a rollback, and whoever takes the lock over, removes the prepared content
before anything else. A writer that was stopped anywhere before 7, for however long, finds it gone
when it goes on (``lakemark.transaction.publication``).
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
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.storage.storage import AlreadyExists
from lakemark.timeline.clock import ClockSlot
from lakemark.timeline.content import encode_commit
from lakemark.timeline.locks.table_lock import Lease, LeaseLost
from lakemark.timeline.timeline import Timeline
from lakemark.transaction.attempt import (
    AttemptLost,
    clear_attempts,
    discard,
    has_instant,
    inflight_content,
    new_attempt,
)
from lakemark.transaction.conflicts import check_conflicts, earlier_unseen_commits
from lakemark.transaction.heartbeat import Heartbeat, HeartbeatExpired
from lakemark.transaction.multi_writer import has_heartbeat
from lakemark.transaction.publication import Publication
from lakemark.transaction.table_context import LOCK_WAIT_S, TableContext
from lakemark.write.markers import drop_markers, marked_files

#: Raises (``Fenced``, ``WriteConflict``) when the table is not as the caller left it.
Precondition = Callable[[Timeline], None]

#: What a commit says of itself, after the commits on a timeline.
Describe = Callable[[Timeline], CommitMetadata]

T = TypeVar("T")

_PUBLISH_ATTEMPTS = 3
_BEGIN_ATTEMPTS = 10
_LOOK_AGAIN_S = 0.25

_log = logging.getLogger(__name__)


class Transaction:
    """One pending instant, from its request to its publication."""

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
        """The timeline that the caller decided on; what completes after it may conflict."""
        return self._began_with

    @classmethod
    def begin(
        cls, context: TableContext, action: Action, decide: Callable[[Timeline], T]
    ) -> tuple[Transaction, T]:
        """Steps 1 and 2.

        Where writers share the table, the timeline is loaded and the instant created under one
        lease. What completes later completes after the request, and an archival keeps that. A
        commit that completed while this writer waited for the lock is part of what it writes over,
        not a conflict, so the caller decides with this timeline and with no older one.

        Args:
            context: the table.
            action: COMMIT or DELTA_COMMIT.
            decide: is given the timeline that the commit is written over; if it raises, nothing
                is created.

        Returns:
            The transaction, and what ``decide`` returned.

        Two writers may mint one time. A requested instant is empty, so both would take it for
        their own; the inflight one names its writer, and who comes second takes another time.

        Raises:
            WriteConflict: other writers were faster, over and over.
            LeaseLost: this process stood still under the lock.
        """
        if context.multi_writer is None:
            timeline = context.timeline.load()
            decided = decide(timeline)
            return cls._requested(context, action, timeline), decided
        with context.lock.hold(LOCK_WAIT_S) as lease:
            timeline = context.timeline.load()
            decided = decide(timeline)  # model: load base
            begun = cls._requested(context, action, timeline)
            begun._check_begun_under(lease)  # model: check begun
            context.multi_writer.let_clocks_pass()
        return begun, decided

    @classmethod
    def take_up(
        cls, context: TableContext, pending: Instant, lock_wait_s: float = LOCK_WAIT_S
    ) -> Transaction:
        """Begin an attempt at a planned service, whoever planned it.

        If another writer began one and died, or left it, what it wrote is deleted first.

        Args:
            context: the table.
            pending: the service.
            lock_wait_s: how long this and ``commit`` wait for the table's lock.

        Raises:
            WriteConflict: another writer is doing it, or has done it, or has removed it, or is to
                roll it back.
            LeaseLost: this process stood still under the lock.
        """
        with context.lock.hold(lock_wait_s) as lease:
            _check_free(context, pending)
            _check_not_undone(context, pending, context.timeline.load())
            clear_attempts(context, pending, lease)  # model: clear attempts
            return cls._begun(context, pending, lease, lock_wait_s)  # model: take up

    @classmethod
    def _requested(cls, context: TableContext, action: Action, timeline: Timeline) -> Transaction:
        newest_time = timeline.newest_time
        for _ in range(_BEGIN_ATTEMPTS):
            newest_time = context.timeline.clock.next_instant(newest_time, ClockSlot.INGEST)
            requested = Instant(newest_time, action, State.REQUESTED)
            with suppress(AlreadyExists), _heartbeat(context, newest_time) as heartbeat:
                context.timeline.create(requested)  # model: request commit
                content = inflight_content(action, context.timeline.version, uuid4().hex)
                context.timeline.create(requested.inflight(), content)  # model: start commit
                return cls(context, requested.inflight(), timeline, heartbeat, LOCK_WAIT_S)
        message = f"instant {newest_time} and those before it were taken by other writers"
        raise WriteConflict(message)

    @classmethod
    def _begun(
        cls, context: TableContext, planned: Instant, lease: Lease, lock_wait_s: float
    ) -> Transaction:
        timeline = context.timeline.load()
        standing = timeline.find(planned.requested_at)
        if standing is None or standing.state is not State.REQUESTED:
            message = f"{planned} was completed, begun or removed by another writer"
            raise WriteConflict(message)
        attempt = new_attempt(standing)
        content = inflight_content(attempt.action, context.timeline.version, attempt.attempt)
        try:
            with _heartbeat(context, planned.requested_at) as heartbeat:
                lease.check()
                context.timeline.create(attempt, content)
                begun = cls(context, attempt, timeline, heartbeat, lock_wait_s)
                begun._check_taken_up_under(lease)  # model: check taken up
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
        """Steps 4 to 8: make the written files visible, all of them or none.

        May be called again after ``LockTimeout``.

        Args:
            metadata: what the commit says of itself.
            precondition: called under the lock.
            describe: called under the lock, if what the commit says depends on the commits before
                it; it returns the metadata to publish, with the same files.

        Returns:
            The completed instant, and the timeline that holds it.

        Raises:
            Fenced: the instant was taken from us; nothing was published.
            AttemptLost: so was that of a planned service; our files are deleted.
            WriteConflict: another commit touched the same file groups.
            ClusteringPlanned: a clustering is planned for one of them.
            LockTimeout: another writer kept the table's lock.
            HeartbeatExpired: others may count us as dead.
            LeaseLost: another writer may have taken the lock over; nothing was published.
            OutcomeUnknown: the store did not say whether it published.
        """
        leftovers = self._leftovers(stat.path for stat in metadata.write_stats if stat.path)
        content = self._content(metadata)
        self._context.timeline.make_durable()  # takes long for many files, so not under the lock
        with self._turn() as (lease, timeline):
            self._check_ours(timeline)  # model: check commit
            self._check_ground(timeline)
            self._context.delete_files(leftovers)
            check_conflicts(
                self.instant,
                metadata,
                self._began_with,
                timeline,
                self._context.timeline,
                lambda planned: has_heartbeat(
                    self._context.storage, planned, self._context.multi_writer
                ),
            )
            if precondition is not None:
                precondition(timeline)
            if describe is not None:
                metadata = describe(timeline)
                content = self._content(metadata)
            publication = Publication(self._context.timeline, lease, self.instant)
            publication.prepare(content)
            with publication.telling():
                self._context.metadata_updater.on_commit(self.instant, metadata, timeline)
            # model: generate completion time
            completed = self._publish(
                publication, self._context.generate_time(timeline.newest_time)
            )
        self._tidy()
        self.leave()
        return completed, timeline.with_instant(completed)

    def leave(self) -> None:
        """Show no more signs of life: who finds the instant pending from here on may undo it."""
        if self._heartbeat is not None:
            self._heartbeat.stop()  # model: leave

    def cancel(self) -> None:
        """Forget the instant. Only for one in whose name no file was written."""
        self._context.timeline.forget(self.instant)  # model: cancel
        self.leave()

    def _check_begun_under(self, lease: Lease) -> None:
        """Others may have committed and archived that before they could see our instant."""
        try:
            lease.check()
        except LeaseLost:
            self.cancel()
            raise

    def _check_taken_up_under(self, lease: Lease) -> None:
        """The plan may have been executed and archived before our inflight instant was created.

        Otherwise the attempt that follows deletes that.
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
    def _turn(self) -> Iterator[tuple[Lease, Timeline]]:
        """The lock, and the timeline under it, once whoever asked before us has looked.

        They are waited for without the lock, which they need to come so far.
        """
        while True:
            with self._context.lock.hold(self._lock_wait_s) as lease:
                timeline = self._context.timeline.load()
                if not self._yet_to_look(timeline):
                    yield lease, timeline
                    return
            while self._yet_to_look(self._context.timeline.load()):
                time.sleep(_LOOK_AGAIN_S)

    def _yet_to_look(self, timeline: Timeline) -> list[Instant]:
        context = self._context
        return earlier_unseen_commits(
            self.instant, timeline, context.multi_writer, context.timeline.clock
        )

    def _leftovers(self, written: Iterable[str]) -> list[str]:
        """Files of attempts that did not win, for readers must never meet them.

        They are listed before the lock is taken, and deleted under it if the instant is still
        ours. So they are never files of an attempt that began after ours.
        """
        announced = marked_files(self._context.storage, self.instant.requested_at)
        return sorted(set(announced) - set(written))

    def check_standing(self) -> None:
        """Load the timeline, and pass if the instant is still inflight and ours.

        Raises:
            AttemptLost: the planned service is another attempt's now, or completed, or undone.
            Fenced: another writer rolled the instant back.
        """
        self._check_standing(self._context.timeline.load())

    def _check_ours(self, timeline: Timeline) -> None:
        """Our heartbeat has not expired, and the instant is still inflight and ours.

        If the heartbeat of an attempt has expired, the next attempt may have completed. It deleted
        the files that were there when it began, and nobody deletes what we have written since. So
        an attempt that is lost deletes its files, whether its heartbeat has expired or not.
        """
        try:
            self._check_alive()
        except HeartbeatExpired:
            if self.instant.attempt:
                self._check_standing(timeline)
            raise
        self._check_standing(timeline)

    def _check_standing(self, timeline: Timeline) -> None:
        reason = self._taken_from_us(timeline)
        if reason and self.instant.attempt:  # its plan is anybody's
            discard(self._context, self.instant, timeline)
            raise AttemptLost(self.instant, reason)
        if reason:
            raise Fenced(self.instant.requested_at, reason)

    def _taken_from_us(self, timeline: Timeline) -> str:
        """What another writer did to our instant; empty if it stands."""
        name = self.instant.requested_at
        standing = timeline.find(name)
        if standing is None or standing.state is State.REQUESTED:
            return "another writer rolled it back; the newer writer goes on"
        if standing.is_completed:
            return "it is completed already"
        for rollback in _rollbacks_of(self._context, name, timeline):
            return f"rollback {rollback.requested_at} is about to remove it"
        if self.instant.attempt and not has_instant(self._context, self.instant):
            return "another attempt at it has begun"
        return ""

    def _check_alive(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.check()

    def _check_ground(self, timeline: Timeline) -> None:
        """What we stand on is still there: an operator may have undone commits meanwhile."""
        name = self.instant.requested_at
        for restore in timeline.pending(Action.RESTORE):
            raise Fenced(name, f"{restore} is under way")
        for seen in self._began_with.completed(*COMMITS):
            if not timeline.is_committed(seen.requested_at):
                raise Fenced(name, f"{seen}, which it was written over, was rolled back")

    def _publish(self, publication: Publication, completed_at: str) -> Instant:
        """Step 7. A lost answer is settled by looking, and by asking again for the same name."""
        for attempt in range(_PUBLISH_ATTEMPTS):
            try:
                self._check_alive()
                return publication.publish(completed_at)  # model: publish
            except StorageUnavailable:
                landed = self._landed(completed_at)
                if landed is not None:
                    return landed
            except (LeaseLost, HeartbeatExpired):
                if attempt == 0:
                    raise
                break
        message = (
            f"the store did not say whether instant {self.instant.requested_at} was published; "
            "the next start reads the timeline and goes on from what it finds"
        )
        raise OutcomeUnknown(message)

    def _tidy(self) -> None:
        """Step 8. The instant is completed, so a store that does not answer fails nothing."""
        try:
            self._context.timeline.withdraw(self.instant)  # model: drop prepared
            drop_markers(self._context.storage, self.instant.requested_at)
        except StorageUnavailable as error:
            _log.warning("leftovers of %s stay, which nobody reads: %s", self.instant, error)

    def _landed(self, completed_at: str) -> Instant | None:
        """Our completed instant, if it is there; layout 1 has one name for it, whoever asked."""
        try:
            found = self._context.timeline.load().find(self.instant.requested_at)
            self._context.timeline.make_durable()
        except StorageUnavailable:
            return None
        if found is None or not found.is_completed:
            return None
        return found if found.is_legacy or found.completed_at == completed_at else None


def _check_free(context: TableContext, pending: Instant) -> None:
    if has_heartbeat(context.storage, pending, context.multi_writer):
        message = f"{pending} is being executed by another writer, whose heartbeat is alive"
        raise WriteConflict(message)


def _check_not_undone(context: TableContext, pending: Instant, timeline: Timeline) -> None:
    """A rollback that is completed later deletes files of attempts before it, and of no others."""
    for rollback in _rollbacks_of(context, pending.requested_at, timeline):
        message = f"{rollback} is to undo an attempt at {pending}, and has not ended"
        raise WriteConflict(message)


def _rollbacks_of(
    context: TableContext, requested_at: str, timeline: Timeline
) -> Iterator[Instant]:
    for rollback, plan in context.timeline.pending_rollbacks(timeline):
        if plan.instant == requested_at:
            yield rollback


@contextmanager
def _heartbeat(context: TableContext, instant: str) -> Iterator[Heartbeat | None]:
    """Begin to beat for an instant that is requested in this block, unless that fails."""
    if context.multi_writer is None:
        yield None
        return
    heartbeat = context.multi_writer.heartbeat(context.storage, instant)
    try:
        yield heartbeat
    except AlreadyExists:  # the instant is another writer's, and so is the file of its heartbeat
        heartbeat.abandon()
        raise
    except BaseException:
        heartbeat.stop()
        raise
