"""Finds the file groups that no query was to read at a time, although commits had written to them.

While a resize of buckets is pending, commits write the rows of its buckets twice: to the old file
groups, which queries read, and to the new ones (``lakemark.write.log_copies``). A query for the
rows or changes of such a commit must read only one of the two.
"""

from __future__ import annotations

from lakemark.model.action import Action
from lakemark.model.commit_metadata import Operation
from lakemark.model.file_slice import FileGroupId
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_system_view import FileSystemView


def unread_groups(
    view: FileSystemView, store: TimelineStore, at: str | None
) -> frozenset[FileGroupId]:
    """Return the new file groups of the resizes that were pending at a time.

    Args:
        view: the table's latest state.
        store: reads the table's instants.
        at: a completion time; None for now.

    Raises:
        CorruptData: an instant is damaged.
    """
    found = {*view.unpublished}
    for resize in view.timeline.completed(Action.REPLACE_COMMIT) if at is not None else ():
        was_pending = resize.requested_at <= (at or "") < (resize.completed_at or "")
        if was_pending and store.read_commit(resize).operation == Operation.CLUSTER:
            found.update(store.new_groups(resize.requested_at))
    return frozenset(found)
