"""Delivers notices to one hook, in a thread of its own, in order, with retries.

A pipeline only appends notices to a queue, so it never waits for a receiver. The queue has a
limited length, and its commits have a limited number of files, because their statistics are in
memory. A notice leaves it when the receiver has accepted or refused it, when the receiver has
failed for too long, or when the queue is full; the last three count as dropped.
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

#: The largest number of notices that wait, and of the files in commits among them. The statistics
#: of a file take about a kilobyte of memory.
MAX_PENDING, MAX_PENDING_FILES = 1000, 100_000

#: Seconds after which an attempt that has not ended is taken for one that hangs. Hooks give up
#: sooner, unless a server sends its answer byte by byte.
LONGEST_ATTEMPT_S = 150.0


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
    def files(self) -> int:
        """The number of files whose statistics the notice contains."""
        notice = self.notice
        return len(notice.metadata.write_stats) if isinstance(notice, CommitCompleted) else 0

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
        max_pending_files: the largest number of files in all commits that wait, if there are
            several.
    """

    def __init__(
        self,
        name: str,
        notices: tuple[type[Notice], ...],
        open_hook: Callable[[], Hook],
        listener: Listener,
        give_up_after_s: float,
        max_pending: int = MAX_PENDING,
        max_pending_files: int = MAX_PENDING_FILES,
    ) -> None:
        self.name, self.announced = name, ""
        self._notices, self._open_hook, self._listener = notices, open_hook, listener
        self._give_up_after_s = give_up_after_s
        self._max_pending, self._max_pending_files = max_pending, max_pending_files
        self._changed = threading.Condition()
        self._queue: deque[_Pending] = deque()
        self._files = 0
        self._newest = ""
        self._attempt_ends_by = math.inf
        self._failures, self._retry_at, self._end_at = 0, -math.inf, math.inf
        self._thread: threading.Thread | None = None
        self._is_abandoned = False
        self._hook: Hook | None = None

    @property
    def is_progressing(self) -> bool:
        """Whether a notice waits, and the last attempt has neither failed nor hangs."""
        hangs = time.monotonic() >= self._attempt_ends_by
        return bool(self._queue) and not self._failures and not hangs

    @property
    def takes_commits(self) -> bool:
        """Whether the hook sends notices of commits."""
        return CommitCompleted in self._notices

    @property
    def newest(self) -> str:
        """The requested time of the last commit that was added or that the receiver has had."""
        return self._newest

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
            dropped = self._make_room(added.files)
            self._queue.append(added)
            self._files += added.files
            self._changed.notify_all()
            if self._thread is None:
                name = f"hook {self.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
        most, most_files = self._max_pending, self._max_pending_files
        reason = f"more than {most} notices wait, or commits with more than {most_files} files"
        self._report_dropped(dropped, reason)

    def _make_room(self, files: int) -> list[_Pending]:
        """Remove the oldest notices until one with this number of files may be added."""
        dropped = []
        while self._queue and (
            len(self._queue) >= self._max_pending or self._files + files > self._max_pending_files
        ):
            dropped.append(self._pop_oldest())
        return dropped

    def _pop_oldest(self) -> _Pending:
        oldest = self._queue.popleft()
        self._files -= oldest.files
        return oldest

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
            rest, self._queue, self._files = list(self._queue), deque(), 0
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
        self._attempt_ends_by = time.monotonic() + LONGEST_ATTEMPT_S
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
        finally:
            self._attempt_ends_by = math.inf

    def _remove(self, due: _Pending) -> None:
        """Remove a delivered or refused notice, unless it was dropped meanwhile."""
        with self._changed:
            self._failures = 0
            if self._queue and self._queue[0] is due:
                self._pop_oldest()
            self.announced = max(self.announced, due.instant)

    def _fail(self, error: Exception) -> None:
        now = time.monotonic()
        with self._changed:
            self._failures += 1
            pause_s = pause_after(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            self._retry_at = now + pause_s
            expired = []
            while self._queue and now - self._queue[0].since > self._give_up_after_s:
                expired.append(self._pop_oldest())
            pending, failures = len(self._queue), self._failures
        kind = type(error).__name__
        self._report(HookFailed(self.name, str(error), failures, pause_s, kind, pending))
        seconds = f"{self._give_up_after_s:g} s"
        self._report_dropped(expired, f"not delivered within {seconds}: {error}")

    def _report_dropped(self, dropped: Sequence[_Pending], reason: str) -> None:
        if not dropped:
            return
        commits = [one.instant for one in dropped if one.is_commit]
        with self._changed:
            self.announced = max([self.announced, *commits])
        self._report(HookDropped(self.name, len(dropped), commits[-1] if commits else "", reason))
