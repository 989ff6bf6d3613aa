"""Each instant counts in its furthest state, and instants older than the timeline as archived."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline


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


def test_a_savepoint_and_the_commit_that_it_keeps_have_one_name_and_are_both_there() -> None:
    commit, savepoint = completed("2", "3"), completed("2", "4", Action.SAVEPOINT)
    for seen in ([commit, savepoint], [savepoint, commit]):
        timeline = Timeline.of([*seen, completed("5", "6")])
        assert timeline.find("2") == commit
        assert timeline.completed(Action.SAVEPOINT) == (savepoint,)
        assert timeline.completed(Action.DELTA_COMMIT)[0] == commit


def test_a_clean_that_stayed_behind_does_not_mark_where_the_timeline_starts() -> None:
    clean = completed("2", "3", Action.CLEAN)
    timeline = Timeline.of([clean, requested("5", Action.COMPACTION)])
    assert timeline.start == "5"
    assert timeline.is_committed("4")


def test_a_number_of_a_metadata_table_does_not_mark_where_an_archived_timeline_starts() -> None:
    """Apache Hudi gives a number to the instant of a partition that it adds after an archival."""
    numbered, commit = completed(f"{0:017d}", "8"), completed("5", "6")
    assert Timeline.of([numbered, commit]).is_committed("4")
    assert not Timeline.of([numbered, commit], has_history=False).is_committed("4")
    assert Timeline.of([numbered]).start == numbered.requested_at


def test_what_was_archived_completed_when_the_archive_says() -> None:
    archive = {"3": "8"}
    timeline = Timeline.of([completed("5", "6")], archived_time=archive.get)
    assert timeline.completed_at("3") == "8"
    assert timeline.completed_at("4") == "4", "the archive does not know it"
    assert timeline.completed_at("7") is None
    assert timeline.with_instant(completed("9", "99")).completed_at("3") == "8"
    assert timeline.without_archive().completed_at("3") == "3"


def test_a_name_in_seconds_is_found_by_the_end_of_its_second() -> None:
    old = completed("20210501123045", "20210501123046")
    timeline = Timeline.of([old])
    assert timeline.find("20210501123045999") == old
    assert timeline.find("20210501123045998") is None


def test_where_nothing_was_archived_an_instant_older_than_the_timeline_never_was() -> None:
    timeline = Timeline.of([completed("5", "6")], has_history=False)
    assert timeline.is_committed("5")
    assert not timeline.is_committed("4")
    assert timeline.completed_at("4") is None


INSTANTS = st.builds(
    lambda time, action, at: completed(time, at, action) if at else requested(time, action),
    st.sampled_from("1234"),
    st.sampled_from([Action.DELTA_COMMIT, Action.COMPACTION, Action.SAVEPOINT]),
    st.sampled_from(["", "5", "6"]),
)


@given(st.lists(INSTANTS, max_size=6), INSTANTS)
def test_an_added_instant_takes_the_place_that_a_new_listing_gives_it(
    seen: list[Instant], added: Instant
) -> None:
    timeline = Timeline.of(seen)
    expected = Timeline.of([*timeline.instants, added])
    assert timeline.with_instant(added).instants == expected.instants
