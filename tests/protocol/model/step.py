"""One step of a process: the state that it sees, and the state after it."""

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
    """The parameters that stay the same during a search.

    Attributes:
        fixes: the rules that the processes follow.
        is_copy_on_write: the type of the table.
        is_non_blocking: whether commits may write to the same file groups at the same time.
        lease_halves: 1, or 2 if a process renews its lease when half of it remains.
        attempts: how often a publication without an answer is tried.
        kept: how many commits an archival keeps on the active timeline.
    """

    fixes: Fixes = ALL
    is_copy_on_write: bool = False
    is_non_blocking: bool = False
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
        """Set these variables, and advance the process in its program."""
        process = self.process._replace(step=self.process.step + steps, **remembered)
        return (self.state if state is None else state).with_process(self.number, process)

    def go(self, program: str, state: State | None = None, **remembered: Any) -> State:
        """Set these variables, and start another program."""
        process = self.process._replace(program=program, step=0, **remembered)
        return (self.state if state is None else state).with_process(self.number, process)

    def fail(self, state: State | None = None) -> State:
        """Start the program that handles an error of the current program."""
        return self.go(f"{self.process.program} failed", state)

    def with_clock(self) -> State:
        """Return the state after a time was generated: ``clock`` is that time."""
        return self.state._replace(clock=self.state.clock + 1)


#: Performs an action, and yields every state that may follow; none while the process must wait.
Perform: TypeAlias = Callable[[Step], Iterable[State]]


def lock_of(step: Step) -> Lock:
    """Return a lock file with a new lease of the process."""
    return Lock(step.number, step.rules.lease_halves)
