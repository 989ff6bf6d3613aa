"""Faults of processes and their requests: pauses, network outages, and deaths."""

from __future__ import annotations

from collections.abc import Iterator

from tests.protocol.model.commit import carry_out
from tests.protocol.model.state import State


def happenings(state: State) -> Iterator[tuple[str, State]]:
    """List the faults that may happen now, each with its name and the state after it."""
    yield from _time_passes(state)
    yield from _falls_silent(state)
    for request in sorted(state.requests, key=lambda r: r.attempt):
        left = state._replace(requests=state.requests - {request})
        what = f"the store carries out the late publication of {request.instant.name}"
        yield what, carry_out(left, request) or left


def _time_passes(state: State) -> Iterator[tuple[str, State]]:
    """Let half a lease pass without renewal, because its holder is paused or cut off."""
    lock, budget = state.lock, state.budget
    if lock.left and budget.halves:
        state = state._replace(budget=budget._replace(halves=budget.halves - 1))
        left = "has expired" if lock.left == 1 else "is half over"
        yield (
            f"the lease of process {lock.owner} {left}",
            state._replace(lock=lock._replace(left=lock.left - 1)),
        )


def _falls_silent(state: State) -> Iterator[tuple[str, State]]:
    """Pause a process for longer than its heartbeat and its lease are valid."""
    if not state.budget.silences:
        return
    for number, process in enumerate(state.processes):
        if process.beat:
            lock = state.lock
            if lock.owner == number:
                lock = lock._replace(left=0)
            budget = state.budget._replace(silences=state.budget.silences - 1)
            yield (
                f"the heartbeat of process {number} expires",
                state._replace(
                    beats=state.beats - {process.beat}, lock=lock, budget=budget
                ).with_process(number, process._replace(beat=0)),
            )
