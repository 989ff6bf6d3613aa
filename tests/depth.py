"""How many cases the tests try, and the seed of their random choices; both from the environment.

``LAKEMARK_DEPTH`` multiplies the examples of every property; above 1, each matrix that ``make
test`` samples runs whole. ``LAKEMARK_SEED`` is the seed of all random choices. Without it, each run
generates a seed. The header of a run shows both, so that a failure can be repeated.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

#: Set for the worker processes of this run, too: they inherit the environment.
SEED = int(os.environ.setdefault("LAKEMARK_SEED", str(random.SystemRandom().randrange(2**31))))

DEPTH = int(os.environ.get("LAKEMARK_DEPTH", "1"))

#: Whether a matrix runs whole, not a sample of it.
EVERYTHING = DEPTH > 1


def sample(cases: Iterable[T], one_in: int) -> list[T]:
    """Draw one of every ``one_in`` consecutive cases by the seed.

    Above depth 1 return all of them.
    """
    listed = list(cases)
    if EVERYTHING:
        return listed
    drawn = random.Random(SEED)
    return [drawn.choice(listed[first : first + one_in]) for first in range(0, len(listed), one_in)]


def examples(usual: int) -> int:
    """Return how many examples a property tries; ``usual`` is the number in ``make test``."""
    return usual * DEPTH
