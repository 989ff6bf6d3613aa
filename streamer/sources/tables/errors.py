"""The errors of the source of tables. All of them are raised before a batch is published.

SourceError
├─ ForeignTable        (Permanent) the position belongs to another table, or to another source
├─ UnreadChangesLost   (Permanent) changes after the position, or rows of the snapshot, were removed
├─ ReadChangesUndone   (Permanent) the last commit that was read, also in part, was undone
└─ SnapshotNotFinal    (Retriable) no state of the table can be read yet, because commits overlap
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakemark.errors import Permanent
from lakemark.operations.change_feed import ChangesRemoved, CommitUndone, OrderChanged
from streamer.sources.errors import SourceBeingWritten, SourceError

#: How many characters of a position a message shows.
_SHOWN = 200

#: With ``latest`` as its start, the next run would skip what is unread.
_READ_AGAIN = (
    "set source.start_at: snapshot, the default, and run lakemark checkpoint reset TABLE --run, "
    "where TABLE is the table of this pipeline"
)


class ForeignTable(SourceError, Permanent):
    """The position belongs to another table, or to another kind of source."""

    def __init__(self, table: str, position: str) -> None:
        super().__init__(
            f"the position {position[:_SHOWN]} of the table that is written does not belong to "
            f"source.path, {table}; set a different source.checkpoint_id in each pipeline of the "
            "table"
        )
        self.table, self.position = table, position


class UnreadChangesLost(SourceError, Permanent):
    """What the position says is unread can no longer be read."""

    def __init__(self, table: str, reason: str, continues_after: str | None) -> None:
        remedy = f"to read the rows of {table} again, {_READ_AGAIN}; rows that were deleted "
        remedy += "meanwhile stay"
        if continues_after:
            remedy += (
                f"; or, to go on without these changes, run the same command, and set "
                f'source.start_at: "{continues_after}" instead'
            )
        super().__init__(
            f"{table}: {reason}. Nothing is skipped, so the run stops: {remedy}. To avoid this, "
            "let cleaning and archiving of that table retain more commits, or run more often"
        )
        self.table, self.reason, self.continues_after = table, reason, continues_after


class ReadChangesUndone(SourceError, Permanent):
    """The table that is read was restored or rolled back to a commit before the position."""

    def __init__(self, table: str, reason: str) -> None:
        super().__init__(
            f"{table}: {reason}. Restore the table of this pipeline to a commit before these "
            "changes with lakemark table restore, which also takes its position back; or delete "
            "it and set source.start_at: snapshot, the default, so that the next run reads all "
            f"rows again. If both tables have the same rows, {_READ_AGAIN}"
        )
        self.table, self.reason = table, reason


class SnapshotNotFinal(SourceBeingWritten):
    """Writers overlap, so that no state of the table contains exactly the commits up to one."""

    def __init__(self, table: str) -> None:
        super().__init__(
            f"{table}: no commit is final, because an older one is pending; the rows are read when "
            "it has completed or was rolled back. If its writer has died, start that writer again"
        )
        self.table = table


@contextmanager
def lost_changes_reported(table: str) -> Iterator[None]:
    """Report errors of the feed with the remedies of a pipeline.

    Args:
        table: the URL of the table that is read.

    Raises:
        UnreadChangesLost, ReadChangesUndone: instead of the errors of the feed.
    """
    try:
        yield
    except ChangesRemoved as error:
        raise UnreadChangesLost(table, error.reason, error.begin) from error
    except OrderChanged as error:
        raise UnreadChangesLost(table, str(error), error.begin) from error
    except CommitUndone as error:
        reason = (
            f"commit {error.requested_at}, which was read, was undone by a rollback or restore, so "
            f"the table no longer has {error.undone}"
        )
        raise ReadChangesUndone(table, reason) from error
