"""Distinguishes a conflict with a later commit from a record index that is damaged.

A commit looks its keys up as of the timeline on which it is based. Logs of the record index that
belong to later commits are ignored, but its base files contain every commit that was compacted into
them. So the index may locate a key in a file group that did not exist when the commit began.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakemark.errors import WriteConflict
from lakemark.index.record_level import UnreadLocation
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import OpenTable


@contextmanager
def conflicts_with_later_commits(table: OpenTable) -> Iterator[None]:
    """Run a block that looks keys up as of the table's cached timeline.

    Raises:
        WriteConflict: a key is in a file group that is not on this timeline, but other writers have
            committed since. With the next attempt, the file group is known.
        UnreadLocation: no other writer has committed since.
    """
    try:
        yield
    except UnreadLocation as error:
        later = set(table.store.load().completed(*COMMITS)) - set(table.timeline.instants)
        if not later:
            raise
        message = (
            f"another writer of table {table.location.url} has committed record keys of this batch "
            "meanwhile; write the batch again"
        )
        raise WriteConflict(message) from error
