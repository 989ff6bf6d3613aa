"""Slices of table version 6: a log's name contains its slice, its blocks decide visibility."""

from __future__ import annotations

import pickle

from lakemark.model.action import Action, State
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile, data_file
from lakemark.view.file_system_view import FileSystemView

GROUP = FileGroupId("p", "g")


def completed(requested_at: str, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(requested_at, action, State.COMPLETED, f"{requested_at}5", is_legacy=True)


def pending(requested_at: str, action: Action = Action.DELTA_COMMIT) -> Instant:
    return Instant(requested_at, action, State.INFLIGHT)


def base(instant: str) -> DataFile:
    return _named(f"g_0-1-2_{instant}.parquet")


def log(instant: str, version: int = 1) -> DataFile:
    return _named(f".g_{instant}.log.{version}_0-1-2")


def _named(name: str) -> DataFile:
    file = data_file("p", name, 1)
    assert file is not None
    return file


def view_of(files: list[DataFile], *instants: Instant) -> FileSystemView:
    timeline = Timeline.of(instants)
    plan = CompactionPlan(
        (CompactionOperation(group=GROUP, base_instant="", data_file=None, log_files=()),)
    )
    plans = {i.requested_at: plan for i in timeline.pending(Action.COMPACTION)}
    return FileSystemView.of({"p": files}, timeline, plans, version=FormatVersion.V6)


def files_of(file_slice: FileSlice) -> list[DataFile]:
    return [*([file_slice.base] if file_slice.base else []), *file_slice.logs]


def test_logs_belong_to_the_slice_in_their_name() -> None:
    files = [base("10"), log("10"), log("10", 2), base("30"), log("30")]
    late = Instant("10", Action.COMMIT, State.COMPLETED, "99", is_legacy=True)
    view = view_of(files, late, completed("20"), completed("30", Action.COMMIT), completed("40"))
    (group,) = view.file_groups()
    assert [files_of(s) for s in group.slices] == [files[:3], files[3:]]
    (file_slice,) = view.latest_slices()
    assert files_of(file_slice) == files[3:]


def test_log_is_visible_although_its_newest_commit_is_pending() -> None:
    view = view_of([base("10"), log("10")], completed("10"), completed("20"), pending("30"))
    (file_slice,) = view.latest_slices()
    assert len(file_slice.logs) == 1
    counts = view.visible_instants
    assert [counts(instant) for instant in ("10", "20", "30", "40")] == [True, True, False, False]


def test_archived_commits_are_visible_and_later_ones_are_not() -> None:
    view = view_of([base("10"), log("10")], completed("20"), completed("30"))
    assert view.visible_instants("15")
    past = view.as_of("20").visible_instants
    assert [past(instant) for instant in ("10", "20", "30")] == [True, True, False]
    again = pickle.loads(pickle.dumps(past))
    assert [again(instant) for instant in ("10", "20", "30")] == [True, True, False]


def test_slice_without_base_file_is_visible_after_its_first_commit() -> None:
    files = [log("10"), log("10", 2)]
    assert view_of(files, pending("10")).latest_slices() == []
    (file_slice,) = view_of(files, completed("10"), completed("20")).latest_slices()
    assert files_of(file_slice) == files


def test_base_file_of_pending_commit_and_its_logs_are_hidden() -> None:
    view = view_of([base("10"), base("20"), log("20")], completed("10"), pending("20"))
    (file_slice,) = view.latest_slices()
    assert files_of(file_slice) == [base("10")]


def test_while_a_compaction_is_pending_its_logs_are_read_with_the_slice_before() -> None:
    files = [base("10"), log("10"), base("30"), log("30")]
    instants = [completed("10"), completed("20"), pending("30", Action.COMPACTION), completed("40")]
    view = view_of(files, *instants)
    (file_slice,) = view.latest_slices()
    assert files_of(file_slice) == [base("10"), log("10"), log("30")]
    (newest,) = view.slices_for_writing()
    assert (newest.base_instant, newest.base, newest.logs) == ("30", None, (log("30"),))
    (before,) = view.as_of("20").latest_slices()
    assert files_of(before) == [base("10"), log("10")]
    finished = view_of(files, *instants[:2], completed("30", Action.COMMIT), instants[3])
    assert files_of(finished.latest_slices()[0]) == [base("30"), log("30")]


def test_logs_of_an_abandoned_compaction_are_hidden() -> None:
    view = view_of([base("10"), log("10"), log("30")], completed("10"), completed("20"))
    (file_slice,) = view.latest_slices()
    assert files_of(file_slice) == [base("10"), log("10")]


def test_archived_files_older_than_an_active_clean_are_visible() -> None:
    clean = completed("05", Action.CLEAN)
    view = view_of([base("10"), log("10")], clean, completed("20"))
    assert len(view.latest_slices()) == 1


def test_the_tenth_log_comes_after_the_second() -> None:
    logs = [log("10", version) for version in range(1, 13)]
    view = view_of([base("10"), *reversed(logs)], completed("10"), completed("20"))
    (file_slice,) = view.latest_slices()
    assert list(file_slice.logs) == logs
