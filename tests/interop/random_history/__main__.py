"""Run random histories: ``python -m tests.interop.random_history --commits 1000``, or ``--seed N``.

Apache Hudi takes part in them, so the command needs its environment (``make venv-spark35``).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from lakemark.model.action import COMMITS, Action
from tests.depth import SEED
from tests.interop.oracle import Oracle
from tests.interop.random_history.runs import run_history
from tests.short_lived import short_lived


def main() -> int:
    """Run the histories that the arguments name; return 1 if one failed."""
    arguments = _parse()
    seeds = count(arguments.first) if arguments.seed is None else iter([arguments.seed])
    tally, ends_at = Tally(), time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(Path(folder), environ=short_lived())
        while tally.commits < arguments.commits and time.monotonic() < ends_at:
            seed = next(seeds, None)
            if seed is None:
                break
            _run(oracle, Path(arguments.keep or folder), seed, arguments.acts, tally)
        oracle.close()
    print(tally)
    return int(bool(tally.failed))


def _run(oracle: Oracle, folder: Path, seed: int, acts: int, tally: Tally) -> None:
    """Run one history, and delete its table unless it failed."""
    path = folder / f"t{seed}"
    try:
        history = run_history(oracle, path, seed, acts)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        print(f"FAILED: python -m tests.interop.random_history --seed {seed}", flush=True)
        tally.failed.append(seed)
        return
    tally.done.update(action for _, action in history.model.seen)
    print(f"{tally.commits} commits, {history.trace[0]}", flush=True)
    shutil.rmtree(path)


@dataclass
class Tally:
    """The results of some histories.

    Attributes:
        done: how many instants of each action were completed.
        failed: the seeds of the histories that failed.
    """

    done: Counter[Action] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    @property
    def commits(self) -> int:
        """How many commits were completed, table services that rewrite files included."""
        return sum(self.done[action] for action in COMMITS)

    def __str__(self) -> str:
        actions = ", ".join(f"{times} x {action}" for action, times in self.done.items())
        return f"{actions}; {len(self.failed)} histories failed: {self.failed}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.random_history")
    parser.add_argument("--seed", type=int, help="run only this history, and print it")
    parser.add_argument("--first", type=int, default=SEED, help="the first seed (LAKEMARK_SEED)")
    parser.add_argument("--commits", type=int, default=1000, help="how many commits to run")
    parser.add_argument("--acts", type=int, default=40, help="how many acts a history has")
    parser.add_argument("--minutes", type=float, default=60.0, help="when to stop at the latest")
    parser.add_argument("--keep", help="a folder in which the tables of failed histories are kept")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
