"""Whether the state as of an instant can still be read, and no commit can change it any more."""

from __future__ import annotations

from table.errors import InvalidConfig
from table.model.action import COMMITS, Action
from table.timeline.timeline import Timeline
from table.timeline.timeline_store import TimelineStore


def check_retained(timeline: Timeline, store: TimelineStore, instant: str) -> None:
    """Pass when a view as of the instant shows all of the past and will show the same tomorrow.

    Args:
        timeline: the active timeline.
        store: reads its instants.
        instant: the requested time to travel to.

    Raises:
        InvalidConfig: a commit requested before it is still pending, or its files were cleaned
            (``TimelineUtils.validateTimestampAsOf``).
        CorruptData: the newest clean is damaged.
    """
    pending = (i for i in timeline.pending(*COMMITS) if i.requested_at <= instant)
    unfinished = next((i for i in pending if not store.is_clustering(i)), None)
    if unfinished is not None:
        message = (
            f"the state as of {instant} is not final: {unfinished} has not completed; "
            "name an earlier instant, or wait for it"
        )
        raise InvalidConfig(message)
    retained = _earliest_retained(timeline, store)
    if retained is not None and instant < retained:
        message = (
            f"the state as of {instant} was cleaned away; the earliest that can be read is "
            f"{retained}; set hoodie.clean.commits.retained higher to keep more"
        )
        raise InvalidConfig(message)


def _earliest_retained(timeline: Timeline, store: TimelineStore) -> str | None:
    """The oldest instant that the newest clean left readable; None where nothing was cleaned."""
    cleans = sorted(timeline.completed(Action.CLEAN), key=lambda i: i.requested_at)
    if not cleans:
        return None
    metadata = store.read_clean(cleans[-1])
    if metadata is None:  # what it deleted is not known, but not what was written since
        return cleans[-1].requested_at
    if metadata.earliest_retained:
        return metadata.earliest_retained
    completed = (i.requested_at for i in timeline.completed() if i.action.is_write)
    return min(completed, default=None)
