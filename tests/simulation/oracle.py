"""What readers may see, given what callers were told: the table as one sequential history.

Each commit of rows has a key of its own, so a reader sees exactly which commits are there. Its
other keys are shared; the newest of the commits that are there decides their values.
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

    The moments are numbers of events; None for what did not happen.

    Attributes:
        rows: of it; the first has the key of its own. A commit that sets a checkpoint has none.
        writer: who.
        requested_at: its instant, once that is known.
        completed_at: when it completed, once that is known.
        told: when its writer was told that it is done.
        seen: when a reader had seen it, whatever its writer was told.
        failed: when its writer was told that nothing was published.
        undone: when somebody was told that it was undone.
        undoings: rollbacks and restores whose outcome nobody was told, and that may undo it.
        checkpoint: that it sets.
    """

    rows: tuple[Row, ...]
    writer: str
    requested_at: str = ""
    completed_at: str = ""
    told: int | None = None
    seen: int | None = None
    failed: int | None = None
    undone: int | None = None
    undoings: set[int] = field(default_factory=set)
    checkpoint: KafkaCheckpoint | None = None

    @property
    def key(self) -> str:
        """That no other commit has."""
        return self.rows[0].id

    @property
    def is_certain(self) -> bool:
        """Whether it is in the table, and nobody can be taking it back."""
        return (self.told or self.seen) is not None and self.undone is None and not self.undoings

    def __str__(self) -> str:
        values = vars(self)
        told = {name: values[name] for name in ("told", "seen", "failed", "undone", "undoings")}
        known = ", ".join(f"{name} {value}" for name, value in told.items() if value)
        return f"{self.key} of {self.writer} at {self.requested_at}-{self.completed_at} ({known})"


class Oracle:
    """Hears all that is begun, told and read, in its order.

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
        """A commit is about to be written."""
        attempt = Attempt(rows, writer)
        attempt.undoings |= self._open_restores
        self.attempts[attempt.key] = attempt
        return attempt

    def begin_checkpoint(self, writer: str, checkpoint: KafkaCheckpoint) -> Attempt:
        """A checkpoint is about to be set."""
        attempt = Attempt((), writer, checkpoint=checkpoint)
        attempt.undoings |= self._open_restores
        self.checkpoints.append(attempt)
        return attempt

    def tell(self, attempt: Attempt, requested_at: str, completed_at: str) -> None:
        """Its writer was told that it is done."""
        attempt.told = next(self._events)
        attempt.requested_at, attempt.completed_at = requested_at, completed_at
        if requested_at in self._undone and attempt.undone is None:
            attempt.undone = attempt.told
        attempt.undoings |= self._open_undoings(requested_at)

    def fail(self, attempt: Attempt) -> None:
        """Its writer was told that nothing was published."""
        attempt.failed = next(self._events)

    def note(self, told: Acknowledged) -> None:
        """Another act ended well."""
        for name in told.rewritten:
            self.rewritten.setdefault(name, set()).update(self._open_undoings(name))
        self._undone |= set(told.undone)
        for attempt in self._all():
            if attempt.requested_at in told.undone and attempt.undone is None:
                attempt.undone = next(self._events)

    @contextmanager
    def undoing(self, names: Callable[[str], bool], is_restore: bool) -> Iterator[None]:
        """A block that undoes commits; if it fails, it may do so all the same, later.

        Args:
            names: whether it may undo the instant of a requested time.
            is_restore: whether it may undo what begins later, too.
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
        """The moment at which a reader begins."""
        return next(self._events)

    def check_snapshot(
        self, found: Mapping[str, tuple[int, int]], began: int, requested_until: str = "~"
    ) -> set[str]:
        """Check what a snapshot query found.

        Args:
            found: ordering value and payload of each key.
            began: when the reader began.
            requested_until: it asked for the commits that were requested until then.

        Returns:
            The own keys of the commits that it saw.

        Raises:
            AssertionError: a commit is missing, or there in part, or may not be there.
        """
        visible = [a for a in self.attempts.values() if a.key in found]
        self._check_missing(set(found), began, requested_until)
        for attempt in visible:
            self._check_may_be_seen(attempt, began)
            assert attempt.requested_at <= requested_until, f"{attempt} is of later"
        expected: dict[str, tuple[int, int]] = {}
        for attempt in visible:
            for row in attempt.rows:
                expected[row.id] = max((row.ts, row.v), expected.get(row.id, (-1, -1)))
        wrong = {k: (found.get(k), v) for k, v in expected.items() if found.get(k) != v}
        assert not wrong, f"rows of commits that are there (found, expected): {wrong}"
        strange = {k: v for k, v in found.items() if k not in expected}
        assert not strange, f"rows of no commit that is there: {strange}"
        for attempt in visible:
            attempt.seen = attempt.seen or next(self._events)
        return {attempt.key for attempt in visible}

    def _check_missing(self, keys: set[str], began: int, requested_until: str) -> None:
        for attempt in self.attempts.values():
            known = attempt.told or attempt.seen
            if (
                known is not None
                and known < began
                and attempt.is_certain
                and attempt.requested_at <= requested_until
            ):
                assert attempt.key in keys, f"acknowledged rows are not there: {attempt}"

    def _check_may_be_seen(self, attempt: Attempt, began: int) -> None:
        undone, failed = attempt.undone, attempt.failed
        assert undone is None or undone > began, f"rows that were undone are there: {attempt}"
        assert failed is None, f"rows of a commit that failed are there: {attempt}"

    def check_behind(self, seen: set[str], cursor: str) -> None:
        """Check that an incremental reader has seen all that completed up to its cursor."""
        for attempt in self.attempts.values():
            if attempt.is_certain and attempt.completed_at and attempt.completed_at <= cursor:
                message = f"a reader that has come to {cursor} did not see {attempt}"
                assert attempt.key in seen, message

    # The end

    def history(self) -> History:
        """What was told, as the invariants take it."""
        history = History(rewritten=set(self.rewritten), undone=set(self._undone))
        history.maybe_undone |= {name for name, undoings in self.rewritten.items() if undoings}
        for attempt in self._all():
            rows = {row.id: (row.ts, row.v) for row in attempt.rows}
            if attempt.told is None and attempt.checkpoint is not None:
                history.doubtful.append(rows)
            if attempt.told is not None and attempt.undone is None:
                name, done_at = attempt.requested_at, attempt.completed_at
                history.certain[name] = Committed(name, done_at, rows, attempt.checkpoint)
                if attempt.undoings:
                    history.maybe_undone.add(name)
        return history

    def _open_undoings(self, requested_at: str) -> set[int]:
        return {number for number, names in self._open.items() if names(requested_at)}

    def _all(self) -> list[Attempt]:
        return [*self.attempts.values(), *self.checkpoints]
