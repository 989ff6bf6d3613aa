"""A clean deletes exactly the slices that its policy allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId
from lakemark.model.instant import Instant
from lakemark.services.cleaning_plan import (
    CleaningPolicy,
    Retention,
    Savepointed,
    earliest_retained,
    plan,
)
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.file_system_view import FileSystemView

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
GROUP = FileGroupId("p", "g")


def time(minute: int) -> str:
    return f"202601011{minute // 60}{minute % 60:02d}00000"


def done(minute: int, action: Action = Action.COMMIT) -> Instant:
    return Instant(time(minute), action, State.COMPLETED, time(minute)[:-1] + "1")


def base(minute: int, token: str = "0-1-0") -> str:
    return f"g_{token}_{time(minute)}.parquet"


def log(minute: int, suffix: str = "") -> str:
    return f".g_{time(minute)}.log.1_0-1-0{suffix}"


def view_of(
    names: Iterable[str],
    *instants: Instant,
    compaction: int | None = None,
    replaced_at: int | None = None,
) -> FileSystemView:
    files: list[DataFile] = []
    for name in names:
        file = data_file("p", name, 1)
        assert file is not None
        files.append(file)
    operation = CompactionOperation(group=GROUP, base_instant="", data_file=None, log_files=())
    plans = {} if compaction is None else {time(compaction): CompactionPlan((operation,))}
    gone = CommitMetadata(replaced_file_ids={"p": ("g",)})
    replacements = {} if replaced_at is None else {time(replaced_at): gone}
    return FileSystemView.of({"p": files}, Timeline.of(instants, False), plans, replacements)


def deleted(
    view: FileSystemView,
    policy: CleaningPolicy,
    partitions: set[str] | None = None,
    savepointed: Savepointed | None = None,
) -> set[str]:
    earliest = earliest_retained(view.timeline, policy, NOON, UTC_CLOCK)
    planned = plan(view.timeline, view, policy, earliest, partitions, savepointed)
    return set(planned.files.get("p", ()))


COMMITS = [done(minute) for minute in (1, 2, 3, 4, 5)]
BASES = [base(minute) for minute in (1, 2, 3, 4, 5)]


def test_what_a_query_as_of_the_earliest_commit_reads_stays() -> None:
    view = view_of(BASES, *COMMITS)
    assert deleted(view, CleaningPolicy(commits=2)) == {base(1), base(2)}
    only_old = view_of([base(1), base(2)], *COMMITS)
    assert deleted(only_old, CleaningPolicy(commits=2)) == {base(1)}
    assert deleted(view, CleaningPolicy(commits=5)) == set()


def test_versions_count_the_slices_of_each_group() -> None:
    policy = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=2)
    assert deleted(view_of(BASES, *COMMITS), policy) == {base(1), base(2), base(3)}


@pytest.mark.parametrize(("hours", "gone"), [(1, {base(1), base(2)}), (2, set())])
def test_hours_count_from_now(hours: int, gone: set[str]) -> None:
    late = [done(1), done(2), done(59), done(61), done(62)]
    names = [base(1), base(2), base(59), base(61), base(62)]
    policy = CleaningPolicy(Retention.HOURS, hours=hours)
    assert deleted(view_of(names, *late), policy) == gone


def test_nothing_is_retained_by_hours_where_nothing_was_committed_in_them() -> None:
    policy = CleaningPolicy(Retention.HOURS, hours=1)
    assert deleted(view_of(BASES, *COMMITS), policy) == set()


def test_logs_go_with_their_slice() -> None:
    instants = [
        done(1, Action.DELTA_COMMIT),
        done(2, Action.DELTA_COMMIT),
        done(3),
        done(4, Action.DELTA_COMMIT),
        done(5),
        done(6, Action.DELTA_COMMIT),
        done(7),
    ]
    names = [base(1), log(2), base(3), log(4), base(5), log(6), base(7)]
    view = view_of(names, *instants)
    assert deleted(view, CleaningPolicy(commits=2)) == {base(1), log(2), base(3), log(4)}
    assert deleted(view, CleaningPolicy(commits=3)) == {base(1), log(2)}


def test_change_logs_and_lost_attempts_go_with_their_slice() -> None:
    changes = [log(minute, ".cdc") for minute in (1, 2, 3, 4, 5)]
    view = view_of([*BASES, *changes, base(1, "9-9-9")], *COMMITS)
    gone = {base(1), base(2), base(1, "9-9-9"), log(1, ".cdc"), log(2, ".cdc")}
    assert deleted(view, CleaningPolicy(commits=2)) == gone


@pytest.mark.parametrize("policy", [CleaningPolicy(commits=1), CleaningPolicy(commits=2)])
def test_a_pending_compaction_keeps_what_it_reads_and_holds_the_earliest_commit_back(
    policy: CleaningPolicy,
) -> None:
    pending = Instant(time(3), Action.COMPACTION, State.REQUESTED)
    deltas = [done(1), done(2), *(done(n, Action.DELTA_COMMIT) for n in (4, 5))]
    names = [base(1), base(2), log(4), log(5)]
    view = view_of(names, *deltas, pending, compaction=3)
    earliest = earliest_retained(view.timeline, policy, NOON, UTC_CLOCK)
    assert earliest is not None
    assert earliest.requested_at == time(2)
    assert deleted(view, policy) == set()
    versions = CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1)
    assert deleted(view, versions) == {base(1)}


def test_a_planned_compaction_keeps_what_it_reads_whatever_is_retained() -> None:
    pending = Instant(time(3), Action.COMPACTION, State.REQUESTED)
    view = view_of([base(1), base(2), log(4)], *COMMITS[:2], *COMMITS[3:], pending, compaction=3)
    planned = plan(view.timeline, view, CleaningPolicy(), COMMITS[4])
    assert set(planned.files["p"]) == {base(1)}


def test_a_planned_clustering_keeps_what_it_reads() -> None:
    view = replace(view_of(BASES, *COMMITS), clusterings={GROUP: time(6)})
    assert deleted(view, CleaningPolicy(commits=2)) == set()


def test_savepoints_keep_their_slices() -> None:
    view = view_of(BASES, *COMMITS)
    kept = Savepointed((time(1),), frozenset([base(1)]))
    assert deleted(view, CleaningPolicy(commits=2), None, kept) == {base(2)}


def test_a_savepoint_that_names_a_log_alone_keeps_its_slice() -> None:
    deltas = [done(1, Action.DELTA_COMMIT), *COMMITS[1:]]
    view = view_of([log(1), *BASES[1:]], *deltas)
    kept = Savepointed((time(1),), frozenset([log(1)]))
    assert deleted(view, CleaningPolicy(commits=2)) == {log(1), base(2)}
    assert deleted(view, CleaningPolicy(commits=2), None, kept) == {base(2)}


def test_only_the_partitions_asked_for() -> None:
    view = view_of(BASES, *COMMITS)
    assert deleted(view, CleaningPolicy(commits=2), set()) == set()
    assert deleted(view, CleaningPolicy(commits=2), {"p", "gone"}) == {base(1), base(2)}


@pytest.mark.parametrize(("retained", "gone"), [(2, {base(1), base(2)}), (3, set())])
def test_a_replaced_group_goes_once_nobody_reads_before_it(retained: int, gone: set[str]) -> None:
    instants = [*COMMITS[:2], done(3, Action.REPLACE_COMMIT), *COMMITS[3:]]
    view = view_of([base(1), base(2)], *instants, replaced_at=3)
    assert deleted(view, CleaningPolicy(commits=retained)) == gone
