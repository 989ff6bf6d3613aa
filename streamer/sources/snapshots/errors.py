"""The errors of snapshots. All of them are raised before anything is written.

SourceError
├─ ForeignSnapshot     (Permanent) the table's position belongs to another source
└─ BadSnapshot         (Permanent) the snapshot is empty, or files of it are damaged
"""

from __future__ import annotations

from lakemark.errors import Permanent
from streamer.sources.errors import SourceError

#: How many characters of a position a message shows, which may contain many paths.
_SHOWN = 200


class ForeignSnapshot(SourceError, Permanent):
    """The table's position belongs to another source than a snapshot."""

    def __init__(self, position: str) -> None:
        super().__init__(
            f"the table's position {position[:_SHOWN]} does not belong to a snapshot; set a "
            "different source.checkpoint_id in each pipeline of the table"
        )
        self.position = position


class BadSnapshot(SourceError, Permanent):
    """The snapshot cannot be read."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"snapshot.path {path}: {reason}")
        self.path, self.reason = path, reason
