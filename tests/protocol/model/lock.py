"""The lock: who may change the table, and until when."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.model.state import FREE, Lock, State
from tests.protocol.model.step import Step, lock_of


def acquire(step: Step) -> Iterator[State]:
    """Replace a lock file that is free; the two steps after it are those of a take over."""
    lock = step.state.lock
    if lock.left:
        return
    state = step.state._replace(lock=lock_of(step))
    is_taken_over = lock.owner != FREE and step.rules.fixes.withdraw_on_take_over
    yield step.next(state, steps=1 if is_taken_over else 3)


def take_over(step: Step) -> Iterator[State]:
    """List what the holder before, and all others, have prepared."""
    if step.holds_lease:
        yield step.next(seen=step.state.prepared)
    else:
        yield step.next(steps=-1)


def withdraw_prepared(step: Step) -> Iterator[State]:
    """Delete what was listed; if the lease ran out meanwhile, the lock was not acquired."""
    prepared = step.state.prepared - step.process.seen
    state = step.state._replace(prepared=prepared)
    yield step.next(state, steps=1 if step.holds_lease else -2, seen=frozenset())


def check_lease(step: Step) -> Iterator[State]:
    """Go on if the lease is valid; with half of it left it is renewed."""
    if not step.holds_lease:
        yield step.fail()
    elif step.state.lock.left < step.rules.lease_halves:
        yield step.next(step.state._replace(lock=lock_of(step)))
    else:
        yield step.next()


def check_time(step: Step) -> Iterator[State]:
    """Go on if the lease has not run out."""
    yield step.next() if step.holds_lease else step.fail()


def release(step: Step) -> Iterator[State]:
    """Free the lock, unless it was taken over; also if the lease has run out."""
    yield step.next(_released(step))


def withdraw_on_failure(step: Step) -> Iterator[State]:
    """Before the lock is released, delete all that is prepared."""
    if step.holds_lease and step.rules.fixes.withdraw_before_release:
        yield step.next(step.state._replace(prepared=frozenset()))
    else:
        yield step.next()


def release_on_failure(step: Step) -> Iterator[State]:
    """Free the lock, unless the lease has run out before all was deleted."""
    is_safe = step.holds_lease or not step.rules.fixes.withdraw_before_release
    yield step.next(_released(step) if is_safe else None)


def renew(step: Step) -> Iterator[State]:
    """A thread of a process that is not paused renews a valid lease."""
    lock = step.state.lock
    if step.holds_lease and lock.left < step.rules.lease_halves:
        yield step.state._replace(lock=lock_of(step))


def _released(step: Step) -> State:
    if step.state.lock.owner == step.number:
        return step.state._replace(lock=Lock(FREE, 0))
    return step.state
