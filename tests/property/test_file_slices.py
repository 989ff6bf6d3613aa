"""File slices of random histories: nothing committed is lost, nothing else is seen."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from table.model.action import Action, State
from table.model.commit_metadata import CommitMetadata, WriteStat
from table.model.compaction_plan import CompactionOperation, CompactionPlan
from table.model.file_names import BaseFileName, LogFileName
from table.model.file_slice import BaseFile, FileGroupId, LogFile, join
from table.model.instant import Instant
from table.timeline.timeline import Timeline
from table.view.file_lister import DataFile
from table.view.file_system_view import FileSystemView

_PARTITION = "p"
_GROUPS = ("g0", "g1")


@dataclass(frozen=True)
class Event:
    """A commit that wrote one file to each of some groups, or a compaction of these."""

    requested_at: str
    completed_at: str | None
    file_ids: tuple[str, ...]
    is_compaction: bool

    @property
    def instant(self) -> Instant:
        action = Action.COMPACTION if self.is_compaction else Action.DELTA_COMMIT
        pending = Instant(self.requested_at, action, State.INFLIGHT)
        return pending.completed(self.completed_at) if self.completed_at else pending

    @property
    def files(self) -> list[DataFile]:
        return [
            BaseFile(_PARTITION, BaseFileName(file_id, "0-0-0", self.requested_at), 1)
            if self.is_compaction
            else LogFile(_PARTITION, LogFileName(file_id, self.requested_at, 1, "0-0-0"), 1)
            for file_id in self.file_ids
        ]

    @property
    def metadata(self) -> CommitMetadata:
        stats = (WriteStat(path=join(_PARTITION, str(file.name))) for file in self.files)
        return CommitMetadata(tuple(stats))

    @property
    def plan(self) -> CompactionPlan:
        groups = (FileGroupId(_PARTITION, file_id) for file_id in self.file_ids)
        return CompactionPlan(tuple(CompactionOperation(g, "", None, ()) for g in groups))


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Commits that overlap at will; of each group at most the last compaction is pending."""
    count = draw(st.integers(1, 8))
    times = draw(st.permutations(range(100, 100 + 2 * count)))
    pairs = sorted(sorted(times[2 * i : 2 * i + 2]) for i in range(count))
    events: list[Event] = []
    free = set(_GROUPS)
    for requested, completed in pairs:
        file_ids = draw(st.lists(st.sampled_from(_GROUPS), unique=True, min_size=1))
        is_compaction = draw(st.booleans()) and free.issuperset(file_ids)
        is_complete = draw(st.booleans())
        if is_compaction:
            free -= set(file_ids) if not is_complete else set()
        done = str(completed) if is_complete else None
        events.append(Event(str(requested), done, tuple(file_ids), is_compaction))
    return events


def view_of(events: list[Event]) -> FileSystemView:
    """The view of a listing that shows the files of every event, dead or alive."""
    pending = (e for e in events if e.is_compaction and not e.completed_at)
    return FileSystemView.of(
        {_PARTITION: [file for event in events for file in event.files]},
        Timeline.of(event.instant for event in events),
        {event.requested_at: event.plan for event in pending},
    )


@settings(deadline=None)
@given(histories())
def test_every_committed_file_is_in_one_slice_and_no_other_is(events: list[Event]) -> None:
    found = [
        file
        for group in view_of(events).file_groups()
        for file_slice in group.slices
        for file in [file_slice.base, *file_slice.logs]
        if file is not None
    ]
    committed = [file for event in events if event.completed_at for file in event.files]
    assert sorted(f.path for f in found) == sorted(f.path for f in committed)


@settings(deadline=None)
@given(histories())
def test_a_log_completed_while_its_slice_was_the_newest(events: list[Event]) -> None:
    completion = {event.requested_at: event.completed_at or "" for event in events}
    for group in view_of(events).file_groups():
        following_starts = [*(s.base_instant for s in group.slices[1:]), "999"]
        for file_slice, following in zip(group.slices, following_starts, strict=False):
            for log in file_slice.logs:
                own_start = file_slice.base_instant == log.name.instant
                assert own_start or file_slice.base_instant < completion[log.name.instant]
                assert completion[log.name.instant] < following


@settings(deadline=None)
@given(histories())
def test_readers_lose_nothing_while_a_compaction_is_pending(events: list[Event]) -> None:
    with_pending = view_of(events).latest_slices()
    planless = view_of([e for e in events if e.completed_at or not e.is_compaction]).latest_slices()
    assert [(s.base, s.logs) for s in with_pending] == [(s.base, s.logs) for s in planless]


@settings(deadline=None)
@given(histories())
def test_a_writer_who_never_lists_again_sees_the_same(events: list[Event]) -> None:
    view = FileSystemView(Timeline(()))
    steps: list[tuple[str, bool, Event]] = []
    for event in events:
        if event.is_compaction:
            steps.append((event.requested_at, False, event))
        if event.completed_at:
            steps.append((event.completed_at, True, event))
    for _, is_completion, event in sorted(steps, key=lambda step: step[:2]):
        if is_completion:
            view = view.with_commit(event.instant, event.metadata)
        else:
            view = view.with_compaction_plan(event.requested_at, event.plan)

    listed = view_of(events)
    sizeless = {file.path for event in events for file in event.files}
    assert _paths(view) == _paths(listed)
    assert _paths(view.without_files(sizeless)) == []


def _paths(view: FileSystemView) -> list[list[str]]:
    return [
        [file.path for file in [file_slice.base, *file_slice.logs] if file is not None]
        for group in view.file_groups()
        for file_slice in group.slices
        if file_slice.base or file_slice.logs
    ]
