"""A worker delivers notices in order, retries, and drops what cannot be delivered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from streamer import hook_worker
from streamer.events import Event, HookDropped, HookFailed, HookSent
from streamer.hook_worker import HookWorker
from streamer.hooks.hook import Hook, HookUnavailable, NoticeRefused
from streamer.hooks.notices import CommitCompleted, Notice, RunBegan, RunEnded
from tests.unit.streamer.hooks.notice_samples import BEGAN, ENDED, batch, commit
from tests.waiting import until


class Receiver:
    """A hook whose receiver fails, refuses or hangs when it is told to."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []
        self.failures = 0
        self.refused: set[str] = set()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.attempts = 0
        self.is_closed = False

    def send(self, notice: Notice, /) -> bool:
        self.attempts += 1
        self.may_answer.wait(120.0)
        if self.failures:
            self.failures -= 1
            message = "the receiver is down"
            raise HookUnavailable(message)
        if isinstance(notice, CommitCompleted) and notice.instant.requested_at in self.refused:
            message = "the receiver refuses the message"
            raise NoticeRefused(message)
        self.notices.append(notice)
        return True

    def check(self) -> str:
        return "answers"

    def close(self) -> None:
        self.is_closed = True


KINDS = (RunBegan, CommitCompleted, RunEnded)


class Scenario:
    def __init__(self, **settings: Any) -> None:
        self.receiver, self.events = Receiver(), list[Event]()
        given = {"give_up_after_s": 3600.0, **settings}
        self.worker = HookWorker("feed", KINDS, self.open, self.events.append, **given)

    def open(self) -> Hook:
        return self.receiver

    def seen(self, kind: type[Any]) -> list[Any]:
        return [one for one in self.events if isinstance(one, kind)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_worker, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(hook_worker, "LONGEST_PAUSE_S", 0.01)


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    made = Scenario()
    yield made
    made.receiver.may_answer.set()
    made.worker.end(60.0)


def test_notices_are_delivered_in_order_despite_failures(scenario: Scenario) -> None:
    scenario.receiver.failures = 3
    notices: list[Notice] = [BEGAN, commit(1), commit(2), ENDED]
    for notice in notices:
        scenario.worker.add(notice)
    until(lambda: len(scenario.receiver.notices) == 4, "all notices")
    assert scenario.receiver.notices == notices
    assert [one.failures for one in scenario.seen(HookFailed)] == [1, 2, 3]
    until(lambda: scenario.worker.announced == "20260131060000122", "the last commit")
    until(lambda: len(scenario.seen(HookSent)) == 4, "the events")


def test_add_returns_while_the_receiver_hangs(scenario: Scenario) -> None:
    scenario.receiver.may_answer.clear()
    for number in range(1, 10):
        scenario.worker.add(commit(number))
    assert not scenario.receiver.notices
    assert scenario.worker.is_progressing
    scenario.receiver.may_answer.set()
    until(lambda: len(scenario.receiver.notices) == 9, "all notices")


def test_commit_is_delivered_once_although_it_is_added_twice(scenario: Scenario) -> None:
    for number in (1, 1, 2, 1, 2):
        scenario.worker.add(commit(number))
    assert not scenario.worker.end(60.0)
    assert scenario.receiver.notices == [commit(1), commit(2)]


def test_commits_that_the_receiver_has_are_ignored(scenario: Scenario) -> None:
    scenario.worker.begin_after(commit(1).instant.requested_at)
    scenario.worker.add(commit(1))
    scenario.worker.add(commit(2))
    assert not scenario.worker.end(60.0)
    assert scenario.receiver.notices == [commit(2)]


def test_notices_of_other_kinds_are_ignored(scenario: Scenario) -> None:
    scenario.worker.add(batch())
    assert not scenario.worker.is_progressing
    assert not scenario.worker.end(60.0)
    assert scenario.receiver.attempts == 0


def test_refused_notice_is_dropped_and_the_next_one_is_sent(scenario: Scenario) -> None:
    scenario.receiver.refused = {commit(1).instant.requested_at}
    scenario.worker.add(commit(1))
    scenario.worker.add(commit(2))
    assert not scenario.worker.end(60.0)
    assert scenario.receiver.notices == [commit(2)]
    reason = "the receiver refuses the message"
    assert scenario.seen(HookDropped) == [HookDropped("feed", 1, "20260131060000121", reason)]


def test_notices_that_are_too_old_are_dropped_together() -> None:
    scenario = Scenario(give_up_after_s=1e-9)
    scenario.receiver.may_answer.clear()
    scenario.receiver.failures = 1
    for number in (1, 2, 3):
        scenario.worker.add(commit(number))
    scenario.receiver.may_answer.set()
    until(lambda: bool(scenario.seen(HookDropped)), "the drop")
    (dropped,) = scenario.seen(HookDropped)
    assert (dropped.count, dropped.instant) == (3, "20260131060000123")
    assert "the receiver is down" in dropped.reason
    assert scenario.worker.announced == "20260131060000123"
    scenario.worker.add(commit(4))
    until(lambda: scenario.receiver.notices == [commit(4)], "the next commit")


def test_oldest_notice_is_dropped_when_too_many_wait() -> None:
    scenario = Scenario(max_pending=2)
    scenario.receiver.may_answer.clear()
    for number in (1, 2, 3, 4):
        scenario.worker.add(commit(number))
    dropped = [(one.count, one.instant) for one in scenario.seen(HookDropped)]
    assert dropped == [(1, "20260131060000121"), (1, "20260131060000122")]
    scenario.receiver.may_answer.set()
    assert not scenario.worker.end(60.0)
    assert scenario.receiver.notices[-2:] == [commit(3), commit(4)]


def test_oldest_notices_are_dropped_when_their_commits_have_too_many_files() -> None:
    """Each commit of the test has two files."""
    scenario = Scenario(max_pending_files=5)
    scenario.receiver.may_answer.clear()
    for number in (1, 2, 3, 4):
        scenario.worker.add(commit(number))
    dropped = [(one.count, one.instant) for one in scenario.seen(HookDropped)]
    assert dropped == [(1, "20260131060000121"), (1, "20260131060000122")]
    assert "commits with more than 5 files" in scenario.seen(HookDropped)[0].reason
    scenario.receiver.may_answer.set()
    until(lambda: not scenario.worker.is_progressing, "all messages")
    scenario.worker.add(commit(5))
    scenario.worker.add(commit(6))
    assert not scenario.worker.end(60.0)
    assert scenario.receiver.notices[-4:] == [commit(3), commit(4), commit(5), commit(6)]


def test_hook_that_hangs_is_not_in_progress(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that has read everything waits for it only until an attempt must have ended."""
    monkeypatch.setattr(hook_worker, "LONGEST_ATTEMPT_S", 0.01)
    scenario.receiver.may_answer.clear()
    scenario.worker.add(commit(1))
    until(lambda: scenario.receiver.attempts == 1, "the attempt")
    until(lambda: not scenario.worker.is_progressing, "the end of the wait")
    scenario.worker.add(commit(2))
    scenario.receiver.may_answer.set()
    until(lambda: scenario.receiver.notices == [commit(1), commit(2)], "both commits")


def test_failing_hook_is_not_in_progress_and_ends_at_once(scenario: Scenario) -> None:
    scenario.receiver.failures = 10**9
    scenario.worker.add(commit(1))
    scenario.worker.add(ENDED)
    until(lambda: bool(scenario.seen(HookFailed)), "a failure")
    assert not scenario.worker.is_progressing
    assert not scenario.worker.end(60.0)
    assert scenario.worker.announced == "", "the next start announces the commit"
    reason = "the run ended before the receiver had them"
    assert scenario.seen(HookDropped) == [HookDropped("feed", 1, "", reason)]
    assert scenario.receiver.is_closed


def test_end_waits_for_no_receiver_that_hangs(scenario: Scenario) -> None:
    scenario.receiver.may_answer.clear()
    scenario.worker.add(commit(1))
    until(lambda: scenario.receiver.attempts == 1, "the attempt")
    assert scenario.worker.end(0.0), "its thread still waits"
    scenario.receiver.may_answer.set()
    until(lambda: scenario.receiver.is_closed, "the end of the thread")
    assert scenario.events == [], "the log of the run may be closed"


def test_hook_that_cannot_be_opened_is_opened_again(scenario: Scenario) -> None:
    opened = iter([False, False, True])

    def open_later() -> Hook:
        if next(opened):
            return scenario.receiver
        message = "no connection"
        raise OSError(message)

    scenario.worker = HookWorker("feed", KINDS, open_later, scenario.events.append, 3600.0)
    scenario.worker.add(commit(1))
    until(lambda: bool(scenario.receiver.notices), "the notice")
    assert [one.error_type for one in scenario.seen(HookFailed)] == ["OSError", "OSError"]
