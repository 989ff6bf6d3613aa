"""A commit: from its request to its publication."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.protocol.model.state import (
    SHARED,
    WRITES,
    Action,
    File,
    Instant,
    Phase,
    Request,
    State,
)
from tests.protocol.model.step import Step
from tests.protocol.model.table import Table, latest

#: The variables of a process that works on no instant.
NOTHING: Mapping[str, Any] = {
    "instant": 0,
    "attempt": 0,
    "wrote": None,
    "base": frozenset(),
    "rollback": 0,
    "completed_at": 0,
    "tries": 0,
    "beat": 0,
}


def load_base(step: Step) -> Iterator[State]:
    """Load the timeline that is the base of the commit, and decide what to write."""
    batch, table = step.process.batch, step.table
    if batch in table.batches():
        known = step.state.acknowledged | {batch}  # the table's checkpoint says so
        yield step.go("found committed", step.state._replace(acknowledged=known))
        return
    if step.state.pending(Action.RESTORE):
        yield step.go("refused")
        return
    base = frozenset(i.name for i in step.state.completed(*WRITES))
    yield step.next(base=base, wrote=_draft(step, table))


def request(step: Step) -> Iterator[State]:
    """Start a heartbeat, and create the requested instant with a new time."""
    state = step.with_clock()
    name = state.clock
    state = state._replace(beats=state.beats | {name})
    state = state.with_instant(Instant(name, Action.COMMIT, Phase.REQUESTED))
    yield step.next(state, instant=name, attempt=name, beat=name)


def start(step: Step) -> Iterator[State]:
    """Create the inflight instant."""
    name = step.process.instant
    found = step.state.find(name)
    state = step.state.with_instant(
        Instant(name, Action.COMMIT, Phase.INFLIGHT, attempt=step.process.attempt)
        if found is None
        else found._replace(phase=Phase.INFLIGHT, attempt=step.process.attempt)
    )
    yield step.next(state)


def check_begun(step: Step) -> Iterator[State]:
    """Continue if the instant was created under the lease under which its base was loaded."""
    yield step.next() if step.holds_lease else step.go("cancel")


def cancel(step: Step) -> Iterator[State]:
    """Delete an instant for which no file was written."""
    name = step.process.instant
    state = step.state.without_instants(frozenset({name}))
    yield step.next(state._replace(beats=state.beats - {name}), instant=0, beat=0)


def write_files(step: Step) -> Iterator[State]:
    """Write the file of the bucket."""
    draft, name = step.process.wrote, step.process.instant
    assert draft is not None
    bucket, creator = draft.group
    file = draft._replace(group=(bucket, creator or name), instant=name, attempt=name)
    yield step.next(step.state._replace(files=step.state.files | {file}), wrote=file)


def check_commit(step: Step) -> Iterator[State]:
    """Under the lock, check the current timeline: the instant is ours, and nothing conflicts."""
    found = _find_own(step)
    if found is None:
        yield step.fail()
    elif not _conflicts(step, found):
        yield step.next()
    elif step.rules.is_non_blocking and found.action is Action.COMMIT:
        yield step.go("conflict of a non-blocking writer")
    else:
        yield step.fail()


def prepare(step: Step) -> Iterator[State]:
    """Write the completed content under a temporary name."""
    name = (step.process.instant, step.process.attempt)
    yield step.next(step.state._replace(prepared=step.state.prepared | {name}))


def generate_time(step: Step) -> Iterator[State]:
    """Generate the completion time."""
    state = step.with_clock()
    yield step.next(state, completed_at=state.clock)


def publish(step: Step) -> Iterator[State]:
    """Ask the store to create the completed instant from the prepared content.

    The store may carry out the request and answer, or carry it out without an answer. It may also
    carry it out later, whether or not the client retries.
    """
    wanted = Request(_completed(step), step.process.attempt)
    found = carry_out(step.state, wanted)
    if found is None:
        yield _fenced(step)
    else:
        yield step.next(_acknowledged(step, found), tries=0)
    budget = step.state.budget
    if budget.losses:
        lost = step.state._replace(budget=budget._replace(losses=budget.losses - 1))
        late = lost._replace(requests=lost.requests | {wanted})
        yield _unanswered(step, late)
        if found is not None:
            landed = found._replace(budget=lost.budget)
            yield step.fail(landed)  # and the process cannot read the timeline, either


def drop_prepared(step: Step) -> Iterator[State]:
    """Delete the prepared content after its publication, and stop the heartbeat."""
    name = (step.process.instant, step.process.attempt)
    state = step.state._replace(
        prepared=step.state.prepared - {name}, beats=step.state.beats - {step.process.beat}
    )
    yield step.next(state, **NOTHING)


def retry(step: Step) -> Iterator[State]:
    """Write the batch again, if the process still has a chance."""
    chances = step.process.chances
    state = step.state._replace(beats=step.state.beats - {step.process.beat})
    program = "commit" if chances else "done"
    yield step.go(program, state, **{**NOTHING, "chances": max(0, chances - 1)})


def carry_out(state: State, request: Request) -> State | None:
    """Return the state once the store has carried out a publication; None if it refuses.

    A second call for the same name changes nothing.
    """
    instant = request.instant
    if (instant.name, request.attempt) not in state.prepared:
        return None
    state = state.with_instant(instant)
    if instant.action not in WRITES:
        return state
    return state._replace(cursor=max(state.cursor, instant.completed_at))


def _draft(step: Step, table: Table) -> File:
    """Return the file that the batch becomes, a log or a base file, without its final names."""
    process = step.process
    groups = {g: one for g, one in latest(table).items() if g[0] == process.bucket}
    rows = frozenset({process.batch})
    if not groups:
        return _new_group(step, rows)
    group = min(groups)
    if step.rules.is_copy_on_write:
        return File(group, 0, 0, True, rows | groups[group].rows)
    return File(group, 0, 0, False, rows)


def _new_group(step: Step, rows: frozenset[int]) -> File:
    """Return the first file of a bucket; 0 stands for the instant of the commit."""
    fixes, bucket = step.rules.fixes, step.process.bucket
    if not step.rules.is_non_blocking:
        return File((bucket, 0), 0, 0, True, rows)
    creator = SHARED if fixes.shared_file_groups else 0
    return File((bucket, creator), 0, 0, not fixes.first_file_is_log, rows)


def _find_own(step: Step) -> Instant | None:
    """Return the inflight instant of the process; None if the process may not publish it."""
    state, process = step.state, step.process
    found = state.find(process.instant)
    if process.instant != process.beat or found is None:
        return None
    if found.phase is not Phase.INFLIGHT or found.attempt != process.attempt:
        return None
    if any(i.target == process.instant for i in state.pending(Action.ROLLBACK)):
        return None
    if state.pending(Action.RESTORE) or process.batch in step.table.batches():
        return None
    if not all(step.table.completed_at(name) for name in process.base):
        return None
    return found


def _conflicts(step: Step, ours: Instant) -> bool:
    """Whether a write that completed after our base was loaded touched our bucket.

    A commit to the same file group is no conflict for the commit of a non-blocking writer.
    """
    wrote = step.process.wrote
    assert wrote is not None
    is_shared = step.rules.is_non_blocking and ours.action is Action.COMMIT
    for theirs in step.state.completed(*WRITES):
        is_new = theirs.name not in step.process.base
        groups = {f.group for f in theirs.wrote} - ({wrote.group} if is_shared else set())
        same_bucket = any(bucket == wrote.group[0] for bucket, _ in groups)
        is_other_action = theirs.action is not ours.action and not step.rules.is_copy_on_write
        if is_new and same_bucket and not is_other_action:
            return True
    return False


def _completed(step: Step) -> Instant:
    process, found = step.process, step.state.find(step.process.instant)
    assert process.wrote is not None
    pending = found or Instant(process.instant, Action.COMMIT, Phase.INFLIGHT)
    return pending._replace(
        phase=Phase.COMPLETED,
        completed_at=process.completed_at,
        attempt=process.attempt,
        wrote=frozenset({process.wrote}),
        batch=process.batch if pending.action is Action.COMMIT else 0,
    )


def _acknowledged(step: Step, state: State) -> State:
    batch = step.process.batch
    return state._replace(acknowledged=state.acknowledged | ({batch} if batch else set()))


def _unanswered(step: Step, state: State) -> State:
    """Retry from the check of the lease, or give up."""
    tries = step.process.tries + 1
    if tries == step.rules.attempts:
        return step.fail(state)
    back = -1 if step.rules.fixes.check_lease_before_publish else 0
    return step.next(state, steps=back, tries=tries)


def _fenced(step: Step) -> State:
    """Fail because the prepared content is gone; under a valid lease only a rollback deletes it."""
    name = step.process.instant
    is_explained = not step.holds_lease or any(
        i.target == name for i in step.state.timeline if i.action is Action.ROLLBACK
    )
    return step.fail() if is_explained else step.go("fenced without a reason")
