"""Which pending commits of a metadata table may be undone."""

from __future__ import annotations

import pytest

from lakemark.metadata.abandoned_commits import abandoned_commits
from lakemark.metadata.valid_instants import initial
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline

AT = "20260303120000000"
PENDING = Instant(AT, Action.DELTA_COMMIT, State.INFLIGHT)


@pytest.mark.parametrize(
    ("data", "is_abandoned"),
    [
        (None, True),
        (Instant(AT, Action.DELTA_COMMIT, State.COMPLETED, "20260303120001000"), True),
        (Instant(AT, Action.CLEAN, State.COMPLETED, "20260303120001000"), True),
        (Instant(AT, Action.DELTA_COMMIT, State.INFLIGHT), False),
        (Instant(AT, Action.COMPACTION, State.REQUESTED), False),
        (Instant(AT, Action.ROLLBACK, State.INFLIGHT), False),
        (Instant(AT, Action.INDEXING, State.REQUESTED), False),
    ],
)
def test_a_commit_is_abandoned_unless_its_data_instant_is_pending(
    data: Instant | None, is_abandoned: bool
) -> None:
    found = abandoned_commits(Timeline.of([PENDING]), Timeline.of([data] if data else []))
    assert found == ([PENDING] if is_abandoned else [])


@pytest.mark.parametrize(
    "pending",
    [
        Instant(f"{AT}004", Action.DELTA_COMMIT, State.INFLIGHT),
        Instant(AT, Action.COMPACTION, State.INFLIGHT),
        Instant(AT, Action.REPLACE_COMMIT, State.INFLIGHT),
        Instant(AT, Action.CLEAN, State.REQUESTED),
        Instant(AT, Action.DELTA_COMMIT, State.COMPLETED, "20260303120001000"),
    ],
    ids=str,
)
def test_only_pending_commits_of_data_instants_are_abandoned(pending: Instant) -> None:
    assert abandoned_commits(Timeline.of([pending]), Timeline.of([])) == []


def test_pending_commit_that_creates_a_partition_is_abandoned_unless_an_indexing_is_pending() -> (
    None
):
    creating = Instant(initial(2), Action.DELTA_COMMIT, State.INFLIGHT)
    indexing = Instant(AT, Action.INDEXING, State.INFLIGHT)
    assert abandoned_commits(Timeline.of([creating]), Timeline.of([])) == [creating]
    assert abandoned_commits(Timeline.of([creating]), Timeline.of([indexing])) == []


def test_a_commit_that_apache_hudi_is_rolling_back_is_left_to_apache_hudi() -> None:
    assert abandoned_commits(Timeline.of([PENDING]), Timeline.of([]), {AT}) == []
