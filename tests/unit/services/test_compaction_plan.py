"""A compaction is due when the limits of its policy are reached."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileGroupId, FileSlice, LogFile
from lakemark.model.instant import Instant
from lakemark.model.partition_pattern import PartitionPattern
from lakemark.services import compaction_plan
from lakemark.services.compaction_plan import CompactionPolicy, DueWhen, TableBacklog
from lakemark.services.slice_choice import ALL_SLICES, SliceChoice
from lakemark.timeline.clock import UTC_CLOCK, TimelineClock
from lakemark.timeline.timeline import Timeline

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOTHING = Timeline(())
POLICY = CompactionPolicy(after_commits=2)


def time(number: int) -> str:
    return str(20260101000000000 + number)


def delta_commit(requested: int, completed: int) -> Instant:
    return Instant(time(requested), Action.DELTA_COMMIT, State.COMPLETED, time(completed))


def logged(instant: str, size_bytes: int = 10, partition: str = "p") -> FileSlice:
    log = LogFile(partition, LogFileName("g", instant, 1, "0-1-2"), size_bytes)
    return FileSlice(FileGroupId(partition, "g"), instant, logs=(log,))


def is_due(
    policy: CompactionPolicy,
    timeline: Timeline = NOTHING,
    slices: tuple[FileSlice, ...] = (),
    choice: SliceChoice = ALL_SLICES,
    *,
    logs_name_their_slice: bool = False,
    clock: TimelineClock = UTC_CLOCK,
) -> bool:
    backlog = TableBacklog(timeline, lambda: slices, logs_name_their_slice, clock, NOW)
    return compaction_plan.is_due(policy, choice, backlog)


BEFORE = (delta_commit(1, 2), delta_commit(3, 4))
REQUESTED = Instant(time(6), Action.COMPACTION, State.REQUESTED)
COMPLETED = Instant(time(6), Action.COMMIT, State.COMPLETED, time(20))


def test_compaction_is_due_after_enough_delta_commits() -> None:
    assert not is_due(POLICY, Timeline.of(BEFORE[:1]))
    assert is_due(POLICY, Timeline.of(BEFORE))


def test_only_delta_commits_since_the_last_request_count() -> None:
    """Only delta commits that completed after the request of the last compaction count.

    They write to the slices that the compaction opens, whether it has completed or not. The first
    of them was requested before the compaction.
    """
    after = (delta_commit(5, 7), delta_commit(8, 9))
    for compaction in (REQUESTED, REQUESTED.inflight(), COMPLETED):
        assert not is_due(POLICY, Timeline.of([*BEFORE, compaction]))
        assert not is_due(POLICY, Timeline.of([*BEFORE, compaction, after[0]]))
        assert is_due(POLICY, Timeline.of([*BEFORE, compaction, *after]))


@given(
    limits=st.tuples(*[st.none() | st.integers(1, 4)] * 3),
    reached=st.tuples(*[st.integers(0, 4)] * 3),
    when=st.sampled_from(DueWhen),
)
def test_limits_are_combined_as_the_policy_says(
    limits: tuple[int | None, int | None, int | None], reached: tuple[int, int, int], when: DueWhen
) -> None:
    commits, hours, size = reached
    policy = CompactionPolicy(
        limits[0], None if limits[1] is None else timedelta(hours=limits[1]), limits[2], when
    )
    timeline = Timeline.of(delta_commit(2 * at, 2 * at + 1) for at in range(commits))
    oldest = logged(UTC_CLOCK.format(NOW - timedelta(hours=hours)), size)
    answers = [
        known >= limit for known, limit in zip(reached, limits, strict=True) if limit is not None
    ]
    expected = not answers or (all(answers) if when is DueWhen.ALL else any(answers))
    assert is_due(policy, timeline, (logged(UTC_CLOCK.format(NOW), 0), oldest)) == expected


def test_logs_of_other_partitions_do_not_count() -> None:
    slices = (logged(time(0), 10), logged(time(1), 10, "other"))
    choice = SliceChoice(partitions=(PartitionPattern("p"),))
    by_size, by_age = (
        CompactionPolicy(None, after_log_bytes=20),
        CompactionPolicy(None, after=timedelta(hours=1)),
    )
    assert is_due(by_size, slices=slices)
    assert not is_due(by_size, slices=slices, choice=choice)
    assert is_due(by_age, slices=slices, choice=choice)
    assert not is_due(by_age, slices=slices[1:], choice=choice)
    assert not is_due(by_age, slices=()), "without logs, none is old"


def test_local_times_are_ages_in_their_zone() -> None:
    """NOW is 21:00 in Tokyo, so a log of 20:30 there is half an hour old."""
    tokyo = TimelineClock(ZoneInfo("Asia/Tokyo"))
    slices = (logged("20260101203000000"),)
    assert is_due(CompactionPolicy(None, timedelta(minutes=30)), slices=slices, clock=tokyo)
    assert not is_due(CompactionPolicy(None, timedelta(minutes=31)), slices=slices, clock=tokyo)


@pytest.mark.parametrize(
    ("instants", "has_history", "is_old"),
    [
        ([delta_commit(0, 1)], False, True),
        ([delta_commit(113000000, 113000001)], False, False),
        ([delta_commit(0, 1), COMPLETED], True, True),
        ([delta_commit(0, 1), REQUESTED], True, True),
        (
            [
                delta_commit(0, 1),
                Instant(time(113000000), Action.COMPACTION, State.REQUESTED),
            ],
            True,
            False,
        ),
        ([delta_commit(113000000, 113000001)], True, True),
    ],
    ids=["first", "new", "compacted", "planned", "planned just now", "compaction was archived"],
)
def test_in_version_6_the_last_compaction_shows_the_age(
    instants: list[Instant], has_history: bool, is_old: bool
) -> None:
    """The names of logs contain the time of their slice, which may be much older than the log."""
    policy = CompactionPolicy(None, timedelta(hours=1))
    timeline = Timeline.of(instants, has_history)
    assert is_due(policy, timeline, (logged("1"),), logs_name_their_slice=True) == is_old


@pytest.mark.parametrize(
    "limits", [{"after_commits": 0}, {"after": timedelta(0)}, {"after_log_bytes": -1}]
)
def test_limit_that_is_not_positive_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig, match="use positive limits"):
        CompactionPolicy(**limits)  # type: ignore[arg-type]
