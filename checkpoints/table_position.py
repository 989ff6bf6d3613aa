"""How far a streamer has read the commits of another table.

The first run reads the rows of the table as of an instant: its snapshot. Later batches read the
changes of the commits after it. So a position is a position between two commits
(``lakemark.model.feed_position``) and, if a batch ended within the snapshot or a commit, what was
read of it. The text is JSON::

    {"source": "table", "table": url,
     "after": [requested, completed, is_commit, is_legacy, changed_by],
     "snapshot": [as_of, digest, slices], "part": [name, rows, digest]}

An empty value is omitted, and so is ``changed_by`` if it is null. ``HoodieIncrSource`` of Apache
Hudi stores the time of the last commit that it has read: the completion time, or the requested time
under the key of older versions. ``parse`` accepts this text, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from checkpoints.position import Position, parse_json
from lakemark.model.feed_position import FeedPosition

KIND = "table"

#: An instant time, which has milliseconds since Apache Hudi 0.10.
_INSTANT = re.compile(r"\d{14}(\d{3})?", re.ASCII)

#: Before all commits.
_BEGINNING = FeedPosition("", "")


@dataclass(frozen=True, slots=True)
class PartRead:
    """The part of a commit, or of a file slice of the snapshot, that was read.

    Attributes:
        name: the requested time of the commit; or the file group of the slice.
        rows: the number of rows, in the order in which they are read.
        digest: a digest of their keys, which shows whether a later run reads the same rows.
    """

    name: str
    rows: int
    digest: int


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """The part of the snapshot that was read.

    Attributes:
        as_of: the instant of the snapshot.
        digest: a digest of the names of its file slices; 0 if they were not listed yet.
        slices: the number of slices that were read completely.
    """

    as_of: str
    digest: int = 0
    slices: int = 0


@dataclass(frozen=True, kw_only=True)
class TablePosition(Position):
    """How far the commits of a table have been read.

    Attributes:
        table: the canonical URL of the table; "" if it is not known.
        after: the commits after this position are unread.
        snapshot: the snapshot whose rows are unread, at least in part; None if it was read, or is
            not wanted. It contains the commits up to ``after``.
        part: what was read of the next commit or slice; None if it is unread.
    """

    table: str
    after: FeedPosition = _BEGINNING
    snapshot: SnapshotRead | None = None
    part: PartRead | None = None

    @classmethod
    def has_form(cls, text: str) -> bool:
        """Return whether a text looks like the text of such a position."""
        return _INSTANT.fullmatch(text) is not None or text.startswith(f'{{"source":"{KIND}"')

    @classmethod
    def parse(cls, text: str) -> TablePosition:
        """Parse the text of a position.

        Raises:
            ValueError: the text is not that of a position.
        """
        if _INSTANT.fullmatch(text) is not None:
            return cls(table="", after=FeedPosition(text, text))
        return parse_json(text, "a table", _from_json)

    @property
    def origin(self) -> str:
        """The URL of the table."""
        return self.table

    @property
    def summary(self) -> str:
        """The snapshot that is being read, or the last commit that was read."""
        if self.snapshot is not None:
            read = self.snapshot.slices
            done = f", after {read:,} file slice{'' if read == 1 else 's'}" if read else ""
            return f"snapshot as of {self.snapshot.as_of}{done}"
        if self.part is not None:
            return f"in commit {self.part.name}, after {self.part.rows:,} rows"
        after = self.after.requested_at or self.after.completed_at
        return f"after commit {after}" if after else "from the first commit"

    @property
    def begun_commit(self) -> str | None:
        """The requested time of the commit of which only a part was read; None without one."""
        return None if self.snapshot is not None or self.part is None else self.part.name

    def in_table(self, table: str) -> TablePosition:
        """Return the same position with the URL of the table."""
        return replace(self, table=table)

    def __str__(self) -> str:
        values = {
            "source": KIND,
            "table": self.table,
            "after": None if self.after == _BEGINNING else _listed(self.after),
            "snapshot": None if self.snapshot is None else astuple(self.snapshot),
            "part": None if self.part is None else astuple(self.part),
        }
        filled = {name: value for name, value in values.items() if value}
        return json.dumps(filled, separators=(",", ":"), ensure_ascii=False)


def _from_json(given: Mapping[str, Any]) -> TablePosition:
    if given["source"] != KIND:
        message = f"source {given['source']!r}"
        raise ValueError(message)
    after = given.get("after", _listed(_BEGINNING))
    snapshot, part = given.get("snapshot"), given.get("part")
    return TablePosition(
        table=str(given.get("table", "")),
        after=_feed_position(*after),
        snapshot=snapshot and SnapshotRead(str(snapshot[0]), int(snapshot[1]), int(snapshot[2])),
        part=part and PartRead(str(part[0]), int(part[1]), int(part[2])),
    )


def _listed(after: FeedPosition) -> list[Any]:
    values = astuple(after)
    return list(values if after.changed_by is not None else values[:-1])


def _feed_position(
    requested_at: Any, completed_at: Any, is_commit: Any, is_legacy: Any, changed_by: Any = None
) -> FeedPosition:
    changed_by = None if changed_by is None else str(changed_by)
    return FeedPosition(
        str(requested_at), str(completed_at), bool(is_commit), bool(is_legacy), changed_by
    )
