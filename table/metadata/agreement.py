"""Whether a metadata table tells of every commit of its data table, and of nothing else.

A commit that it lacks hides the commit's rows; one that it has beyond the data table's shows files
that are not there. Neither may be trusted, and neither mends itself.
"""

from __future__ import annotations

from table.metadata.valid_instants import INITIAL
from table.model.action import COMMITS, Action
from table.timeline.timeline import Timeline


def disagreement(data: Timeline, metadata: Timeline) -> str | None:
    """What is wrong with a metadata table by its timeline; None when nothing is.

    Args:
        data: the data table's timeline, without others writing meanwhile.
        metadata: the metadata table's.
    """
    missing = next((name for name in _must_have(data, metadata) if not _has(metadata, name)), None)
    if missing is not None:
        return f"it lacks commit {missing}"
    stranger = next(iter(_strangers(data, metadata)), None)
    if stranger is not None:
        return f"it has commit {stranger}, which the table has not"
    return None


def _must_have(data: Timeline, metadata: Timeline) -> list[str]:
    """Commits that completed after the metadata table was made, and have not left its timeline."""
    made = metadata.find(f"{INITIAL}000") or metadata.find(f"{INITIAL}010")  # of version 6
    if made is None:
        start = metadata.start or ""
        return [i.requested_at for i in data.completed(*COMMITS) if i.requested_at > start]
    listed_at = made.completed_at or "9"
    return [i.requested_at for i in data.completed(*COMMITS) if (i.completed_at or "") > listed_at]


def _has(metadata: Timeline, name: str) -> bool:
    found = metadata.find(name)
    return found is not None and found.is_completed


def _strangers(data: Timeline, metadata: Timeline) -> list[str]:
    """Commits that no instant of the data table has; those of a restore have times of their own."""
    start, restores = data.start, data.completed(Action.RESTORE)
    return [
        i.requested_at
        for i in metadata.completed(Action.DELTA_COMMIT)
        if not i.requested_at.startswith(INITIAL)
        and data.find(i.requested_at) is None
        and (start is None or i.requested_at > start)
        and not any(r.requested_at < i.requested_at < (r.completed_at or "") for r in restores)
    ]
