"""Run many histories, one after another, in one process or several."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from tests.simulation.history import Drawn, History
from tests.simulation.weakened import without

#: How often a long run reports its progress.
_REPORT_EVERY_S = 60


@dataclass
class Tally:
    """The results of some histories.

    Attributes:
        histories: how many have run.
        steps: the steps of all of them.
        failed: the seeds of those that failed.
    """

    histories: int = 0
    steps: int = 0
    failed: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        counts = f"{self.histories} histories, {self.steps} steps, {len(self.failed)} failed"
        return f"{counts}: {self.failed}" if self.failed else counts

    def __add__(self, other: Tally) -> Tally:
        """Add up both results."""
        histories, steps = self.histories + other.histories, self.steps + other.steps
        return Tally(histories, steps, self.failed + other.failed)


def histories_until_failure(rule: str, first: int, most: int) -> int | None:
    """Count the histories until one fails without a rule; None if none of them fails."""
    with without(rule):
        for number in range(most):
            if not run_one(first + number)[0]:
                return number + 1
    return None


def run_all(first: int, minutes: float, most: int | None, processes: int) -> Tally:
    """Run new seeds until the time is over; each process runs its share of them.

    Args:
        first: the first seed.
        minutes: the time after which no other history begins.
        most: the most histories; None for no bound.
        processes: how many processes run at the same time.
    """
    share = None if most is None else -(-most // processes)
    run = partial(_run_share, first, processes, minutes, share)
    if processes == 1:
        return run(0)
    with get_context("spawn").Pool(processes) as pool:
        return sum(pool.map(run, range(processes)), Tally())


def _run_share(first: int, step: int, minutes: float, most: int | None, share: int) -> Tally:
    tally, began = Tally(), time.monotonic()
    reported = began
    while time.monotonic() - began < 60 * minutes and tally.histories != most:
        if time.monotonic() - reported > _REPORT_EVERY_S:
            reported = time.monotonic()
            print(f"{reported - began:.0f} s: {tally}", flush=True)
        seed = first + share + step * tally.histories
        is_good, steps = run_one(seed)
        tally += Tally(1, steps, [] if is_good else [seed])
    return tally


def run_one(seed: int, *, is_printed: bool = False) -> tuple[bool, int]:
    """Run one history, and return whether it passed, and its steps."""
    logging.disable()  # lost leases and heartbeats would log too much
    history = History(Drawn.of(seed))
    try:
        history.run()
    except Exception as error:
        if is_printed:
            _print(history)
            traceback.print_exc(file=sys.stdout)
        print(f"FAILED {history.drawn}; replay: python -m tests.simulation --seed {seed}")
        print(f"    {type(error).__name__}: {str(error)[:300]}", flush=True)
        return False, history.steps
    if is_printed:
        _print(history)
    return True, history.steps


def _print(history: History) -> None:
    for number, step in enumerate(history.trace):
        print(f"{number:6} {step}")
