"""How many cases the tests try, and the seed of their random choices; both from the environment.

``LAKEMARK_DEPTH`` multiplies the examples of every property. Above 1, each matrix that ``make
test`` samples runs whole. Below 1, that fraction of each large matrix runs (``tests.collection``),
so that a slow machine runs all tests of other kinds and still ends in time. ``LAKEMARK_SEED`` is
the seed of all random choices. Without it, each run generates a seed, so later runs try other
cases. The header of a run shows both, so that a failure can be repeated.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from itertools import count, takewhile
from math import ceil
from typing import TypeVar

T = TypeVar("T")

#: Set for the worker processes of this run, too: they inherit the environment.
SEED = int(os.environ.setdefault("LAKEMARK_SEED", str(random.SystemRandom().randrange(2**31))))

DEPTH = float(os.environ.get("LAKEMARK_DEPTH", "1"))

#: Whether a matrix runs whole, not a sample of it.
EVERYTHING = DEPTH > 1


def sample(cases: Iterable[T], one_in: float = 1, name: str = "") -> list[T]:
    """Draw one of every ``one_in`` consecutive cases by the seed.

    Above depth 1, return all of them; below it, draw one of ``one_in / DEPTH``.

    Args:
        cases: the cases.
        one_in: how many consecutive cases are represented by one.
        name: what the cases belong to, so that samples with other names are independent.
    """
    listed = list(cases)
    if EVERYTHING or not listed:
        return listed
    drawn = random.Random(f"{SEED} {name}")
    step = one_in / DEPTH
    # Not ``ceil(len(listed) / step)`` of them: rounding errors may add one at the end.
    numbers = (int(number * step) for number in count())
    starts = list(takewhile(lambda start: start < len(listed), numbers))
    ends = [*starts[1:], len(listed)]
    return [drawn.choice(listed[first:end]) for first, end in zip(starts, ends, strict=True)]


def examples(usual: int) -> int:
    """Return how many examples a property tries; ``usual`` is the number in ``make test``."""
    return ceil(usual * DEPTH)
