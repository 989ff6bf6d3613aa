"""The lock: its holder may change the table until its lease expires."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.model.state import FREE, Lock, State
from tests.protocol.model.step import Step, lock_of


def acquire(step: Step) -> Iterator[State]:
    """Replace a lock file that is free or expired; a takeover adds the next two steps."""
    lock = step.state.lock
    if lock.left:
        return
    state = step.state._replace(lock=lock_of(step))
    is_taken_over = lock.owner != FREE and step.rules.fixes.withdraw_on_take_over
    yield step.next(state, steps=1 if is_taken_over else 3)


def take_over(step: Step) -> Iterator[State]:
    """List the prepared content of all processes."""
    if step.holds_lease:
        yield step.next(seen=step.state.prepared)
    else:
        yield step.next(steps=-1)


def withdraw_prepared(step: Step) -> Iterator[State]:
    """Delete the listed content; if the lease expired meanwhile, the lock was not acquired."""
    prepared = step.state.prepared - step.process.seen
    state = step.state._replace(prepared=prepared)
    yield step.next(state, steps=1 if step.holds_lease else -2, seen=frozenset())


def check_lease(step: Step) -> Iterator[State]:
    """Continue if the lease is valid; renew it if half of it remains."""
    if not step.holds_lease:
        yield step.fail()
    elif step.state.lock.left < step.rules.lease_halves:
        yield step.next(step.state._replace(lock=lock_of(step)))
    else:
        yield step.next()


def check_time(step: Step) -> Iterator[State]:
    """Continue if the lease has not expired."""
    yield step.next() if step.holds_lease else step.fail()


def release(step: Step) -> Iterator[State]:
    """Free the lock, even if the lease has expired, unless another process took it over."""
    yield step.next(_released(step))


def withdraw_on_failure(step: Step) -> Iterator[State]:
    """Delete all prepared content before the lock is released."""
    if step.holds_lease and step.rules.fixes.withdraw_before_release:
        yield step.next(step.state._replace(prepared=frozenset()))
    else:
        yield step.next()


def release_on_failure(step: Step) -> Iterator[State]:
    """Free the lock, unless the lease expired before all was deleted."""
    is_safe = step.holds_lease or not step.rules.fixes.withdraw_before_release
    yield step.next(_released(step) if is_safe else None)


def renew(step: Step) -> Iterator[State]:
    """Renew a valid lease, as a thread of a process that is not paused does."""
    lock = step.state.lock
    if step.holds_lease and lock.left < step.rules.lease_halves:
        yield step.state._replace(lock=lock_of(step))


def _released(step: Step) -> State:
    if step.state.lock.owner == step.number:
        return step.state._replace(lock=Lock(FREE, 0))
    return step.state
