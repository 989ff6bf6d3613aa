"""Which instants count: the furthest state of each, and what is older than the timeline."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from table.model.action import Action, State
from table.model.instant import Instant
from table.timeline.timeline import Timeline


def requested(time: str, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(time, action, State.REQUESTED)


def completed(time: str, at: str, action: Action = Action.DELTA_COMMIT) -> Instant:
    return requested(time, action).completed(at)


@given(st.permutations([requested("3"), requested("3").inflight(), completed("3", "5")]))
def test_an_instant_is_as_far_as_its_furthest_file(seen: list[Instant]) -> None:
    assert Timeline.of(seen).instants == (completed("3", "5"),)


def test_completed_instants_are_ordered_by_completion_not_by_request() -> None:
    timeline = Timeline.of([completed("1", "9"), completed("2", "4"), requested("3")])
    assert [i.requested_at for i in timeline.completed()] == ["2", "1"]
    assert [i.requested_at for i in timeline.pending()] == ["3"]


def test_an_instant_older_than_the_timeline_was_archived_so_it_is_committed() -> None:
    timeline = Timeline.of([completed("5", "6"), requested("7")])
    assert timeline.is_committed("4")
    assert not timeline.is_committed("7")
    assert not timeline.is_committed("8")


def test_a_savepoint_does_not_mark_where_the_timeline_starts() -> None:
    timeline = Timeline.of([completed("2", "3", Action.SAVEPOINT), completed("5", "6")])
    assert timeline.is_committed("4")


def test_nothing_is_committed_on_an_empty_timeline() -> None:
    assert not Timeline.of([]).is_committed("1")
    assert Timeline.of([]).newest_time is None


def test_the_newest_time_is_the_latest_of_requests_and_completions() -> None:
    assert Timeline.of([completed("1", "9"), requested("5")]).newest_time == "9"
