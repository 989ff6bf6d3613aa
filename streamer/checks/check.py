"""A check of one thing that a pipeline needs, and how several checks run at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from queue import Empty, SimpleQueue

from lakemark.errors import Retriable


class Status(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found. If something is not suitable, the check raises an error instead.

    Attributes:
        facts: the facts, for people; "" if there are none.
        warnings: what may become a problem, each with a remedy.
    """

    facts: str = ""
    warnings: tuple[str, ...] = ()


class NotChecked(Exception):
    """The check cannot be made here; the message is the reason. The run makes it itself."""


class NoAnswer(Retriable):
    """A check did not end in time. The store or the network may just be slow."""

    def __init__(self, within_s: float) -> None:
        super().__init__(
            f"no answer within {within_s:.0f} s; check the address in the pipeline file and the "
            "network"
        )
        self.within_s = within_s


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one thing that a pipeline needs.

    Attributes:
        name: what is checked, such as ``topic orders at localhost:9092``. No two checks of a
            pipeline have the same name.
        run: makes the check, and changes nothing. It raises ``HudiError`` with the remedy if the
            thing is not suitable, and ``NotChecked`` if the check cannot be made here.
        needs: the names of the checks that must succeed before this check can be made.
    """

    name: str
    run: Callable[[], Finding]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one check.

    Attributes:
        check: the check.
        status: the result.
        text: the facts or warnings, the message of the failure, or why the check was skipped.
        failure: the error of a failed check.
    """

    check: Check
    status: Status
    text: str
    failure: Exception | None = None


def run_checks(checks: Sequence[Check], within_s: float) -> Iterator[Outcome]:
    """Run each check in its own thread, and yield the outcomes as they come.

    A check starts when the checks that it needs have succeeded, and is skipped if one of them has
    not. A check that does not end in time is abandoned, and its outcome is ``NoAnswer``.

    Args:
        checks: the checks.
        within_s: the time limit for all checks together, in seconds.
    """
    answers: SimpleQueue[Outcome] = SimpleQueue()
    deadline = time.monotonic() + within_s
    waiting, running = list(checks), dict[str, Check]()
    succeeded: dict[str, bool] = {}
    while waiting or running:
        decided = [one for one in waiting if succeeded.keys() >= set(one.needs)]
        for check in decided:
            waiting.remove(check)
            missing = next((name for name in check.needs if not succeeded[name]), None)
            if missing is None:
                running[check.name] = check
                _start(check, answers)
            else:
                succeeded[check.name] = False
                yield Outcome(check, Status.SKIPPED, f"needs: {missing}")
        if decided:
            continue  # a skipped check may decide others
        try:
            outcome = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            outcome = _no_answer(next(iter(running.values())), within_s)
        if running.pop(outcome.check.name, None) is None:
            continue  # the check was abandoned before it answered
        succeeded[outcome.check.name] = _has_succeeded(outcome)
        yield outcome


def _start(check: Check, answers: SimpleQueue[Outcome]) -> None:
    threading.Thread(
        target=lambda: answers.put(_outcome_of(check)), name=f"check of {check.name}", daemon=True
    ).start()


def _outcome_of(check: Check) -> Outcome:
    try:
        finding = check.run()
    except NotChecked as reason:
        return Outcome(check, Status.WARNING, f"not checked: {reason}", reason)
    except Exception as error:
        return Outcome(check, Status.FAILED, str(error), error)
    texts = [text for text in (finding.facts, *finding.warnings) if text]
    if finding.warnings:
        return Outcome(check, Status.WARNING, "; ".join(texts))
    return Outcome(check, Status.OK, finding.facts)


def _no_answer(check: Check, within_s: float) -> Outcome:
    error = NoAnswer(within_s)
    return Outcome(check, Status.FAILED, str(error), error)


def _has_succeeded(outcome: Outcome) -> bool:
    return outcome.status in (Status.OK, Status.WARNING) and outcome.failure is None
