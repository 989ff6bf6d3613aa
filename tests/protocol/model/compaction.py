"""Compactions: a plan, and attempts at it by any process."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.model.commit import NOTHING
from tests.protocol.model.state import Action, File, Instant, Phase, State
from tests.protocol.model.step import Step
from tests.protocol.model.table import latest


def plan_compaction(step: Step) -> Iterator[State]:
    """Under the lock, choose the files to merge, and generate the time of the plan."""
    slices = [one for one in latest(step.table).values() if one.logs]
    if step.state.pending(Action.COMPACTION) or not slices:
        yield step.go("looked in vain")
        return
    state = step.with_clock()
    yield step.next(state, completed_at=state.clock, todo=slices[0].files)


def request_compaction(step: Step) -> Iterator[State]:
    """Create the plan."""
    process = step.process
    plan = Instant(process.completed_at, Action.COMPACTION, Phase.REQUESTED, plan=process.todo)
    yield step.next(step.state.with_instant(plan), todo=frozenset())


def find_plan(step: Step) -> Iterator[State]:
    """Choose the oldest pending plan; end if there is none."""
    pending = step.state.pending(Action.COMPACTION)
    yield step.next(instant=pending[0].name) if pending else step.go("done")


def clear_attempts(step: Step) -> Iterator[State]:
    """Under the lock, delete the files of earlier attempts, unless their executor is alive.

    Afterwards the instant is in the requested state again.
    """
    state, name = step.state, step.process.instant
    found = state.find(name)
    is_aimed_at = any(i.target == name for i in state.pending(Action.ROLLBACK))
    if found is None or found.is_completed or name in state.beats or is_aimed_at:
        yield step.go("looked in vain")
    elif found.phase is Phase.REQUESTED or not step.rules.fixes.attempt_identity:
        yield step.next()
    elif not step.holds_lease:
        yield step.fail()
    else:
        state = state.with_instant(found._replace(phase=Phase.REQUESTED, attempt=0))
        yield step.next(
            state._replace(
                prepared=frozenset(one for one in state.prepared if one[0] != name),
                files=frozenset(f for f in state.files if f.instant != name),
            )
        )


def resume(step: Step) -> Iterator[State]:
    """Start a heartbeat, and make the plan inflight."""
    state, name = step.state, step.process.instant
    found = state.find(name)
    has_identity = step.rules.fixes.attempt_identity
    if found is None or found.is_completed or (found.phase and has_identity):
        yield step.go("looked in vain")
        return
    attempt = 0
    if has_identity:
        state = step.with_clock()
        attempt = state.clock
    state = state.with_instant(found._replace(phase=Phase.INFLIGHT, attempt=attempt))
    state = state._replace(beats=state.beats | {name})
    yield step.next(state, attempt=attempt, base=frozenset(_completed(state)), beat=name)


def check_taken_up(step: Step) -> Iterator[State]:
    """Continue if the process held the lock all the time."""
    yield step.next() if step.holds_lease else step.go("execute failed")


def rewrite(step: Step) -> Iterator[State]:
    """Merge the files of the plan into a base file."""
    plan = step.state.find(step.process.instant)
    files = plan.plan if plan is not None else frozenset()
    if not files:
        yield step.go("stop heartbeat")
        return
    if not files <= step.state.files:
        yield step.go("cannot read its files")
        return
    rows = frozenset(row for file in files for row in file.rows)
    group = min(files).group
    file = File(group, step.process.instant, step.process.attempt, True, rows)
    yield step.next(step.state._replace(files=step.state.files | {file}), wrote=file)


def choose_attempt(step: Step) -> Iterator[State]:
    """Under the lock, choose an attempt whose heartbeat has expired: an operator rolls it back."""
    state = step.state
    inflight = [i for i in state.pending(Action.COMPACTION) if i.phase is Phase.INFLIGHT]
    dead = [i for i in inflight if i.name not in state.beats]
    aims = {i.target: i.name for i in state.pending(Action.ROLLBACK)}
    if not dead:
        yield step.go("looked in vain")
        return
    chosen = dead[0]
    rollback = aims.get(chosen.name, 0)
    yield step.next(instant=chosen.name, attempt=chosen.attempt, rollback=rollback)


def stop_heartbeat(step: Step) -> Iterator[State]:
    """Stop the heartbeat of an attempt, so that others may start the next one."""
    state = step.state._replace(beats=step.state.beats - {step.process.beat})
    yield step.next(state, **NOTHING)


def _completed(state: State) -> list[int]:
    return [i.name for i in state.completed(Action.COMMIT, Action.COMPACTION)]
