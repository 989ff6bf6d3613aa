"""The cursor of a subscription: which changes of which table have been delivered.

A target stores the cursor together with the changes, as JSON. The cursor also names the table and
the type of the feed, so that it is not continued with another table or type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from lakemark.errors import CorruptData
from lakemark.model.feed_position import FeedPosition
from lakemark.operations.change_feed import FeedType
from streamer.subscribe.errors import TargetRefused


@dataclass(frozen=True, slots=True)
class Cursor:
    """The position of a subscription.

    Attributes:
        table: canonical URL of the table.
        feed_type: what is delivered of each commit.
        position: the position after the last delivered commit.
    """

    table: str
    feed_type: FeedType
    position: FeedPosition

    def at(self, position: FeedPosition) -> Cursor:
        """Return this cursor at another position."""
        return replace(self, position=position)

    def to_json(self) -> dict[str, object]:
        """Return the cursor as an object of JSON."""
        return {"table": self.table, "type": str(self.feed_type), **asdict(self.position)}

    @classmethod
    def from_json(cls, stored: Mapping[str, object], path: str) -> Cursor:
        """Return the cursor that ``to_json`` has made an object of JSON.

        Args:
            stored: the object.
            path: where it is stored, for errors.

        Raises:
            CorruptData: the object is not a cursor.
        """
        changed_by = stored.get("changed_by")
        try:
            position = FeedPosition(
                str(stored["requested_at"]),
                str(stored["completed_at"]),
                bool(stored["is_commit"]),
                bool(stored["is_legacy"]),
                None if changed_by is None else str(changed_by),
            )
            return cls(str(stored["table"]), FeedType(str(stored["type"])), position)
        except (KeyError, ValueError):
            raise CorruptData(path, None, "a cursor", json.dumps(dict(stored))) from None

    def check_same(self, other: Cursor, path: str) -> None:
        """Check that a stored cursor belongs to this subscription.

        Args:
            other: the stored cursor.
            path: where it is stored, for the message.

        Raises:
            TargetRefused: it belongs to another table or type.
        """
        for what, own, stored in (
            ("table", self.table, other.table),
            ("type", self.feed_type, other.feed_type),
        ):
            if own != stored:
                message = (
                    f"the cursor in {path} is of {what} {stored}, not {own}; deliver to another "
                    "file, or pass another --name for a Kafka topic"
                )
                raise TargetRefused(message)


def parse_object(text: str | bytes, path: str) -> Mapping[str, object]:
    """Parse an object of JSON.

    Raises:
        CorruptData: the text is not an object of JSON.
    """
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CorruptData(path, None, "a cursor in JSON", repr(text[:80]))
    return found
