"""The errors of snapshots. All of them are raised before anything is written.

SourceError
├─ ForeignSnapshot     (Permanent) the table's position belongs to another source
├─ SnapshotGone        (Permanent) the rest of the rows of a table can no longer be read
└─ BadSnapshot         (Permanent) the snapshot is empty, or files of it are damaged
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakemark.errors import Permanent
from streamer.sources.errors import SourceError
from streamer.sources.files.errors import BadFile, ForeignFolder
from streamer.sources.tables.errors import ForeignTable, UnreadChangesLost

#: How many characters of a position a message shows, which may contain many paths.
_SHOWN = 200


class ForeignSnapshot(SourceError, Permanent):
    """The table's position belongs to another source than the snapshot."""

    def __init__(self, position: str) -> None:
        super().__init__(
            f"the table's position {position[:_SHOWN]} does not belong to snapshot.path; name the "
            "snapshot that was begun, or set a different source.checkpoint_id in each pipeline of "
            "the table"
        )
        self.position = position


class SnapshotGone(SourceError, Permanent):
    """Rows of a table that is the snapshot were removed before they were read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(
            f"snapshot.path {path}: {reason}. Let cleaning of that table retain more commits, and "
            "run lakemark checkpoint reset TABLE --run, where TABLE is the table of this pipeline, "
            "so that the next run reads the snapshot again, from its newest commit"
        )
        self.path, self.reason = path, reason


class BadSnapshot(SourceError, Permanent):
    """The snapshot cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"snapshot.path {path}: {reason}")
        self.path, self.reason = path, reason


@contextmanager
def errors_of_snapshot() -> Iterator[None]:
    """Report the errors of the files or the table with the settings and remedies of a snapshot.

    Raises:
        ForeignSnapshot, SnapshotGone, BadSnapshot: instead of the errors of the other sources.
    """
    try:
        yield
    except (ForeignFolder, ForeignTable) as error:
        raise ForeignSnapshot(error.position) from error
    except UnreadChangesLost as error:
        raise SnapshotGone(error.table, error.reason) from error
    except BadFile as error:
        reason = (
            f"the file cannot be read after {error.rows} records: {error.reason}; correct it, or "
            "set snapshot.on_bad_file: dead_letter"
        )
        raise BadSnapshot(error.path, reason) from error
