"""Delivers notices to one hook, in a thread of its own, in order, with retries.

A pipeline only appends notices to a queue, so it never waits for a receiver. The queue has a
limited length. A notice leaves it when the receiver has accepted or refused it, when the receiver
has failed for too long, or when the queue is full; the last three count as dropped.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamer.backoff import pause_after
from streamer.events import Event, HookDropped, HookFailed, HookSent, Listener
from streamer.hooks.hook import Hook, NoticeRefused
from streamer.hooks.notices import CommitCompleted, Notice

_LOG = logging.getLogger(__name__)

#: The pause after the first of several consecutive failures, and the longest pause.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0

#: The largest number of notices that wait. A commit of a thousand files takes about a megabyte.
MAX_PENDING = 1000


@dataclass(frozen=True, slots=True)
class _Pending:
    """A notice that waits.

    Attributes:
        notice: the notice.
        since: when it was added, in seconds of ``time.monotonic``.
    """

    notice: Notice
    since: float

    @property
    def instant(self) -> str:
        """The requested time of the commit; "" for another notice."""
        notice = self.notice
        return notice.instant.requested_at if isinstance(notice, CommitCompleted) else ""

    @property
    def is_commit(self) -> bool:
        """Whether the next start announces the notice, if it is not delivered."""
        return isinstance(self.notice, CommitCompleted)


class HookWorker:
    """Delivers the notices of a pipeline to one hook.

    Attributes:
        name: the name of the hook in events and metrics.
        announced: the requested time of the last commit that the receiver has, or that was dropped;
            "" if there is none.

    Args:
        name: see above.
        notices: the kinds of notices that the hook sends. Others are ignored.
        open_hook: opens the hook; called in the thread.
        listener: receives the events, in the thread of this object.
        give_up_after_s: seconds after which a notice that cannot be delivered is dropped.
        max_pending: the largest number of notices that wait.
    """

    def __init__(
        self,
        name: str,
        notices: tuple[type[Notice], ...],
        open_hook: Callable[[], Hook],
        listener: Listener,
        give_up_after_s: float,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.name, self.announced = name, ""
        self._notices, self._open_hook, self._listener = notices, open_hook, listener
        self._give_up_after_s, self._max_pending = give_up_after_s, max_pending
        self._changed = threading.Condition()
        self._queue: deque[_Pending] = deque()
        self._newest = ""
        self._failures, self._retry_at, self._end_at = 0, -math.inf, math.inf
        self._thread: threading.Thread | None = None
        self._is_abandoned = False
        self._hook: Hook | None = None

    @property
    def is_progressing(self) -> bool:
        """Whether a notice waits, and the last attempt did not fail."""
        return bool(self._queue) and not self._failures

    def begin_after(self, instant: str) -> None:
        """Ignore commits up to this one, because the receiver has them."""
        self.announced = self._newest = instant

    def add(self, notice: Notice) -> None:
        """Append a notice, unless it is of a commit that was already added; return at once."""
        if not isinstance(notice, self._notices):
            return
        added = _Pending(notice, time.monotonic())
        with self._changed:
            if added.is_commit and added.instant <= self._newest:
                return
            self._newest = added.instant or self._newest
            is_full = len(self._queue) >= self._max_pending
            dropped = [self._queue.popleft()] if is_full else []
            self._queue.append(added)
            self._changed.notify_all()
            if self._thread is None:
                name = f"hook {self.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
        self._report_dropped(dropped, f"more than {self._max_pending} notices wait")

    def end(self, within_s: float) -> bool:
        """Deliver what waits, for at most ``within_s`` seconds and until an attempt fails.

        Returns:
            Whether the thread is still running, because the receiver does not answer.
        """
        with self._changed:
            self._end_at = time.monotonic() + within_s
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(within_s)
        self._abandon()
        return self._thread is not None and self._thread.is_alive()

    def _abandon(self) -> None:
        """Report what was not delivered. The next start announces the commits among it."""
        with self._changed:
            rest, self._queue = list(self._queue), deque()
        commits = sum(one.is_commit for one in rest)
        if commits:
            _LOG.warning(
                "hook %s: %d commits were not announced; the next start announces them",
                self.name,
                commits,
            )
        lost = [one for one in rest if not one.is_commit]
        self._report_dropped(lost, "the run ended before the receiver had them")
        self._is_abandoned = True

    def _report(self, event: Event) -> None:
        """Emit an event, unless the run has ended: its log may be closed."""
        if not self._is_abandoned:
            self._listener(event)

    def _run(self) -> None:
        while (due := self._await_due()) is not None:
            self._attempt(due)
        if self._hook is not None:
            self._hook.close()

    def _await_due(self) -> _Pending | None:
        """Wait until a notice is due, and return it; return None at the end."""
        with self._changed:
            while True:
                now = time.monotonic()
                is_ending = self._end_at < math.inf
                if is_ending and (self._failures or not self._queue or now >= self._end_at):
                    return None
                if self._queue and now >= self._retry_at:
                    return self._queue[0]
                self._changed.wait(self._retry_at - now if self._queue else None)

    def _attempt(self, due: _Pending) -> None:
        try:
            if self._hook is None:
                self._hook = self._open_hook()
            is_sent = self._hook.send(due.notice)
        except NoticeRefused as refusal:
            self._remove(due)
            self._report_dropped([due], str(refusal))
        except Exception as error:  # a hook of another package may raise any error
            self._fail(error)
        else:
            self._remove(due)
            if is_sent:
                notice = type(due.notice).__name__
                self._report(HookSent(self.name, notice, due.instant, len(self._queue)))

    def _remove(self, due: _Pending) -> None:
        """Remove a delivered or refused notice, unless it was dropped meanwhile."""
        with self._changed:
            self._failures = 0
            if self._queue and self._queue[0] is due:
                self._queue.popleft()
            self.announced = max(self.announced, due.instant)

    def _fail(self, error: Exception) -> None:
        now = time.monotonic()
        with self._changed:
            self._failures += 1
            pause_s = pause_after(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            self._retry_at = now + pause_s
            expired = []
            while self._queue and now - self._queue[0].since > self._give_up_after_s:
                expired.append(self._queue.popleft())
            pending, failures = len(self._queue), self._failures
        kind = type(error).__name__
        self._report(HookFailed(self.name, str(error), failures, pause_s, kind, pending))
        seconds = f"{self._give_up_after_s:g} s"
        self._report_dropped(expired, f"not delivered within {seconds}: {error}")

    def _report_dropped(self, dropped: Sequence[_Pending], reason: str) -> None:
        if not dropped:
            return
        commits = [one.instant for one in dropped if one.is_commit]
        self.announced = max([self.announced, *commits])
        self._report(HookDropped(self.name, len(dropped), commits[-1] if commits else "", reason))
