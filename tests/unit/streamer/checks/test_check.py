"""Checks run at the same time, wait for those that they need, and end within the time limit."""

from __future__ import annotations

import threading
import time

import pytest

from lakemark.errors import InvalidConfig
from streamer.checks import check as check_module
from streamer.checks.check import (
    Check,
    Finding,
    NoAnswer,
    NotChecked,
    Status,
    run_checks,
)


def fail(error: Exception) -> Finding:
    raise error


def statuses(checks: list[Check], within_s: float = 120.0) -> dict[str, Status]:
    return {one.check.name: one.status for one in run_checks(checks, within_s)}


def test_every_check_has_an_outcome_even_if_others_fail() -> None:
    found = statuses(
        [
            Check("last", Finding, ("after warning", "first")),
            Check("after failure", Finding, ("failure",)),
            Check("after that", Finding, ("after failure",)),
            Check("after nothing", Finding, ("nothing",)),
            Check("failure", lambda: fail(InvalidConfig("wrong"))),
            Check("defect", lambda: fail(KeyError("defect"))),
            Check("nothing", lambda: fail(NotChecked("no client"))),
            Check("first", Finding),
            Check("warning", lambda: Finding(warnings=("full soon",))),
            Check("after warning", Finding, ("warning",)),
        ]
    )
    assert found == {
        "first": Status.OK,
        "last": Status.OK,
        "after warning": Status.OK,
        "warning": Status.WARNING,
        "nothing": Status.WARNING,
        "failure": Status.FAILED,
        "defect": Status.FAILED,
        "after failure": Status.SKIPPED,
        "after that": Status.SKIPPED,
        "after nothing": Status.SKIPPED,
    }


def test_checks_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=120)

    def meet() -> Finding:
        both.wait()
        return Finding()

    assert statuses([Check("a", meet), Check("b", meet)]) == {"a": Status.OK, "b": Status.OK}


class Clock:
    """A clock that stands still between two outcomes, so that a slow machine is not late."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_checks_that_do_not_answer_are_abandoned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    ended, clock, within_s = threading.Event(), Clock(), 120.0
    monkeypatch.setattr(check_module, "time", clock)

    def wait() -> Finding:
        ended.wait(600)
        return Finding()

    checks = [Check("a", wait), Check("b", wait), Check("c", Finding, ("a",)), Check("d", Finding)]
    began, outcomes = time.monotonic(), {}
    for one in run_checks(checks, within_s):
        outcomes[one.check.name] = one
        clock.now += within_s  # the first one to answer is d
    assert time.monotonic() - began < within_s, "a and b are not waited for any more"
    ended.set()
    assert {name: one.status for name, one in outcomes.items()} == {
        "a": Status.FAILED,
        "b": Status.FAILED,
        "c": Status.SKIPPED,
        "d": Status.OK,
    }
    assert isinstance(outcomes["a"].failure, NoAnswer)
    assert outcomes["c"].text == "needs: a"


@pytest.mark.parametrize("answers_in_s", [0.0, 0.1])
def test_late_answer_of_an_abandoned_check_is_ignored(answers_in_s: float) -> None:
    def answer() -> Finding:
        time.sleep(answers_in_s)
        return Finding()

    slow = [Check(f"slow {n}", answer) for n in range(3)]
    outcomes = list(run_checks([*slow, Check("last", Finding, ("slow 0",))], 0.05))
    assert sorted(one.check.name for one in outcomes) == ["last", "slow 0", "slow 1", "slow 2"]
