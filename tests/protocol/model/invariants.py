"""The invariants of every state and every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.protocol.model.programs import FINAL, successors
from tests.protocol.model.state import WRITES, Action, Budget, Lock, Process, State
from tests.protocol.model.step import Rules, Step
from tests.protocol.model.table import Table, latest, rows_of, table_of

#: The batch of the commit that is tried once all processes have died.
NEXT_BATCH = 99

_DEAD = 9


def violations(before: State, after: State) -> Iterator[str]:
    """List the invariants that a step has broken."""
    table = table_of(after)
    yield from _of_table(table, after.acknowledged)
    if after.cursor == before.cursor:
        new = set(after.completed(*WRITES)) - set(before.completed(*WRITES))
        for instant in new:
            if instant.completed_at < before.cursor:
                yield f"instant {instant.name} completed behind the cursor of a reader"
    for number, process in enumerate(after.processes):
        if process.program in FINAL and process.program != "done":
            yield f"process {number}: {process.program}"


def _of_table(table: Table, acknowledged: frozenset[int]) -> Iterator[str]:
    lost = acknowledged - rows_of(table)
    if lost:
        yield f"acknowledged rows {sorted(lost)} are not read"
    buckets = Counter(bucket for bucket, _ in latest(table))
    for bucket, count in buckets.items():
        if count > 1:
            yield f"bucket {bucket} has {count} file groups"
    for batch, count in Counter(table.batches()).items():
        if count > 1:
            yield f"batch {batch} was committed {count} times"
    for name in acknowledged - set(table.batches()):
        yield f"the commit of batch {name} is neither active nor in the history"
    for instant in table.timeline:
        if instant.action is Action.COMPACTION and not instant.is_completed:
            if not instant.plan <= table.files:
                yield f"compaction {instant.name} cannot be executed: its files are gone"


class NextCommit:
    """Checks in any state that the table can still be written if every process dies there.

    Args:
        rules: the rules that the next process follows.
        programs: the programs of the processes.
    """

    def __init__(self, rules: Rules, programs: Mapping[str, tuple[str, ...]]) -> None:
        self._rules, self._programs = rules, programs
        self._known: dict[State, tuple[str, ...]] = {}

    def violations(self, state: State) -> tuple[str, ...]:
        """List the invariants that are broken for the next process, or after it."""
        dead = _dead(state)
        if dead not in self._known:
            self._known[dead] = tuple(self._check(dead))
        return self._known[dead]

    def _check(self, dead: State) -> Iterator[str]:
        state, process = dead, dead.processes[0]
        while process.program != "done":
            step = Step(state, 0, self._rules)
            following = next(successors(step, self._programs), None)
            if following is None:
                yield f"after all have died, the next process is stuck: {process.program}"
                return
            state = following[1]
            process = state.processes[0]
        wanted = dead.acknowledged | {NEXT_BATCH}
        for problem in _of_table(table_of(state), wanted):
            yield f"after all have died and the next process has committed: {problem}"


def _dead(state: State) -> State:
    """Return the state after every process has died and one new process has started.

    The new process recovers, compacts and commits.
    """
    queue = ("execute", "commit")
    return state._replace(
        lock=Lock(_DEAD, 0),
        beats=frozenset(),
        cursor=0,
        requests=frozenset(),
        processes=(Process("recover", queue=queue, batch=NEXT_BATCH),),
        budget=Budget(),
    )
