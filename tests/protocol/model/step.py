"""One step of a process: what it sees, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from tests.protocol.model.fixes import ALL, Fixes
from tests.protocol.model.state import Lock, Process, State
from tests.protocol.model.table import Table, table_of


@dataclass(frozen=True, slots=True)
class Rules:
    """What does not change during a search.

    Attributes:
        fixes: the rules that the processes obey.
        is_copy_on_write: the type of the table.
        lease_halves: 1, or 2 to tell a lease of which half is left, which is renewed.
        attempts: how often a publication without an answer is tried.
        kept: how many commits an archival leaves on the active timeline.
    """

    fixes: Fixes = ALL
    is_copy_on_write: bool = False
    lease_halves: int = 1
    attempts: int = 2
    kept: int = 1


@dataclass(frozen=True)
class Step:
    """A process that is about to perform the action at its program counter."""

    state: State
    number: int
    rules: Rules

    @cached_property
    def process(self) -> Process:
        """The process."""
        return self.state.processes[self.number]

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return table_of(self.state)

    @property
    def holds_lease(self) -> bool:
        """Whether its lease is valid."""
        return self.state.holds_lease(self.number)

    def next(self, state: State | None = None, steps: int = 1, **remembered: Any) -> State:
        """It remembers this, and goes on in its program."""
        process = self.process._replace(step=self.process.step + steps, **remembered)
        return (self.state if state is None else state).with_process(self.number, process)

    def go(self, program: str, state: State | None = None, **remembered: Any) -> State:
        """It remembers this, and begins another program."""
        process = self.process._replace(program=program, step=0, **remembered)
        return (self.state if state is None else state).with_process(self.number, process)

    def fail(self, state: State | None = None) -> State:
        """What it does here raises: the program that handles that begins."""
        return self.go(f"{self.process.program} failed", state)

    def with_clock(self) -> State:
        """The state after a time was generated: ``clock`` is that time."""
        return self.state._replace(clock=self.state.clock + 1)


#: Performs an action; every state that may follow, none while the process has to wait.
Perform: TypeAlias = Callable[[Step], Iterable[State]]


def lock_of(step: Step) -> Lock:
    """A lock file that shows a new lease of the process."""
    return Lock(step.number, step.rules.lease_halves)
