"""How much the tests try, and from which seed they draw. Both come from the environment.

``LAKEMARK_DEPTH`` multiplies the examples of every property; above 1, each matrix that ``make
test`` samples runs whole. ``LAKEMARK_SEED`` is where everything random begins. Without it, each
run draws another seed. The header of a run shows both, so that a failure can be repeated.
"""

from __future__ import annotations

import os
import random

#: Set for the worker processes of this run, too: they inherit the environment.
SEED = int(os.environ.setdefault("LAKEMARK_SEED", str(random.SystemRandom().randrange(2**31))))

DEPTH = int(os.environ.get("LAKEMARK_DEPTH", "1"))

#: Whether a matrix runs whole, not a sample of it.
EVERYTHING = DEPTH > 1


def examples(usual: int) -> int:
    """How many examples a property tries, given how many it tries in ``make test``."""
    return usual * DEPTH
