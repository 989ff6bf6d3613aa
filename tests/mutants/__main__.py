"""Tries the mutants: ``python -m tests.mutants [WORD ...]``.

A mutant is tried if its file name and description together contain each of the words. The command
fails if a mutant has another result than the list says, or if a test that killed a mutant also
fails without a change.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.depth import SEED
from tests.mutants import trial
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.trial import Outcome, Trial


class Verdict(Enum):
    """What the tests of a mutant show."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    WITHOUT_EFFECT = "no effect"
    NOT_SO_WITHOUT_EFFECT = "KILLED, although listed as one without effect"
    DOES_NOT_APPLY = "DOES NOT APPLY"
    NO_TESTS = "HAS NO TESTS THAT RUN"


#: What may be; any other verdict fails the command.
EXPECTED = frozenset({Verdict.KILLED, Verdict.WITHOUT_EFFECT})


@dataclass(frozen=True)
class Result:
    """The result of a mutant that was tried."""

    mutant: Mutant
    verdict: Verdict
    outcome: Outcome

    @property
    def is_expected(self) -> bool:
        """Whether the verdict is as the list says."""
        return self.verdict in EXPECTED

    def __str__(self) -> str:
        killer = f"\n    by {self.outcome.failed[0]}" if self.outcome.failed else ""
        return f"{self.verdict.value} ({self.outcome.seconds:.1f} s): {self.mutant}{killer}"


def judge(mutant: Mutant, outcome: Outcome) -> Verdict:
    """Derive the verdict from the outcome of a mutant's tests."""
    if outcome.failed:
        return Verdict.NOT_SO_WITHOUT_EFFECT if mutant.survives else Verdict.KILLED
    if outcome.broken or not outcome.passed:
        return Verdict.NO_TESTS
    return Verdict.WITHOUT_EFFECT if mutant.survives else Verdict.SURVIVED


def try_all(mutants: Sequence[Mutant], folder: Path, workers: int) -> Iterator[Result]:
    """Try the mutants, ``workers`` at a time; yield each result when its tests end."""
    waiting, running = list(enumerate(mutants)), dict[int, tuple[Mutant, Trial]]()
    while waiting or running:
        while waiting and len(running) < workers:
            number, mutant = waiting.pop(0)
            try:
                change = (mutant.path, mutant.source())
            except LookupError as error:
                print(error)
                yield Result(mutant, Verdict.DOES_NOT_APPLY, Outcome())
                continue
            started = trial.start(mutant.tests, folder / str(number), change=change)
            running[started.pid] = mutant, started
        for pid in _ended(running):
            mutant, ended = running.pop(pid)
            yield _result(mutant, ended)


def _ended(running: dict[int, tuple[Mutant, Trial]]) -> list[int]:
    for _, started in running.values():
        if started.is_late:
            started.kill()
    time.sleep(0.02)
    return [pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]]


def _result(mutant: Mutant, ended: Trial) -> Result:
    ended.kill()
    outcome = ended.outcome()
    result = Result(mutant, judge(mutant, outcome), outcome)
    if not result.is_expected:
        print(ended.output()[-4000:])
    shutil.rmtree(ended.folder)
    return result


def fail_without_change(tests: Sequence[str], folder: Path) -> list[str]:
    """Run the tests without a change, and return those that fail.

    Such a test kills mutants by accident.
    """
    if not tests:
        return []
    started = trial.start(tests, folder, change=None, to_the_end=True)
    os.waitpid(started.pid, 0)
    outcome = started.outcome()
    if outcome.failed or outcome.broken:
        print(started.output()[-4000:])
    return outcome.failed + outcome.broken


def chosen(words: Sequence[str]) -> list[Mutant]:
    """Return the mutants whose file name and description together contain each of the words."""
    return [mutant for mutant in MUTANTS if all(word in str(mutant) for word in words)]


def main() -> int:
    """Try the chosen mutants and print each result; return 1 if one is not as listed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    mutants, started_s = chosen(arguments.words), time.monotonic()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    print(f"{len(mutants)} mutants; to repeat: LAKEMARK_SEED={SEED}")
    trial.warm_up()
    results = []
    with tempfile.TemporaryDirectory(prefix="lakemark-mutants-") as name:
        for result in try_all(mutants, Path(name), arguments.workers):
            print(result)
            results.append(result)
        killers = {r.outcome.failed[0] for r in results if r.verdict is Verdict.KILLED}
        accidents = fail_without_change(sorted(k for k in killers if "::" in k), Path(name) / "0")
    return _report(results, accidents, time.monotonic() - started_s)


def _report(results: Sequence[Result], accidents: Sequence[str], seconds: float) -> int:
    unexpected = [result for result in results if not result.is_expected]
    for result in unexpected:
        print(f"not as listed: {result}")
    for test in accidents:
        print(f"fails without a change: {test}")
    killed = sum(result.verdict is Verdict.KILLED for result in results)
    print(f"{killed} of {len(results)} killed, {len(unexpected)} not as listed, in {seconds:.0f} s")
    return 1 if unexpected or accidents or not results else 0


if __name__ == "__main__":
    sys.exit(main())
