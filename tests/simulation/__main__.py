"""Simulate histories: ``python -m tests.simulation --minutes 10``, or ``--seed N`` for one."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
import traceback

from tests.depth import SEED
from tests.simulation.history import Drawn, History


def main() -> int:
    """Run what the command line asks for; 1 if a history failed."""
    _fix_hashes()
    logging.disable()
    arguments = _parse()
    if arguments.seed is not None:
        return int(not _run(arguments.seed, is_printed=True)[0])
    return _run_many(arguments.first, arguments.minutes, arguments.histories)


def _run_many(first: int, minutes: float, most: int | None) -> int:
    failed, steps, histories, began = list[int](), 0, 0, time.monotonic()
    while time.monotonic() - began < 60 * minutes and histories != most:
        is_good, its_steps = _run(first + histories)
        steps, histories = steps + its_steps, histories + 1
        if not is_good:
            failed.append(first + histories - 1)
    took_s = time.monotonic() - began
    print(
        f"{histories} histories from seed {first} on, {steps} steps, in {took_s:.0f} s; "
        f"{len(failed)} failed: {failed}"
    )
    return int(bool(failed))


def _run(seed: int, *, is_printed: bool = False) -> tuple[bool, int]:
    """Run one history; whether it is good, and its steps."""
    history = History(Drawn.of(seed))
    try:
        history.run()
    except Exception as error:  # noqa: BLE001 - a KeyError is as much of a fault
        if is_printed:
            _print(history)
            traceback.print_exc(file=sys.stdout)
        print(f"FAILED {history.drawn}")
        print(f"    {type(error).__name__}: {str(error)[:300]}", flush=True)
        return False, history.steps
    if is_printed:
        _print(history)
    return True, history.steps


def _print(history: History) -> None:
    for number, step in enumerate(history.trace):
        print(f"{number:6} {step}")


def _fix_hashes() -> None:
    """Begin again with hashes of strings that are the same each time: sets are ordered by them."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this history, and print it")
    parser.add_argument("--first", type=int, default=SEED, help="the first seed (LAKEMARK_SEED)")
    parser.add_argument("--minutes", type=float, default=1.0, help="run new seeds for so long")
    parser.add_argument("--histories", type=int, help="at most so many")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
