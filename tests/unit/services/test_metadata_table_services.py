"""The retention of a metadata table follows from the policies of its data table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lakemark.metadata.valid_instants import initial
from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.metadata_table_services import MetadataPolicies, maintain
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.table_context import TableContext
from tests.table_services import new_storage


@pytest.mark.parametrize(
    ("of_data", "own"),
    [
        (CleaningPolicy(), CleaningPolicy(commits=20, hours=29, file_versions=4)),
        (CleaningPolicy(commits=30), CleaningPolicy(commits=36, hours=29, file_versions=4)),
        (
            CleaningPolicy(Retention.FILE_VERSIONS, file_versions=5),
            CleaningPolicy(Retention.FILE_VERSIONS, commits=20, hours=29, file_versions=6),
        ),
    ],
)
def test_a_fifth_more_stays_than_of_the_data_table(
    of_data: CleaningPolicy, own: CleaningPolicy
) -> None:
    assert MetadataPolicies.for_data_table(of_data).cleaning == own


def test_one_instant_more_stays_active_than_of_the_data_table_and_what_cleans_look_at() -> None:
    assert MetadataPolicies.for_data_table().archival == ArchivalPolicy(21, 31, 10)
    assert MetadataPolicies.for_data_table(None, ArchivalPolicy(40, 45)).archival == ArchivalPolicy(
        41, 46, 10
    )
    assert MetadataPolicies.for_data_table(None, ArchivalPolicy(4, 5)).archival == ArchivalPolicy(
        21, 22, 10
    )
    by_versions = CleaningPolicy(Retention.FILE_VERSIONS)
    assert MetadataPolicies.for_data_table(
        by_versions, ArchivalPolicy(4, 5)
    ).archival == ArchivalPolicy(5, 6, 10)


def test_what_cleans_still_look_at_is_not_taken_for_too_long_a_timeline_at_every_batch() -> None:
    policies = MetadataPolicies.for_data_table(CleaningPolicy(Retention.HOURS, hours=24))
    own = Timeline.of(_commit_of_hour(hours_ago) for hours_ago in range(32))
    data = Timeline.of(_commit_of_hour(hours_ago) for hours_ago in range(25))
    assert len(own.instants) > policies.archival.max_commits
    storage = new_storage()
    context = TableContext(
        storage=storage, timeline=TimelineStore(storage), lock=open_lock(storage)
    )
    assert maintain(context, own, data, policies) is None


@pytest.mark.parametrize("retention", list(Retention))
def test_nothing_is_due_in_a_metadata_table_that_was_just_made(retention: Retention) -> None:
    storage = new_storage()
    context = TableContext(
        storage=storage, timeline=TimelineStore(storage), lock=open_lock(storage)
    )
    made = Timeline.of(
        Instant(initial(number), Action.DELTA_COMMIT, State.COMPLETED, "20260303000000000")
        for number in range(3)
    )
    policies = MetadataPolicies.for_data_table(CleaningPolicy(retention))
    assert maintain(context, made, Timeline.of([]), policies) is None


def _commit_of_hour(hours_ago: int) -> Instant:
    at = datetime(2026, 3, 3, tzinfo=UTC) - timedelta(hours=hours_ago)
    time = f"{at:%Y%m%d%H%M%S}000"
    return Instant(time, Action.DELTA_COMMIT, State.COMPLETED, time)
