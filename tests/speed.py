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
from tests.collection import LONG_TEST_OF_EACH_FILE

#: Seconds of the commits below, on a machine on which all of ``.ci/run`` lasts an hour.
USUAL_S = 1.4

#: Seconds of all long tests on that machine, and of one of each file.
LONG_TESTS_S = 570.0
ONE_OF_EACH_FILE_S = 190.0

#: What no depth shortens, as a fraction of the time of ``.ci/run``.
FIXED = 0.3

#: The depths to choose from. A smaller sample than the last would say little.
DEPTHS = (1.0, 0.5, 0.25, 0.1)

#: The depths of the long tests. With the last ones, long tests of only some files run.
DEPTHS_OF_LONG_TESTS = (*DEPTHS, 0.05, 0.02)

_COMMITS = 60
_ROWS = pa.table({"id": [f"id {n}" for n in range(100)], "at": [*range(100)], "x": ["x"] * 100})


def depth(seconds: float) -> float:
    """Return the depth for a machine whose commits last so long."""
    affordable = (USUAL_S / seconds - FIXED) / (1 - FIXED)
    return next((one for one in DEPTHS if one <= affordable), DEPTHS[-1])


def depth_of_long_tests(seconds: float, left_s: float) -> float:
    """Return the depth at which the long tests last ``left_s`` seconds; see ``depth``."""
    usual_s = left_s * USUAL_S / seconds
    fitting = (one for one in DEPTHS_OF_LONG_TESTS if long_tests_s(one) <= usual_s)
    return next(fitting, DEPTHS_OF_LONG_TESTS[-1])


def long_tests_s(depth: float) -> float:
    """Return how long the long tests last at a depth on the usual machine."""
    if depth < LONG_TEST_OF_EACH_FILE:
        return ONE_OF_EACH_FILE_S * depth / LONG_TEST_OF_EACH_FILE
    return ONE_OF_EACH_FILE_S + (LONG_TESTS_S - ONE_OF_EACH_FILE_S) * depth


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
