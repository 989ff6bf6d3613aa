"""Simulate histories: ``python -m tests.simulation --minutes 10``, or ``--seed N`` for one."""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.depth import SEED
from tests.simulation.runs import histories_until_failure, run_all, run_one
from tests.simulation.weakened import RULES


def main() -> int:
    """Run the histories that the arguments name; return 1 if one failed."""
    _fix_hashes()
    arguments = _parse()
    if arguments.seed is not None:
        return int(not run_one(arguments.seed, is_printed=True)[0])
    if arguments.without is not None:
        most = arguments.histories or 10_000
        found = histories_until_failure(arguments.without, arguments.first, most)
        print(f"without {arguments.without}: the first failure is history {found} of {most}")
        return int(found is None)
    print(f"new seeds from {arguments.first} on (LAKEMARK_SEED)", flush=True)
    began = time.monotonic()
    tally = run_all(arguments.first, arguments.minutes, arguments.histories, arguments.processes)
    took_s = time.monotonic() - began
    print(f"{tally}, in {took_s:.0f} s: {60 * tally.histories / took_s:.0f} histories a minute")
    return int(bool(tally.failed))


def _fix_hashes() -> None:
    """Restart Python with fixed hashes of strings, because they decide the order of sets."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this history, and print it")
    parser.add_argument("--first", type=int, default=SEED, help="the first seed (LAKEMARK_SEED)")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long to run new seeds")
    parser.add_argument("--processes", type=int, default=1, help="how many to run at the same time")
    parser.add_argument("--histories", type=int, help="the most histories to run")
    parser.add_argument(
        "--without", choices=RULES, help="leave a rule out, and run until a history fails"
    )
    return parser.parse_args()


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Threads of Arrow may still release objects of the last query. If Python ends its interpreter
    # meanwhile, such a thread aborts the process (seen as status 134).
    os._exit(status)
