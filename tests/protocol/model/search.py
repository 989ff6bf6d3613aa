"""Breadth-first search of every schedule within bounds, and random walks beyond them."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tests.protocol.model.environment import happenings
from tests.protocol.model.invariants import NextCommit, violations
from tests.protocol.model.lock import renew
from tests.protocol.model.programs import programs, successors
from tests.protocol.model.state import Budget, History, Lock, Process, State
from tests.protocol.model.step import Rules, Step


@dataclass(frozen=True)
class Scenario:
    """Which processes work on which table, and how many faults may happen.

    Attributes:
        name: the name of the scenario.
        processes: the processes, each at the beginning of its first program.
        budget: the faults that may happen.
        rules: the rules that the processes follow.
        earlier: how many commits the table has before the search, one batch each.
    """

    name: str
    processes: tuple[Process, ...]
    budget: Budget
    rules: Rules = field(default_factory=Rules)
    earlier: int = 1

    def without(self, *fixes: str) -> Scenario:
        """Return the scenario without these rules."""
        return replace(self, rules=replace(self.rules, fixes=self.rules.fixes.without(*fixes)))


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Attributes:
        states: how many states it has visited.
        seconds: processor time that it took.
        is_complete: whether it has visited all states within the bounds.
        problem: the invariant that is broken at the end of the schedule; "" if none is.
        schedule: the steps that lead to the problem; no shorter schedule does.
    """

    states: int
    seconds: float
    is_complete: bool = True
    problem: str = ""
    schedule: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.problem:
            return f"nothing in {self.states} states, {self.seconds:.1f} s"
        steps = "\n".join(f"{n:4} {line}" for n, line in enumerate(self.schedule, 1))
        return f"{self.problem}, after {self.states} states:\n{steps}"


class Model:
    """The states of one scenario, and the steps between them."""

    def __init__(self, scenario: Scenario) -> None:
        self._rules = scenario.rules
        self._programs = programs(scenario.rules.fixes)
        self._next_commit = NextCommit(scenario.rules, self._programs)
        self.start = self._start(scenario)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        """List the steps that may happen next, each with its name and the state after it."""
        for number in range(len(state.processes)):
            step = Step(state, number, self._rules)
            for action, after in successors(step, self._programs):
                yield f"process {number}: {action}", after
            for after in renew(step):
                yield f"process {number}: renew", after
        yield from happenings(state)

    def problem(self, before: State, after: State) -> str:
        """Name the invariant that a step broke; "" for none."""
        found = next(violations(before, after), "")
        return found or next(iter(self._next_commit.violations(after)), "")

    def _start(self, scenario: Scenario) -> State:
        empty = State(
            clock=0,
            lock=Lock(),
            prepared=frozenset(),
            timeline=(),
            files=frozenset(),
            history=History(),
            beats=frozenset(),
            acknowledged=frozenset(),
            cursor=0,
            requests=frozenset(),
            processes=(),
            budget=Budget(),
        )
        for number in range(scenario.earlier):
            empty = self._alone(empty, Process("commit", batch=EARLIER + number))
        return empty._replace(processes=scenario.processes, budget=scenario.budget)

    def _alone(self, state: State, process: Process) -> State:
        state = state._replace(processes=(process,))
        while state.processes[0].program != "done":
            _, state = next(successors(Step(state, 0, self._rules), self._programs))
        return state


#: Batches of commits that were made before a search begins.
EARLIER = 50


def search(scenario: Scenario, most_states: int = 10_000_000) -> Found:
    """Try every schedule, the shortest first, until an invariant is broken."""
    model, began = Model(scenario), time.process_time()
    reached: dict[State, tuple[State, str] | None] = {model.start: None}
    layer = [model.start]
    while layer:
        following = []
        for state in layer:
            for what, after in model.steps(state):
                if after in reached:
                    continue
                reached[after] = (state, what)
                problem = model.problem(state, after)
                if problem:
                    seconds = time.process_time() - began
                    schedule = _schedule(reached, after)
                    return Found(len(reached), seconds, True, problem, schedule)
                following.append(after)
        if len(reached) > most_states:
            return Found(len(reached), time.process_time() - began, False)
        layer = following
    return Found(len(reached), time.process_time() - began)


def walk(scenario: Scenario, seed: int, most_steps: int = 400) -> Found:
    """Follow one random schedule."""
    chosen, model, began = random.Random(seed), Model(scenario), time.process_time()
    state, schedule = model.start, []
    for number in range(most_steps):
        steps = list(model.steps(state))
        if not steps:
            break
        what, after = chosen.choice(steps)
        schedule.append(what)
        problem = model.problem(state, after)
        if problem:
            return Found(number, time.process_time() - began, False, problem, tuple(schedule))
        state = after
    return Found(len(schedule), time.process_time() - began, False)


def _schedule(reached: Mapping[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    lines = []
    came = reached[state]
    while came is not None:
        lines.append(came[1])
        came = reached[came[0]]
    return tuple(reversed(lines))
