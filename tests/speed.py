"""Prints the depth at which ``.ci/run`` ends in time on this machine.

Machines differ by a factor of three, from one day to the next, too. So two processes, as many as
the tests have, do what most tests do: small commits. Their time decides how many cases of the large
matrices run (``tests.depth``).

With ``--long-tests-within SECONDS``, prints the depth at which the long tests last no longer.

There are few depths to choose from, so that machines of about the same speed, and one machine on
different days, try the same cases of a seed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor

import pyarrow as pa

import lakemark

#: Seconds of the commits below, on a machine on which all of ``.ci/run`` lasts an hour.
USUAL_S = 1.4

#: Seconds of all long tests on that machine.
LONG_TESTS_S = 570.0

#: What no depth shortens, as a fraction of the time of ``.ci/run``.
FIXED = 0.3

#: The depths to choose from. A smaller sample than the last would say little.
DEPTHS = (1.0, 0.5, 0.25, 0.1)

_COMMITS = 60
_ROWS = pa.table({"id": [f"id {n}" for n in range(100)], "at": [*range(100)], "x": ["x"] * 100})


def depth(seconds: float) -> float:
    """Return the depth for a machine whose commits last so long."""
    return _largest_depth((USUAL_S / seconds - FIXED) / (1 - FIXED))


def depth_of_long_tests(seconds: float, left_s: float) -> float:
    """Return the depth at which the long tests last ``left_s`` seconds; see ``depth``."""
    return _largest_depth(left_s / (LONG_TESTS_S * seconds / USUAL_S))


def _largest_depth(affordable: float) -> float:
    return next((depth for depth in DEPTHS if depth <= affordable), DEPTHS[-1])


def commit_s() -> float:
    """Return the seconds of some commits in this process, after a first one that warms it up."""
    with tempfile.TemporaryDirectory() as folder:
        table = lakemark.create(
            f"{folder}/table", schema=_ROWS.schema, record_key="id", ordering="at", only_writer=True
        )
        table.upsert(_ROWS)
        began = time.monotonic()
        for _ in range(_COMMITS):
            table.upsert(_ROWS)
        return time.monotonic() - began


def main() -> None:
    """Measure, and print the depth; the measurement goes to the standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long-tests-within", type=float, metavar="SECONDS")
    left_s: float | None = parser.parse_args().long_tests_within
    with ProcessPoolExecutor(2) as pool:
        rounds = [[pool.submit(commit_s) for _ in range(2)] for _ in range(3)]
        # The first round compiles and imports; a busy moment is not the machine's speed.
        seconds = min(max(one.result() for one in both) for both in rounds)
    print(f"{_COMMITS} commits in {seconds:.1f} s on each of two processors", file=sys.stderr)
    print(depth(seconds) if left_s is None else depth_of_long_tests(seconds, left_s))


if __name__ == "__main__":
    main()
