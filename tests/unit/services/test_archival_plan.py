"""An archival plan removes the right instants from the active timeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.services.archival_plan import ArchivalPolicy, is_due, limit_of_metadata_table, plan
from lakemark.services.cleaning_plan import CleaningPolicy, commits_by_request
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline import Timeline

V9 = FormatVersion.V9
POLICY = ArchivalPolicy(2, 4, delta_commits_to_compact=2)


def time(number: int, millis: int = 0) -> str:
    return str(20260101000000000 + number * 10 + millis)


def done(number: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(time(number), action, State.COMPLETED, time(number, 5))


def timeline(*instants: Instant) -> Timeline:
    return Timeline.of(instants)


def names(chosen: tuple[Instant, ...]) -> list[str]:
    return [instant.requested_at for instant in chosen]


COMMITS = [done(number) for number in range(1, 7)]


def test_from_more_than_the_most_down_to_the_fewest() -> None:
    assert not is_due(timeline(*COMMITS[:4]), POLICY)
    assert plan(timeline(*COMMITS[:4]), POLICY, V9) == ()
    assert plan(timeline(*COMMITS), POLICY, V9) == tuple(COMMITS[:4])


def test_cleans_and_rollbacks_go_with_the_commits_around_them() -> None:
    clean, rollback, late = (
        done(15, Action.CLEAN),
        done(16, Action.ROLLBACK),
        done(65, Action.CLEAN),
    )
    ten = [done(number * 10) for number in range(1, 7)]
    chosen = plan(timeline(*ten, clean, rollback, late), POLICY, V9)
    assert chosen == (ten[0], clean, rollback, *ten[1:4])


@pytest.mark.parametrize(
    ("instant", "left"),
    [
        (Instant(time(4), Action.COMPACTION, State.REQUESTED), [1, 2]),
        (Instant(time(0), Action.COMPACTION, State.REQUESTED), []),
        (Instant(time(3), Action.CLUSTERING, State.INFLIGHT), [1]),
        (done(3, Action.SAVEPOINT), [1, 2]),
    ],
)
def test_nothing_from_a_pending_write_or_savepoint_on(instant: Instant, left: list[int]) -> None:
    others = [c for c in COMMITS if c.requested_at != instant.requested_at or instant.is_completed]
    assert names(plan(timeline(*others, instant), POLICY, V9)) == [time(number) for number in left]


def test_what_completed_beside_a_pending_write_stays() -> None:
    pending = Instant(time(4), Action.COMMIT, State.INFLIGHT)
    late = replace(COMMITS[1], completed_at=time(4, 1))
    before = timeline(COMMITS[0], late, COMMITS[2], pending, *COMMITS[4:])
    assert names(plan(before, ArchivalPolicy(1, 2), V9)) == [time(1)]
    early = timeline(*COMMITS[:3], pending, *COMMITS[4:])
    assert names(plan(early, ArchivalPolicy(1, 2), V9)) == [time(1), time(2)]


@pytest.mark.parametrize("action", [Action.RESTORE, Action.INDEXING])
def test_no_active_instant_is_older_than_an_archived_commit(action: Action) -> None:
    between = done(15, action)
    ten = [done(number * 10) for number in range(1, 7)]
    assert plan(timeline(*ten, between), POLICY, V9) == (ten[0], between, *ten[1:4])
    assert plan(timeline(*ten, between), POLICY, FormatVersion.V6) == tuple(ten[:4])


def test_a_pending_clean_holds_back_what_is_newer_unless_logs_name_their_slice() -> None:
    pending = Instant(time(3), Action.CLEAN, State.INFLIGHT)
    others = [commit for commit in COMMITS if commit.requested_at != time(3)]
    assert names(plan(timeline(*others, pending), ArchivalPolicy(1, 2), V9)) == [time(1), time(2)]
    in_version_6 = plan(timeline(*others, pending), ArchivalPolicy(1, 2), FormatVersion.V6)
    assert in_version_6 == tuple(others[:-1])


def test_a_pending_savepoint_holds_nothing_back() -> None:
    pending = Instant(time(1), Action.SAVEPOINT, State.INFLIGHT)
    assert plan(timeline(*COMMITS, pending), POLICY, V9) == tuple(COMMITS[:4])


def test_what_the_trigger_of_compactions_counts_stays() -> None:
    deltas = [done(number, Action.DELTA_COMMIT) for number in range(1, 8)]
    assert names(plan(timeline(*deltas), POLICY, V9)) == [time(number) for number in range(1, 6)]
    compacted = timeline(*deltas[:2], done(30), *(done(n, Action.DELTA_COMMIT) for n in (40,)))
    early = ArchivalPolicy(1, 2, delta_commits_to_compact=5)
    assert names(plan(compacted, early, V9)) == [time(1), time(2)]
    never = ArchivalPolicy(2, 4, delta_commits_to_compact=50)
    assert plan(timeline(*deltas), never, V9) == ()


@given(st.lists(st.integers(0, 9), max_size=3))
def test_nothing_from_what_others_need_on(keep_from: list[int]) -> None:
    chosen = plan(timeline(*COMMITS), POLICY, V9, [time(number) for number in keep_from])
    end = min([5, *keep_from])
    assert names(chosen) == [time(number) for number in range(1, end)]


def test_what_a_clean_still_looks_at_stays() -> None:
    active = timeline(*COMMITS)
    beside = POLICY.with_commits_of_cleaning(CleaningPolicy(commits=3), active, UTC_CLOCK)
    assert (beside.min_commits, beside.max_commits) == (4, 6)
    assert POLICY.with_commits_of_cleaning(CleaningPolicy(commits=1), active, UTC_CLOCK) == POLICY
    assert POLICY.with_commits_of_cleaning(None, active, UTC_CLOCK) == POLICY


@pytest.mark.parametrize(("fewest", "most"), [(3, 3), (4, 3), (0, 3)])
def test_bounds_that_leave_nothing_to_choose_are_refused(fewest: int, most: int) -> None:
    with pytest.raises(InvalidConfig, match=f"at most {most} .* at least {fewest}"):
        ArchivalPolicy(fewest, most)


def test_a_metadata_table_keeps_what_its_data_table_shows() -> None:
    assert limit_of_metadata_table(timeline()) == []
    assert limit_of_metadata_table(timeline(*COMMITS)) == [time(1)]
    clean = Instant(time(0), Action.CLEAN, State.REQUESTED)
    assert limit_of_metadata_table(timeline(clean, *COMMITS)) == [time(0)]
    assert limit_of_metadata_table(timeline(done(0, Action.CLEAN), *COMMITS)) == [time(1)]
    savepoint = Instant(time(0), Action.SAVEPOINT, State.INFLIGHT)
    assert limit_of_metadata_table(timeline(savepoint, *COMMITS)) == [time(1)]


def test_commits_count_by_their_request() -> None:
    late = Instant(time(1), Action.COMMIT, State.COMPLETED, time(9))
    assert commits_by_request(timeline(done(2), late)) == [late, done(2)]


def test_an_index_stays_active_as_long_as_a_commit_from_before_it_was_complete() -> None:
    """Otherwise a rollback of the commit would not remove its rows from the index."""
    ten = [done(number * 10) for number in range(1, 7)]
    built = replace(done(15, Action.INDEXING), completed_at=time(51))
    first = replace(done(5, Action.INDEXING), completed_at=time(16))
    assert plan(timeline(*ten, built), POLICY, V9) == (ten[0],)
    assert plan(timeline(*ten, built, first), POLICY, V9) == ()
    early = replace(built, completed_at=time(49))
    assert plan(timeline(*ten, early), POLICY, V9) == (ten[0], early, *ten[1:4])
