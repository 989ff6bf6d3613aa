"""Two processes on one table, in every interleaving of the one's requests with what the other does.

``make test`` tries a sample, which the seed decides; ``make test-matrix`` tries all. A failure
prints the line with which it can be run again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable

import pytest

from tests.depth import DEPTH, SEED
from tests.protocol.two_processes import ACTS, KINDS, Case, Kind, Stall, requests_of, run

#: One case to run, as a failure names it.
ONE = os.environ.get("LAKEMARK_CASE", "")

#: Whether all cases are run; their number is six digits long.
WHOLE = "LAKEMARK_MATRIX" in os.environ

#: Of each kind of table.
SAMPLE = 4 * DEPTH
MOST_FAILURES = 5


@pytest.mark.skipif(bool(ONE) or WHOLE, reason="other cases were asked for")
@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_a_sample_of_all_interleavings(kind: Kind) -> None:
    choice = random.Random(f"{SEED} {kind}")
    check_each(_drawn(kind, choice) for _ in range(SAMPLE))


@pytest.mark.parametrize("first", ACTS if WHOLE else ())
@pytest.mark.parametrize("second", ACTS if WHOLE else ())
@pytest.mark.parametrize("kind", KINDS.values() if WHOLE else (), ids=str)
def test_all_interleavings(kind: Kind, first: str, second: str) -> None:
    stops = range(requests_of(kind, first))
    check_each(Case(kind, first, second, stop, stall) for stop in stops for stall in Stall)


@pytest.mark.skipif(not ONE, reason="LAKEMARK_CASE names none")
def test_one_interleaving() -> None:
    run(Case.parse(ONE))


def check_each(cases: Iterable[Case]) -> None:
    """Run them, and say how each that fails can be run alone."""
    failures = list[str]()
    for case in cases:
        try:
            run(case)
        except Exception as error:
            command = "pytest tests/recovery/test_two_writers.py"
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            failures.append(f"LAKEMARK_CASE='{case}' {command}\n    {what}")
        if len(failures) == MOST_FAILURES:
            break
    assert not failures, "\n" + "\n".join(failures)


def _drawn(kind: Kind, choice: random.Random) -> Case:
    """A case; the requests are counted of those acts only that are drawn."""
    act = choice.choice([*ACTS])
    while not requests_of(kind, act):
        act = choice.choice([*ACTS])
    stop = choice.randrange(requests_of(kind, act))
    return Case(kind, act, choice.choice([*ACTS]), stop, choice.choice([*Stall]))
