"""Rollbacks: of a process's own instant, and of the instants of dead processes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.model.commit import NOTHING, carry_out
from tests.protocol.model.state import Action, Instant, Phase, Request, State
from tests.protocol.model.step import Step


def withdraw(step: Step) -> Iterator[State]:
    """Delete the prepared content of the target, of every attempt."""
    yield _withdrawn(step) if step.rules.fixes.rollback_withdraws_first else step.next()


def judge_own(step: Step) -> Iterator[State]:
    """Under the lock, check whether the process's own instant completed or was undone."""
    name = step.process.instant
    found = step.state.find(name)
    if found is None and name in step.table.undone and not step.table.completed_at(name):
        yield step.go("late files")
    elif found is None or found.is_completed:
        yield step.go("undone")
    else:
        yield step.next()


def find_dead(step: Step) -> Iterator[State]:
    """Choose the oldest pending rollback or commit without a heartbeat; end if there is none."""
    state = step.state
    dead = [i for i in _undoable(state) if i.name not in state.beats]
    if not dead:
        yield step.go("recovered")
        return
    chosen = min(dead, key=lambda i: (i.action is not Action.ROLLBACK, i.name))
    if chosen.action is Action.ROLLBACK:
        yield step.next(instant=chosen.target, attempt=0, rollback=chosen.name)
    else:
        yield step.next(instant=chosen.name, attempt=chosen.attempt, rollback=0)


def find_again(step: Step) -> Iterator[State]:
    """Check again under the lock that it is still pending and its heartbeat still expired."""
    process, state = step.process, step.state
    found = state.find(process.rollback or process.instant)
    if found is None or found.is_completed or found.name in state.beats:
        yield step.go("looked in vain")
    elif process.rollback and _was_outlived(step):
        yield step.go("looked in vain", state.without_instants(frozenset({process.rollback})))
    else:
        yield step.next()


def plan_rollback(step: Step) -> Iterator[State]:
    """Generate the time of a rollback, unless a pending one was found."""
    found = step.state.find(step.process.instant)
    if step.process.rollback:
        yield step.next(steps=3)
    elif found is None or found.is_completed:
        yield step.go("looked in vain")
    else:
        state = step.with_clock()
        yield step.next(state, completed_at=state.clock)


def request_rollback(step: Step) -> Iterator[State]:
    """Create the plan of a rollback."""
    name, target = step.process.completed_at, step.process.instant
    rollback = Instant(name, Action.ROLLBACK, Phase.REQUESTED, target=target)
    state = step.state.with_instant(rollback)
    yield step.next(state, rollback=name)


def start_rollback(step: Step) -> Iterator[State]:
    """Start a heartbeat, and create the inflight rollback."""
    name = step.process.rollback
    found = step.state.find(name)
    if found is None or found.is_completed:
        yield step.fail()
        return
    state = step.state.with_instant(found._replace(phase=Phase.INFLIGHT))
    yield step.next(state._replace(beats=state.beats | {name}), beat=name)


def list_files(step: Step) -> Iterator[State]:
    """List the files of the target."""
    yield step.next(
        todo=frozenset(f for f in step.state.files if f.instant == step.process.instant)
    )


def delete_files(step: Step) -> Iterator[State]:
    """Delete the listed files."""
    state = step.state._replace(files=step.state.files - step.process.todo)
    yield step.next(state, todo=frozenset())


def prepare_rollback(step: Step) -> Iterator[State]:
    """Write the completed rollback under a temporary name."""
    prepared = step.state.prepared | {(step.process.rollback, 0)}
    yield step.next(step.state._replace(prepared=prepared))


def withdraw_target(step: Step) -> Iterator[State]:
    """Delete the prepared content of the target once more."""
    yield _withdrawn(step)


def publish_rollback(step: Step) -> Iterator[State]:
    """Ask the store to create the completed rollback."""
    process = step.process
    rollback = step.state.find(process.rollback)
    if rollback is None:
        yield step.fail()
        return
    done = rollback._replace(phase=Phase.COMPLETED, completed_at=process.completed_at)
    found = carry_out(step.state, Request(done, 0))
    yield step.fail() if found is None else step.next(found)


def forget(step: Step) -> Iterator[State]:
    """Delete the prepared rollback and the target; the plan of a compaction stays."""
    process = step.process
    target = step.state.find(process.instant)
    state = step.state._replace(
        prepared=step.state.prepared - {(process.rollback, 0)},
        beats=step.state.beats - {process.rollback, process.instant},
    )
    if target is not None and not target.is_completed:
        state = state.without_instants(frozenset({target.name}))
        if target.action is Action.COMPACTION:
            state = state.with_instant(target._replace(phase=Phase.REQUESTED, attempt=0))
    yield step.next(state, **NOTHING)


def _withdrawn(step: Step) -> State:
    """Delete the prepared content of the target; check the lease between listing and deletion."""
    gone = {one for one in step.state.prepared if one[0] == step.process.instant}
    checks = step.rules.fixes.check_lease_before_withdrawal
    if gone and checks and not step.holds_lease:
        return step.fail()
    return step.next(step.state._replace(prepared=step.state.prepared - gone))


def _undoable(state: State) -> list[Instant]:
    rollbacks = state.pending(Action.ROLLBACK)
    aims = {i.target for i in rollbacks}
    return [*rollbacks, *(i for i in state.pending(Action.COMMIT) if i.name not in aims)]


def _was_outlived(step: Step) -> bool:
    """Whether the target of a rollback has completed since, with all of its files."""
    rollback = step.state.find(step.process.rollback)
    target = step.state.find(step.process.instant)
    assert rollback is not None
    if target is None:
        return bool(step.table.completed_at(step.process.instant))
    is_whole = target.wrote <= step.state.files
    return target.is_completed and target.completed_at >= rollback.name and is_whole
