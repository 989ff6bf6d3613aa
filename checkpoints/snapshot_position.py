"""How far a pipeline has read its snapshot, and where it then begins to read its topic.

The text is JSON: ``{"source": "snapshot", "read": position, "then": "topic,partition:offset,…"}``.
``position`` is that of files or of a table, in its own form. The offsets are determined before the
snapshot is read, and every commit of the snapshot contains them. After the last one, a commit
records only the offsets, as ``KafkaCheckpoint``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.files_position import FilesPosition
from checkpoints.position import Position, parse_json
from checkpoints.table_position import TablePosition

_KIND = "snapshot"


@dataclass(frozen=True, kw_only=True)
class SnapshotPosition(Position):
    """How far the snapshot of a pipeline has been read.

    Attributes:
        read: the position in the files, or in the table, of the snapshot.
        then: where the topic is read after the snapshot.
    """

    read: FilesPosition | TablePosition
    then: KafkaCheckpoint

    @classmethod
    def has_form(cls, text: str) -> bool:
        """Return whether a text looks like the text of such a position."""
        return text.startswith(f'{{"source":"{_KIND}"')

    @classmethod
    def parse(cls, text: str) -> SnapshotPosition:
        """Parse the text of a position.

        Raises:
            ValueError: the text is not that of a position.
        """
        return parse_json(text, "a snapshot", _from_json)

    @property
    def origin(self) -> str:
        """The URL of the folder or the table, and the name of the topic."""
        return f"{self.read.origin}, then topic {self.then.topic}"

    @property
    def offsets_by_partition(self) -> Mapping[int, int]:
        """The next offset of each partition of the topic, which is not read yet."""
        return self.then.offsets

    @property
    def summary(self) -> str:
        """How far the snapshot is read, and the next offset of each partition of the topic."""
        return f"{self.read.summary}, then {self.then.summary}"

    def __str__(self) -> str:
        values = {"source": _KIND, "read": json.loads(str(self.read)), "then": str(self.then)}
        return _to_text(values)


def _from_json(given: Mapping[str, Any]) -> SnapshotPosition:
    if given["source"] != _KIND:
        message = f"source {given['source']!r}"
        raise ValueError(message)
    text = _to_text(given["read"])
    kind = TablePosition if TablePosition.has_form(text) else FilesPosition
    return SnapshotPosition(read=kind.parse(text), then=KafkaCheckpoint.parse(given["then"]))


def _to_text(values: Mapping[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False)
