"""A compaction is due after enough delta commits."""

from __future__ import annotations

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.services.compaction_plan import CompactionPolicy, is_due
from lakemark.timeline.timeline import Timeline

POLICY = CompactionPolicy(every_delta_commits=2)


def time(number: int) -> str:
    return str(20260101000000000 + number)


def delta_commit(requested: int, completed: int) -> Instant:
    return Instant(time(requested), Action.DELTA_COMMIT, State.COMPLETED, time(completed))


BEFORE = (delta_commit(1, 2), delta_commit(3, 4))
REQUESTED = Instant(time(6), Action.COMPACTION, State.REQUESTED)
COMPLETED = Instant(time(6), Action.COMMIT, State.COMPLETED, time(20))


def test_compaction_is_due_after_enough_delta_commits() -> None:
    assert not is_due(Timeline.of(BEFORE[:1]), POLICY)
    assert is_due(Timeline.of(BEFORE), POLICY)


def test_only_delta_commits_since_the_last_request_count() -> None:
    """Only delta commits that completed after the request of the last compaction count.

    They write to the slices that the compaction opens, whether it has completed or not. The first
    of them was requested before the compaction.
    """
    after = (delta_commit(5, 7), delta_commit(8, 9))
    for compaction in (REQUESTED, REQUESTED.inflight(), COMPLETED):
        assert not is_due(Timeline.of([*BEFORE, compaction]), POLICY)
        assert not is_due(Timeline.of([*BEFORE, compaction, after[0]]), POLICY)
        assert is_due(Timeline.of([*BEFORE, compaction, *after]), POLICY)
