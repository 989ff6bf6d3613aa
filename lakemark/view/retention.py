"""Checks for time travel that the table's state as of an instant is final and still exists."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakemark.errors import InvalidConfig
from lakemark.model.action import Action, State
from lakemark.model.clean_plan import CleanPlan
from lakemark.model.file_slice import LogFile, join
from lakemark.model.instant import Instant
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_system_view import FileSystemView


def check_retained(
    timeline: Timeline,
    store: TimelineStore,
    instant: str,
    savepoint_keeps: Callable[[], bool] = lambda: False,
) -> None:
    """Check that the state as of an instant is final, and that all its files still exist.

    Args:
        timeline: the active timeline.
        store: reads the timeline's instants.
        instant: the requested time to travel to.
        savepoint_keeps: returns whether a savepoint keeps that state. It is called only if cleaning
            does not retain the state.

    Raises:
        InvalidConfig: an older commit is still pending, files of the state were cleaned
            (``TimelineUtils.validateTimestampAsOf``), or a pending clean may have deleted files.
        CorruptData: the newest clean is damaged.
    """
    pending = store.pending_writes(timeline)
    unfinished = next((i for i in pending if i.requested_at <= instant), None)
    if unfinished is not None:
        message = (
            f"the state as of {instant} is not final: {unfinished} has not completed; "
            "use an earlier instant, or wait until it has completed"
        )
        raise InvalidConfig(message)
    completed = _earliest_retained(timeline, store, instant) or ""
    retained = max(completed, _being_cleaned(timeline, store) or "")
    if instant < retained and not savepoint_keeps():
        message = (
            f"the state as of {instant} was cleaned, or a clean is deleting it; "
            f"the earliest readable instant is {retained}; "
            "let cleaning retain more commits (cleaning.commits_retained of a pipeline, "
            "hoodie.clean.commits.retained of Apache Hudi) for longer time travel"
        )
        raise InvalidConfig(message)


def savepoint_keeps(view: FileSystemView, store: TimelineStore, instant: str) -> bool:
    """Return whether a savepoint of the instant keeps all files of the state as of the instant.

    A savepoint lists the files of its slices, which may include logs that were added later, and
    logs that only a restore needs. The result is False if a listed file was deleted. It is also
    False if the slices as of the instant do not match the listed files. There are two possible
    reasons: a commit was requested before the savepoint but completed after it, or an old release
    wrote the savepoint without logs.

    Args:
        view: view of the table's latest state.
        store: reads the timeline's instants.
        instant: the requested time.
    """
    savepoint = next(
        (i for i in view.timeline.completed(Action.SAVEPOINT) if i.requested_at == instant), None
    )
    if savepoint is None:
        return False
    named = {
        join(partition, name)
        for partition, names in store.read_savepoint(savepoint).files.items()
        for name in names
    }
    existing = {file.path: file for group in view.groups.values() for file in group.files.values()}
    if not named <= existing.keys():
        return False
    of_then = {path for path in named if existing[path].name.instant <= instant}
    slices = view.as_of(instant).latest_slices()
    bases = {one.base.path for one in slices if one.base is not None}
    logs = {log.path for one in slices for log in one.logs}
    if not view.version.logs_name_their_slice:
        return of_then - _logs_of_later_slices(view, instant) == bases | logs
    named_logs = {path for path in named if isinstance(existing[path], LogFile)}
    names_logs = bool(named_logs) or not view.timeline.completed(Action.DELTA_COMMIT)
    return names_logs and of_then - named_logs == bases and named_logs <= logs


def _logs_of_later_slices(view: FileSystemView, instant: str) -> set[str]:
    """Return the logs of slices that were requested after an instant.

    Some of them may belong to commits that were requested before it; see ``FileGroup.as_of``.
    """
    slices = (one for group in view.groups.values() for one in group.slices)
    return {log.path for one in slices if one.base_instant > instant for log in one.logs}


def _earliest_retained(timeline: Timeline, store: TimelineStore, instant: str) -> str | None:
    """Return the oldest instant that all cleans retained; None if no clean is known.

    A later clean may retain older instants than an earlier one, although their files are gone. For
    example, it may count file versions after an erasure. Cleans that were requested before
    ``instant`` retain it, so that only the newest of them is read.

    If the active timeline has no clean, the newest clean may be in the archive. An archived clean
    matters only if ``instant`` is older than the active timeline. So the archive is read only in
    this case.
    """
    cleans = sorted(timeline.completed(Action.CLEAN), key=lambda i: i.requested_at)
    if not cleans and all(instant < i.requested_at for i in timeline.instants):
        archived = store.load_archived().instants()
        found = (i for i in archived if i.action is Action.CLEAN)
        cleans = sorted(found, key=lambda i: i.requested_at)
    later = [clean for clean in cleans[:-1] if clean.requested_at > instant]
    retained = (_retained_by(clean, timeline, store) for clean in [*later, *cleans[-1:]])
    return max(filter(None, retained), default=None)


def _retained_by(clean: Instant, timeline: Timeline, store: TimelineStore) -> str | None:
    metadata = store.read_clean(clean)
    if metadata is None:  # the clean may have deleted any older file, but no newer file
        return clean.requested_at
    return metadata.earliest_readable or metadata.earliest_retained or _oldest_commit(timeline)


def files_being_cleaned(timeline: Timeline, store: TimelineStore) -> frozenset[str]:
    """Return the paths of the files that inflight cleans delete, some of which may be deleted."""
    return frozenset(path for plan in _inflight_plans(timeline, store) for path in plan.paths)


def _being_cleaned(timeline: Timeline, store: TimelineStore) -> str | None:
    """Return the oldest instant that all inflight cleans retain; None if no clean is inflight.

    An inflight clean may have deleted some files of older states, so a query could silently miss
    rows. Apache Hudi checks only completed cleans.
    """
    retained = (
        plan.earliest_readable or plan.earliest_retained or _oldest_commit(timeline)
        for plan in _inflight_plans(timeline, store)
    )
    return max(filter(None, retained), default=None)


def _inflight_plans(timeline: Timeline, store: TimelineStore) -> Iterator[CleanPlan]:
    """Yield the plans of the cleans that are inflight, except lost plans."""
    inflight = [i for i in timeline.pending(Action.CLEAN) if i.state is State.INFLIGHT]
    plans = (store.read_clean_plan(clean.requested_at) for clean in inflight)
    yield from filter(None, plans)


def _oldest_commit(timeline: Timeline) -> str | None:
    """Return the oldest commit of the active timeline.

    The result is used for cleans that keep a number of file versions. Such a clean does not record
    an earliest commit to retain.
    """
    return min((i.requested_at for i in timeline.completed() if i.action.is_write), default=None)
