"""File slices of random histories: no committed file is lost, and no other file is visible."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.compaction_plan import CompactionOperation, CompactionPlan
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, LogFile, join
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.view.file_lister import DataFile
from lakemark.view.file_system_view import FileSystemView

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
        return CommitMetadata(write_stats=tuple(stats))

    @property
    def plan(self) -> CompactionPlan:
        groups = (FileGroupId(_PARTITION, file_id) for file_id in self.file_ids)
        return CompactionPlan(
            tuple(
                CompactionOperation(group=g, base_instant="", data_file=None, log_files=())
                for g in groups
            )
        )


@st.composite
def histories(draw: st.DrawFn) -> list[Event]:
    """Draw commits that overlap; in each group only the last compaction may be pending."""
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
    """Create the view of a listing with the files of every event, completed or not."""
    pending = (e for e in events if e.is_compaction and not e.completed_at)
    return FileSystemView.of(
        {_PARTITION: [file for event in events for file in event.files]},
        Timeline.of(event.instant for event in events),
        {event.requested_at: event.plan for event in pending},
    )


@settings(deadline=None)
@given(histories())
def test_every_committed_file_is_in_exactly_one_slice(events: list[Event]) -> None:
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
def test_log_belongs_to_the_newest_slice_at_its_completion(events: list[Event]) -> None:
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
@example(
    [  # a log of the newer slice was requested before that of the older slice
        Event("100", "106", ("g0",), is_compaction=False),
        Event("102", "103", ("g0",), is_compaction=False),
        Event("104", None, ("g0",), is_compaction=True),
    ]
)
def test_readers_see_all_files_while_a_compaction_is_pending(events: list[Event]) -> None:
    with_pending = view_of(events).latest_slices()
    planless = view_of([e for e in events if e.completed_at or not e.is_compaction]).latest_slices()
    assert [(s.base, s.logs) for s in with_pending] == [(s.base, s.logs) for s in planless]


@settings(deadline=None)
@given(histories())
def test_view_updated_by_commits_equals_a_new_listing(events: list[Event]) -> None:
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


@settings(deadline=None)
@given(histories(), st.integers(0, 8))
def test_archival_moves_no_file_to_another_slice(events: list[Event], count: int) -> None:
    done = [event.completed_at is not None for event in events]
    count = min(count, [*done, False].index(False), len(events) - 1)
    archived = {event.requested_at: event.completed_at for event in events[:count]}
    files = {_PARTITION: [file for event in events for file in event.files]}
    plans = {e.requested_at: e.plan for e in events if e.is_compaction and not e.completed_at}
    kept = Timeline.of((event.instant for event in events[count:]), archived_time=archived.get)
    assert _paths(FileSystemView.of(files, kept, plans)) == _paths(view_of(events))


@settings(deadline=None)
@given(histories(), st.integers(100, 116))
def test_past_view_has_no_file_requested_later(events: list[Event], moment: int) -> None:
    view, instant = view_of(events), str(moment)
    past = view.as_of(instant)
    found = {path for paths in _paths(past) for path in paths}
    assert found <= {path for paths in _paths(view) for path in paths}
    later = {f.path for e in events if e.requested_at > instant for f in e.files}
    assert not found & later
    assert _paths(view.as_of("999")) == _paths(view)


@settings(deadline=None)
@given(histories(), st.integers(100, 116))
def test_past_view_of_sequential_commits_equals_the_view_at_that_time(
    events: list[Event], moment: int
) -> None:
    serial = one_after_another(events)
    instant = str(moment)
    then = [event for event in serial if event.requested_at <= instant]
    past = view_of(serial).as_of(instant)
    assert _paths_read(past) == _paths_read(view_of(then))


@settings(deadline=None)
@given(histories())
def test_both_layouts_give_the_same_slices_for_one_history(events: list[Event]) -> None:
    serial = one_after_another(events)
    by_completion = view_of(serial).file_groups()
    by_name = view_of_version_6(serial).file_groups()
    assert [g.id for g in by_name] == [g.id for g in by_completion]
    for old, new in zip(by_name, by_completion, strict=True):
        assert [s.base_instant for s in old.slices] == [s.base_instant for s in new.slices]
        assert [len(s.logs) for s in old.slices] == [len(s.logs) for s in new.slices]
        assert [s.base for s in old.slices] == [s.base for s in new.slices]


def one_after_another(events: list[Event]) -> list[Event]:
    """Complete each commit before the next request; compactions may stay pending."""
    return [
        replace(
            event,
            requested_at=str(100 + 2 * number),
            completed_at=str(101 + 2 * number)
            if event.completed_at or not event.is_compaction
            else None,
        )
        for number, event in enumerate(events)
    ]


def view_of_version_6(events: list[Event]) -> FileSystemView:
    """Convert a history to version 6, where a log is named after its slice."""
    files: list[DataFile] = []
    slice_of: dict[str, str] = {}
    for number, event in enumerate(events):
        for file_id in event.file_ids:
            if event.is_compaction:
                slice_of[file_id] = event.requested_at
            start = slice_of.setdefault(file_id, event.requested_at)
            name = LogFileName(file_id, start, number + 1, "0-0-0")
            if not event.is_compaction:
                files.append(LogFile(_PARTITION, name, 1))
        files += event.files if event.is_compaction else []
    pending = {e.requested_at: e.plan for e in events if e.is_compaction and not e.completed_at}
    timeline = Timeline.of(event.instant for event in events)
    return FileSystemView.of({_PARTITION: files}, timeline, pending, version=FormatVersion.V6)


def _paths_read(view: FileSystemView) -> list[list[str]]:
    return [
        [file.path for file in [file_slice.base, *file_slice.logs] if file is not None]
        for file_slice in view.latest_slices()
    ]


def _paths(view: FileSystemView) -> list[list[str]]:
    return [
        [file.path for file in [file_slice.base, *file_slice.logs] if file is not None]
        for group in view.file_groups()
        for file_slice in group.slices
        if file_slice.base or file_slice.logs
    ]
