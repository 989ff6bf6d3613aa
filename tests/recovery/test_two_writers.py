"""Two processes on one table: one pauses before any of its requests while the other acts.

``make test`` runs a sample, which the seed decides; ``make test-matrix`` runs all. A failure prints
the command that runs it again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence

import pytest

from tests.depth import SEED, examples
from tests.protocol.actors import Index
from tests.protocol.two_processes import ACTS, KINDS, Case, Kind, Stall, requests_of, run

#: The case to run alone, as a failure prints it.
ONE = os.environ.get("LAKEMARK_CASE", "")

#: Whether to run all cases, which are almost two million.
WHOLE = "LAKEMARK_MATRIX" in os.environ

_ACTS: Sequence[str] = tuple(ACTS)
_INDEX = ("index",)

#: How many cases to run for each kind of table, and for each kind with another index.
SAMPLE = examples(4)
SAMPLE_OF_INDEX = examples(1)
MOST_FAILURES = 5


@pytest.mark.skipif(bool(ONE) or WHOLE, reason="other cases were asked for")
@pytest.mark.parametrize("kind", KINDS.values(), ids=str)
def test_sample_of_interleavings_keeps_the_invariants(kind: Kind) -> None:
    choice = random.Random(f"{SEED} {kind}")
    if kind.index is Index.BLOOM_FILTERS:
        check_each(_drawn(kind, choice) for _ in range(SAMPLE))
    else:
        check_each(_drawn_with_index(kind, choice) for _ in range(SAMPLE_OF_INDEX))


@pytest.mark.parametrize("first", ACTS if WHOLE else ())
@pytest.mark.parametrize("second", ACTS if WHOLE else ())
@pytest.mark.parametrize("kind", KINDS.values() if WHOLE else (), ids=str)
def test_all_interleavings_keep_the_invariants(kind: Kind, first: str, second: str) -> None:
    stops = range(requests_of(kind, first))
    check_each(Case(kind, first, second, stop, stall) for stop in stops for stall in Stall)


@pytest.mark.skipif(not ONE, reason="LAKEMARK_CASE names none")
def test_one_interleaving_keeps_the_invariants() -> None:
    run(Case.parse(ONE))


def check_each(cases: Iterable[Case]) -> None:
    """Run the cases, and print for each failure how to run it alone."""
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


def _drawn(
    kind: Kind, choice: random.Random, first: Sequence[str] = _ACTS, second: Sequence[str] = _ACTS
) -> Case:
    """Draw a case of these acts; only the requests of drawn acts are counted."""
    act = choice.choice(first)
    while not requests_of(kind, act):
        act = choice.choice(first)
    stop = choice.randrange(requests_of(kind, act))
    return Case(kind, act, choice.choice(second), stop, choice.choice([*Stall]))


def _drawn_with_index(kind: Kind, choice: random.Random) -> Case:
    """Draw a case in which one of the processes creates or drops the index."""
    if choice.random() < 0.5:
        return _drawn(kind, choice, first=_INDEX)
    return _drawn(kind, choice, second=_INDEX)
