"""What readers may see after the acknowledged results: the table as one sequential history.

Each commit of rows has a key of its own, so that a reader sees exactly which commits are in the
table. Its other keys are shared; the newest commit in the table decides their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

from checkpoints.checkpoint import KafkaCheckpoint
from tests.protocol.actors import Acknowledged, Committed
from tests.protocol.invariants import History
from tests.tables import Row


@dataclass(eq=False)
class Attempt:
    """One commit that a writer began.

    Its moments are numbers of events; None for an event that did not happen.

    Attributes:
        rows: its rows; the first has the key of its own. A commit of a checkpoint has none.
        writer: the name of its writer.
        requested_at: the requested time of its instant, once that is known.
        completed_at: its completion time, once that is known.
        acknowledged: when its writer learned that it completed.
        seen: when a reader had seen it, whether it was acknowledged or not.
        failed: when its writer learned that nothing was published.
        undone: when the caller of a rollback or restore learned that it is undone.
        undoings: rollbacks and restores of unknown outcome that may undo it.
        checkpoint: the checkpoint that it sets.
    """

    rows: tuple[Row, ...]
    writer: str
    requested_at: str = ""
    completed_at: str = ""
    acknowledged: int | None = None
    seen: int | None = None
    failed: int | None = None
    undone: int | None = None
    undoings: set[int] = field(default_factory=set)
    checkpoint: KafkaCheckpoint | None = None

    @property
    def key(self) -> str:
        """The key that no other commit has."""
        return self.rows[0].id

    @property
    def is_certain(self) -> bool:
        """Whether it is in the table, and no rollback or restore can be undoing it."""
        known = self.acknowledged or self.seen
        return known is not None and self.undone is None and not self.undoings

    def __str__(self) -> str:
        values = vars(self)
        moments = ("acknowledged", "seen", "failed", "undone", "undoings")
        known = ", ".join(f"{name} {values[name]}" for name in moments if values[name])
        return f"{self.key} of {self.writer} at {self.requested_at}-{self.completed_at} ({known})"


class Oracle:
    """Records all acts, results and queries in their order, and checks what readers see.

    Attributes:
        attempts: all commits of rows, by their own keys.
        checkpoints: all commits that set a checkpoint.
        rewritten: requested times of compactions, each with the rollbacks and restores that may
            undo it and whose outcome is unknown.
    """

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.checkpoints: list[Attempt] = []
        self.rewritten: dict[str, set[int]] = {}
        self._events = count(1)
        self._open: dict[int, Callable[[str], bool]] = {}
        self._open_restores: set[int] = set()
        self._undone: set[str] = set()

    # Writers

    def begin(self, writer: str, rows: tuple[Row, ...]) -> Attempt:
        """Record that a commit is about to be written."""
        attempt = Attempt(rows, writer)
        attempt.undoings |= self._open_restores
        self.attempts[attempt.key] = attempt
        return attempt

    def begin_checkpoint(self, writer: str, checkpoint: KafkaCheckpoint) -> Attempt:
        """Record that a checkpoint is about to be set."""
        attempt = Attempt((), writer, checkpoint=checkpoint)
        attempt.undoings |= self._open_restores
        self.checkpoints.append(attempt)
        return attempt

    def acknowledge(self, attempt: Attempt, requested_at: str, completed_at: str) -> None:
        """Record that a commit was acknowledged to its writer."""
        attempt.acknowledged = next(self._events)
        attempt.requested_at, attempt.completed_at = requested_at, completed_at
        if requested_at in self._undone and attempt.undone is None:
            attempt.undone = attempt.acknowledged
        attempt.undoings |= self._open_undoings(requested_at)

    def fail(self, attempt: Attempt) -> None:
        """Record that the writer of a commit learned that nothing was published."""
        attempt.failed = next(self._events)

    def note(self, result: Acknowledged) -> None:
        """Record the result of another act that succeeded."""
        for name in result.rewritten:
            self.rewritten.setdefault(name, set()).update(self._open_undoings(name))
        self._undone |= set(result.undone)
        for attempt in self._all():
            if attempt.requested_at in result.undone and attempt.undone is None:
                attempt.undone = next(self._events)

    @contextmanager
    def undoing(self, names: Callable[[str], bool], is_restore: bool) -> Iterator[None]:
        """Run a block that undoes commits; even if it fails, it may still undo them later.

        Args:
            names: returns whether the block may undo the instant of a requested time.
            is_restore: whether the block may also undo commits that begin later.
        """
        number = next(self._events)
        self._open[number] = names
        for attempt in self._all():
            if attempt.undone is None and names(attempt.requested_at):
                attempt.undoings.add(number)
        for name, undoings in self.rewritten.items():
            if names(name):
                undoings.add(number)
        if is_restore:
            self._open_restores.add(number)
        yield
        del self._open[number]
        self._open_restores.discard(number)
        for undoings in (*(a.undoings for a in self._all()), *self.rewritten.values()):
            undoings.discard(number)

    # Readers

    def now(self) -> int:
        """Return the moment at which a reader begins."""
        return next(self._events)

    def check_snapshot(
        self, found: Mapping[str, tuple[int, int]], began: int, requested_until: str = "~"
    ) -> set[str]:
        """Check the result of a snapshot query.

        Args:
            found: ordering value and payload of each key.
            began: when the reader began.
            requested_until: the query reads only commits that were requested until then.

        Returns:
            The own keys of the commits that it saw.

        Raises:
            AssertionError: a commit is missing or incomplete, or must not be visible.
        """
        visible = [a for a in self.attempts.values() if a.key in found]
        self._check_missing(set(found), began, requested_until)
        for attempt in visible:
            self._check_may_be_seen(attempt, began)
            assert attempt.requested_at <= requested_until, f"{attempt} was requested later"
        expected: dict[str, tuple[int, int]] = {}
        for attempt in visible:
            for row in attempt.rows:
                expected[row.id] = max((row.ts, row.v), expected.get(row.id, (-1, -1)))
        wrong = {k: (found.get(k), v) for k, v in expected.items() if found.get(k) != v}
        assert not wrong, f"wrong rows of visible commits (found, expected): {wrong}"
        strange = {k: v for k, v in found.items() if k not in expected}
        assert not strange, f"rows of no visible commit: {strange}"
        for attempt in visible:
            attempt.seen = attempt.seen or next(self._events)
        return {attempt.key for attempt in visible}

    def _check_missing(self, keys: set[str], began: int, requested_until: str) -> None:
        for attempt in self.attempts.values():
            known = attempt.acknowledged or attempt.seen
            if (
                known is not None
                and known < began
                and attempt.is_certain
                and attempt.requested_at <= requested_until
            ):
                assert attempt.key in keys, f"acknowledged rows are missing: {attempt}"

    def _check_may_be_seen(self, attempt: Attempt, began: int) -> None:
        undone, failed = attempt.undone, attempt.failed
        assert undone is None or undone > began, f"rows that were undone are visible: {attempt}"
        assert failed is None, f"rows of a failed commit are visible: {attempt}"

    def check_behind(self, seen: set[str], cursor: str) -> None:
        """Check that an incremental reader has seen all that completed up to its cursor."""
        for attempt in self.attempts.values():
            if attempt.is_certain and attempt.completed_at and attempt.completed_at <= cursor:
                message = f"a reader whose cursor is {cursor} did not see {attempt}"
                assert attempt.key in seen, message

    # The end

    def history(self) -> History:
        """Return the acknowledged results in the form that the invariants use."""
        history = History(rewritten=set(self.rewritten), undone=set(self._undone))
        history.maybe_undone |= {name for name, undoings in self.rewritten.items() if undoings}
        for attempt in self._all():
            rows = {row.id: (row.ts, row.v) for row in attempt.rows}
            if attempt.acknowledged is None and attempt.checkpoint is not None:
                history.doubtful.append(rows)
            if attempt.acknowledged is not None and attempt.undone is None:
                name, done_at = attempt.requested_at, attempt.completed_at
                history.certain[name] = Committed(name, done_at, rows, attempt.checkpoint)
                if attempt.undoings:
                    history.maybe_undone.add(name)
        return history

    def _open_undoings(self, requested_at: str) -> set[int]:
        return {number for number, names in self._open.items() if names(requested_at)}

    def _all(self) -> list[Attempt]:
        return [*self.attempts.values(), *self.checkpoints]
