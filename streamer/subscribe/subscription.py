"""Delivers the commits of a table to a target, one after another.

If the table or the target is not available, the target is opened again, and the subscription
continues at the cursor that the target has stored. So a delivery whose outcome is unknown is
neither lost nor repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from lakemark.errors import Retriable
from lakemark.model.feed_position import FeedPosition
from lakemark.model.instant import Instant
from lakemark.operations.change_feed import ChangeFeed, FeedType
from lakemark.operations.open_table import OpenTable
from lakemark.storage import canonical_url
from streamer.backoff import pause_after
from streamer.subscribe.cursor import Cursor
from streamer.subscribe.target import Target, change_texts

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0

#: Consecutive failures after which a subscription that does not follow the table gives up.
_MAX_FAILURES = 5


class Listener(Protocol):
    """Receives the events of a subscription."""

    def started(self, cursor: Cursor, *, is_resumed: bool) -> None:
        """Report that deliveries start after the position of the cursor."""
        ...

    def delivered(self, commit: Instant, count: int) -> None:
        """Report that the changes of a commit were delivered."""
        ...

    def waits(self, pending: Instant) -> None:
        """Report that later commits are delivered only when a pending one has ended."""
        ...

    def failed(self, error: Retriable, pause_s: float) -> None:
        """Report that a delivery failed, and is tried again after a pause."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription starts.

    Attributes:
        given: ``earliest``, ``latest`` or a time, if the target has no cursor.
        ignores_cursor: whether the subscription starts there even if the target has a cursor.
    """

    given: str
    ignores_cursor: bool = False


class Subscription:
    """The delivery of one table to one target, by one process.

    Args:
        table: the open table, which only the subscription uses.
        feed_type: what is delivered of each commit.
        open_target: opens the target.
        start: where a subscription starts.
        listener: receives what happens.
    """

    def __init__(
        self,
        table: OpenTable,
        feed_type: FeedType,
        open_target: Callable[[], Target],
        start: Start,
        listener: Listener,
    ) -> None:
        self._feed = ChangeFeed(table, feed_type)
        first = FeedPosition("", "")
        self._cursor = Cursor(canonical_url(table.location.url), feed_type, first)
        self._open_target, self._start, self._listener = open_target, start, listener
        self._failures = 0
        self._awaited: str | None = None
        self._stopping = threading.Event()

    def stop(self) -> bool:
        """Stop after the commit that is being delivered; return True, because it stops by itself.

        Any thread, and the handler of a signal, may call this method.
        """
        self._stopping.set()
        return True

    def run(self, follow_every_s: float | None) -> None:
        """Deliver all commits, until ``stop`` is called.

        Args:
            follow_every_s: seconds after which the table is read again for new commits; None to
                end after the commits that exist.

        Raises:
            ChangesRemoved, CommitUndone, OrderChanged: the changes after the cursor cannot be read
                any more.
            TargetRefused: the target does not accept the changes.
            Retriable: the table or the target was not available several times. With
                ``follow_every_s``, the delivery is tried again without limit instead.
            HudiError: the table cannot be read.
        """
        while not self._stopping.is_set():
            try:
                self._feed.refresh()
                with closing(self._open_target()) as target:
                    self._check_before_take_over(target)
                    target.take_over()
                    self._run(target, follow_every_s)
                    return
            except Retriable as error:
                self._failures += 1
                if follow_every_s is None and self._failures >= _MAX_FAILURES:
                    raise
                pause_s = pause_after(self._failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
                self._listener.failed(error, pause_s)
                self._stopping.wait(pause_s)

    def _run(self, target: Target, follow_every_s: float | None) -> None:
        cursor = self._begin(target)
        while not self._stopping.is_set():
            for commit in self._feed.commits_after(cursor.position):
                cursor = cursor.at(self._feed.position_after(commit, cursor.position))
                changes = change_texts(commit, self._feed.changes(commit))
                self._listener.delivered(commit, target.deliver(changes, cursor))
                self._failures = 0
                if self._stopping.is_set():
                    return
            self._report_awaited()
            if follow_every_s is None or self._stopping.wait(follow_every_s):
                return
            self._feed.refresh()
            self._failures = 0

    def _report_awaited(self) -> None:
        """Report a pending commit once."""
        awaited = self._feed.awaited
        if awaited is not None and awaited.requested_at != self._awaited:
            self._listener.waits(awaited)
            self._awaited = awaited.requested_at

    def _check_before_take_over(self, target: Target) -> None:
        """Check what is known of the cursor before another process is ended by mistake."""
        stored = target.peek_cursor()
        if stored is not None:
            self._cursor.check_same(stored, str(target))
            if not self._start.ignores_cursor:
                self._feed.commits_after(stored.position)

    def _begin(self, target: Target) -> Cursor:
        """Return the cursor at which deliveries start; a new one is stored before any delivery."""
        stored = target.read_cursor()
        if stored is not None:
            self._cursor.check_same(stored, str(target))
        if not self._start.ignores_cursor:
            target.check_continuous()
        if stored is None or self._start.ignores_cursor:
            cursor = self._cursor.at(self._feed.find_start(self._start.given))
            self._feed.commits_after(cursor.position)  # fails before the cursor is stored
            target.deliver((), cursor)
            # Not again if the target is opened again.
            self._start = Start(self._start.given)
            self._listener.started(cursor, is_resumed=False)
            return cursor
        self._listener.started(stored, is_resumed=True)
        return stored
