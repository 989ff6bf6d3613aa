"""Every pair of actions conflicts as documented, in the same and in another file group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Literal

import pytest

from lakemark.config.keys import BUCKET_COUNT, CONSISTENT_HASHING, INDEX, LOOKUP
from lakemark.errors import HudiError, WriteConflict
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata, Operation, WriteStat
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.transaction.conflicts import (
    ClusteringExecuted,
    ClusteringPlanned,
    check_conflicts,
    check_not_planned,
    earlier_unseen_commits,
)
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from tests.unit.transaction.timelines import (
    Group,
    TimelineInMaking,
    replacing,
    time_of,
    written,
)

Theirs = Literal[
    "commit",
    "delta commit",
    "compaction planned before",
    "compaction planned since",
    "replacement",
    "clean",
    "rollback",
    "planned compaction",
    "clustering at work",
    "abandoned clustering",
]
When = Literal["before ours began", "since"]

V6, V9 = FormatVersion.V6, FormatVersion.V9
OURS = (Action.COMMIT, Action.DELTA_COMMIT, Action.COMPACTION)

#: File ids of the same bucket, of another, and of a file group without a bucket.
BUCKET, SAME_BUCKET, OTHER_BUCKET = "00000001-a-0", "00000001-b-0", "00000002-a-0"
NO_BUCKET, OTHER_WITHOUT = "f1c3a-0", "f1c3b-0"


def conflict_of(ours: Action, theirs: Theirs, version: FormatVersion) -> type[HudiError] | None:
    """Return the error that our action must get after their action on the same file group."""
    if theirs in ("clean", "rollback"):
        return None
    if theirs == "abandoned clustering":
        return WriteConflict if ours is Action.COMPACTION else ClusteringPlanned
    if theirs == "clustering at work":
        return WriteConflict if ours is Action.COMPACTION else ClusteringExecuted
    if theirs == "replacement":
        return WriteConflict
    if theirs == "planned compaction":
        is_late_for_logs = ours is Action.DELTA_COMMIT and version is V6
        return WriteConflict if is_late_for_logs else None
    is_compaction = theirs.startswith("compaction")
    if ours is Action.DELTA_COMMIT and is_compaction:
        is_late_for_logs = version is V6 and theirs == "compaction planned since"
        return WriteConflict if is_late_for_logs else None
    if ours is Action.COMPACTION:
        return WriteConflict if is_compaction else None
    return WriteConflict


def act(at: TimelineInMaking, theirs: Theirs, groups: list[Group], planned: Instant | None) -> None:
    """Perform the action of another writer; ``planned`` is its compaction if already planned."""
    if theirs == "commit":
        at.commit(Action.COMMIT, written(*groups))
    elif theirs == "delta commit":
        at.commit(Action.DELTA_COMMIT, written(*groups))
    elif theirs.startswith("compaction"):
        requested = planned or at.plan_compaction(groups)
        begun = at.begin(Action.COMPACTION, requested)
        at.complete(begun, written(*groups, compacted=True))
    elif theirs == "replacement":
        at.commit(Action.REPLACE_COMMIT, replacing(*groups))
    elif theirs in ("clean", "rollback"):
        at.publish(at.begin(Action(theirs)))
    elif theirs == "planned compaction":
        at.plan_compaction(groups)
    else:
        at.plan_clustering(groups)


def outcome_of(check: Callable[[], None]) -> type[HudiError] | None:
    try:
        check()
    except HudiError as error:
        return type(error)
    return None


def meet(
    ours: Action,
    theirs: Theirs,
    when: When,
    groups: list[Group],
    version: FormatVersion,
    *,
    non_blocking: bool = False,
) -> type[HudiError] | None:
    """Write to bucket 1 in partition north next to another writer; return the error, if any."""
    at = TimelineInMaking(version)
    at.commit(Action.DELTA_COMMIT, written(("north", BUCKET)))
    planned = at.plan_compaction(groups) if theirs == "compaction planned before" else None
    if when == "before ours began":
        act(at, theirs, groups, planned)
    own = at.plan_compaction([("north", BUCKET)]) if ours is Action.COMPACTION else None
    began_with = at.load()
    mine = at.begin(ours, own)
    if when == "since":
        act(at, theirs, groups, planned)
    return outcome_of(
        lambda: check_conflicts(
            mine,
            written(("north", BUCKET), compacted=ours is Action.COMPACTION),
            began_with,
            at.load(),
            at.store,
            lambda clustering: theirs == "clustering at work",
            non_blocking=non_blocking,
        )
    )


CASES = list(product(OURS, Theirs.__args__, (V6, V9)))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("ours", "theirs", "version"), CASES)
def test_writers_of_one_file_group_conflict_by_what_they_do(
    ours: Action, theirs: Theirs, version: FormatVersion
) -> None:
    same = [("north", BUCKET)]
    assert meet(ours, theirs, "since", same, version) is conflict_of(ours, theirs, version)


@pytest.mark.parametrize(("ours", "theirs", "version"), CASES)
def test_writers_of_different_file_groups_do_not_conflict(
    ours: Action, theirs: Theirs, version: FormatVersion
) -> None:
    elsewhere = [("north", OTHER_BUCKET), ("south", BUCKET)]
    assert meet(ours, theirs, "since", elsewhere, version) is None


@pytest.mark.parametrize(("ours", "theirs", "version"), CASES)
def test_what_a_write_began_with_is_no_conflict_unless_it_is_about_to_replace_the_group(
    ours: Action, theirs: Theirs, version: FormatVersion
) -> None:
    is_clustering = theirs.endswith("clustering") or theirs == "clustering at work"
    expected = conflict_of(ours, theirs, version) if is_clustering else None
    assert meet(ours, theirs, "before ours began", [("north", BUCKET)], version) is expected


@pytest.mark.parametrize("ours", [Action.COMMIT, Action.DELTA_COMMIT])
@pytest.mark.parametrize(
    ("mine", "theirs", "is_conflict"),
    [
        (BUCKET, SAME_BUCKET, True),
        (BUCKET, OTHER_BUCKET, False),
        (BUCKET, NO_BUCKET, False),
        (NO_BUCKET, NO_BUCKET, True),
        (NO_BUCKET, OTHER_WITHOUT, False),
    ],
)
def test_two_file_groups_of_one_bucket_conflict_and_others_only_by_their_id(
    ours: Action, mine: str, theirs: str, is_conflict: bool
) -> None:
    at = TimelineInMaking()
    began_with = at.load()
    pending = at.begin(ours)
    at.commit(ours, written(("north", theirs)))
    metadata = written(("north", mine))

    def check() -> None:
        check_conflicts(pending, metadata, began_with, at.load(), at.store, lambda _: False)

    assert (outcome_of(check) is WriteConflict) == is_conflict


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("theirs", Theirs.__args__)  # type: ignore[attr-defined]
def test_logs_of_non_blocking_writer_conflict_only_if_their_file_group_is_replaced(
    ours: Action, theirs: Theirs
) -> None:
    """A compaction by a non-blocking writer conflicts like any other one."""
    expected = conflict_of(ours, theirs, V9)
    if ours is Action.DELTA_COMMIT and theirs in ("commit", "delta commit"):
        expected = None
    found = meet(ours, theirs, "since", [("north", BUCKET)], V9, non_blocking=True)
    assert found is expected


def test_other_file_group_of_a_bucket_is_a_conflict_for_non_blocking_writers() -> None:
    theirs: list[Group] = [("north", SAME_BUCKET)]
    for ours in (Action.COMMIT, Action.DELTA_COMMIT):
        found = meet(ours, "delta commit", "since", theirs, V9, non_blocking=True)
        assert found is WriteConflict


def test_a_conflict_names_both_instants_and_the_file_group() -> None:
    at = TimelineInMaking()
    began_with = at.load()
    pending = at.begin(Action.COMMIT)
    other = at.commit(Action.COMMIT, written(("north", BUCKET), ("south", BUCKET)))
    message = f"instant {pending.requested_at} and {other} both write .* 1 in partition 'south'"
    with pytest.raises(WriteConflict, match=message):
        check_conflicts(
            pending,
            written(("south", BUCKET)),
            began_with,
            at.load(),
            at.store,
            lambda _: False,
        )


def test_a_commit_that_completed_and_was_archived_since_may_have_touched_anything() -> None:
    at = TimelineInMaking()
    theirs = at.begin(Action.COMMIT)
    began_with = at.load()
    pending = at.begin(Action.COMMIT)
    done = at.complete(theirs, written(("south", OTHER_BUCKET)))
    at.storage.create(".hoodie/timeline/history/_version_", b"1")

    def check() -> None:
        metadata = written(("north", BUCKET))
        now = at.store.without(at.load(), [done])
        check_conflicts(pending, metadata, began_with, now, at.store, lambda _: False)

    with pytest.raises(WriteConflict, match="was archived after"):
        check()


def test_a_commit_that_was_rolled_back_since_is_no_conflict() -> None:
    at = TimelineInMaking()
    at.commit(Action.COMMIT, written(("north", BUCKET)))
    theirs = at.begin(Action.COMMIT)
    began_with = at.load()
    pending = at.begin(Action.COMMIT)
    at.store.forget(theirs)
    metadata = written(("north", BUCKET))
    check_conflicts(pending, metadata, began_with, at.load(), at.store, lambda _: False)


def test_a_replacement_does_not_conflict_with_its_own_plan() -> None:
    at = TimelineInMaking()
    planned = at.plan_clustering([("north", BUCKET)])
    began_with = at.load()
    pending = at.begin(Action.CLUSTERING, planned)
    metadata = written(("north", BUCKET))
    check_conflicts(pending, metadata, began_with, at.load(), at.store, lambda _: False)


@pytest.mark.parametrize("version", [V6, V9])
def test_a_planned_clustering_refuses_only_commits_to_its_groups_and_only_without_a_writer(
    version: FormatVersion,
) -> None:
    at = TimelineInMaking(version)
    planned = at.plan_clustering([("north", BUCKET)])
    for buckets, is_executed, is_refused in (
        ([("north", 1)], False, True),
        ([("south", 1), ("north", 2)], False, False),
        ([("north", 1)], True, False),
    ):

        def check(buckets: list[tuple[str, int]] = buckets, alive: bool = is_executed) -> None:
            check_not_planned(buckets, at.load(), at.store, lambda instant: alive)

        assert (outcome_of(check) is ClusteringPlanned) == is_refused
    with pytest.raises(ClusteringPlanned) as refusal:
        check_not_planned([("north", 1)], at.load(), at.store, lambda instant: False)
    assert refusal.value.planned.requested_at == planned.requested_at


# Who is waited for

#: Instants of the tests below are of today, or of long ago: those count as silent for too long.
SHARING = MultiWriter(HeartbeatPolicy(60.0, 10))
AN_AGE = HeartbeatPolicy(100 * 365 * 24 * 3600.0, 1)


@pytest.mark.parametrize("multi_writer", [None, MultiWriter(AN_AGE)])
@pytest.mark.parametrize("ours", [Action.COMMIT, Action.DELTA_COMMIT])
@pytest.mark.parametrize("theirs", [Action.COMMIT, Action.DELTA_COMMIT, Action.CLEAN])
@pytest.mark.parametrize("state", ["requested", "inflight", "completed"])
@pytest.mark.parametrize("is_earlier", [True, False])
def test_only_an_earlier_commit_that_has_yet_to_look_is_waited_for(
    multi_writer: MultiWriter | None, ours: Action, theirs: Action, state: str, is_earlier: bool
) -> None:
    at = TimelineInMaking()
    mine = None if is_earlier else at.begin(ours)
    other = at.request(theirs)
    if state != "requested":
        other = at.begin(theirs, other)
    if state == "completed":
        at.complete(other, written()) if theirs.is_write else at.publish(other)
    mine = mine or at.begin(ours)
    found = earlier_unseen_commits(mine, written(), at.load(), multi_writer, UTC_CLOCK)
    is_waited_for = multi_writer and is_earlier and state == "requested"
    expected = [other] if is_waited_for and ours is theirs is Action.COMMIT else []
    assert found == expected


def test_a_commit_that_was_requested_long_ago_has_looked_and_is_not_waited_for() -> None:
    at = TimelineInMaking()
    at.request(Action.COMMIT)
    mine = at.begin(Action.COMMIT)
    assert earlier_unseen_commits(mine, written(), at.load(), SHARING, UTC_CLOCK) == []


# Tables with a lookup index

OF_LOOKUPS = {INDEX: LOOKUP}
OF_BUCKETS = {BUCKET_COUNT: "2"}
OF_RINGS = {INDEX: CONSISTENT_HASHING}


def adding(partition: str, extra: Mapping[str, str], prev_commit: str = "null") -> CommitMetadata:
    """Return the metadata of a commit that wrote one base file, with a new key."""
    stat = WriteStat(
        file_id=NO_BUCKET,
        path=f"{partition}/{NO_BUCKET}_0-0-0_{time_of(1)}.parquet",
        partition_path=partition,
        prev_commit=prev_commit,
        num_inserts=1,
    )
    return CommitMetadata(write_stats=(stat,), extra_metadata=extra)


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT])
@pytest.mark.parametrize("prev_commit", ["null", time_of(0)])
@pytest.mark.parametrize(
    ("partition", "extra", "operation", "expected"),
    [
        ("north", OF_LOOKUPS, Operation.UPSERT, WriteConflict),
        ("south", OF_LOOKUPS, Operation.UPSERT, None),
        ("north", OF_BUCKETS, Operation.UPSERT, None),
        ("north", OF_RINGS, Operation.UPSERT, None),
        ("north", OF_LOOKUPS, "CLUSTER", None),
    ],
)
def test_commits_that_add_keys_to_one_partition_conflict_if_keys_are_looked_up(
    action: Action,
    prev_commit: str,
    partition: str,
    extra: Mapping[str, str],
    operation: str,
    expected: type[HudiError] | None,
) -> None:
    at = TimelineInMaking()
    began_with = at.load()
    mine = at.begin(action)
    ours = replace(adding("north", extra, prev_commit).write_stats[0], file_id=OTHER_WITHOUT)
    theirs = replace(adding(partition, {}, prev_commit), operation=operation)
    at.commit(action, theirs)
    metadata = CommitMetadata(write_stats=(ours,), extra_metadata=extra)
    assert expected is outcome_of(
        lambda: check_conflicts(mine, metadata, began_with, at.load(), at.store, lambda _: False)
    )


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT])
@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (Operation.BULK_INSERT, Operation.UPSERT, None),
        (Operation.BULK_INSERT, Operation.BULK_INSERT, None),
        (Operation.UPSERT, Operation.BULK_INSERT, WriteConflict),
        (Operation.INSERT, Operation.BULK_INSERT, WriteConflict),
    ],
)
def test_bulk_insert_that_adds_keys_conflicts_only_with_later_commits_that_looked_keys_up(
    action: Action, ours: Operation, theirs: Operation, expected: type[HudiError] | None
) -> None:
    at = TimelineInMaking()
    began_with = at.load()
    mine = at.begin(action)
    at.commit(action, replace(adding("north", OF_LOOKUPS), operation=theirs))
    stat = replace(adding("north", OF_LOOKUPS).write_stats[0], file_id=OTHER_WITHOUT)
    metadata = CommitMetadata(write_stats=(stat,), extra_metadata=OF_LOOKUPS, operation=ours)
    assert expected is outcome_of(
        lambda: check_conflicts(mine, metadata, began_with, at.load(), at.store, lambda _: False)
    )


@pytest.mark.parametrize(
    ("extra", "is_waited_for"), [(OF_LOOKUPS, True), (OF_BUCKETS, False), (OF_RINGS, False)]
)
def test_delta_commit_that_wrote_base_files_waits_if_keys_are_looked_up(
    extra: Mapping[str, str], is_waited_for: bool
) -> None:
    at = TimelineInMaking()
    other = at.request(Action.DELTA_COMMIT)
    mine = at.begin(Action.DELTA_COMMIT)
    ours, sharing = adding("north", extra), MultiWriter(AN_AGE)
    for metadata in (ours, replace(ours, operation=Operation.BULK_INSERT)):
        found = earlier_unseen_commits(mine, metadata, at.load(), sharing, UTC_CLOCK)
        assert found == ([other] if is_waited_for else [])
