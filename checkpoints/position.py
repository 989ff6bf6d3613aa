"""How far a streamer has read its source: the type of every position that a commit records."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

PositionT = TypeVar("PositionT")


class Position(ABC):
    """How far a streamer has read one source. Immutable, and hashable.

    Two positions are equal if the streamer continues at the same records. ``str`` returns the text
    that a commit records, and ``checkpoints.commit_keys.parse_text`` returns an equal position.
    """

    @property
    @abstractmethod
    def origin(self) -> str:
        """The name of the source for people, such as a topic or a folder."""

    @property
    def offsets_by_partition(self) -> Mapping[int, int]:
        """The next offset of each partition; empty if the source has no numbered partitions."""
        return {}

    @property
    @abstractmethod
    def summary(self) -> str:
        """Where the streamer continues, in a few words for people."""

    @property
    def is_known_to_apache(self) -> bool:
        """Whether Apache Hudi's streamer continues at the text of this position."""
        return False

    @abstractmethod
    def __str__(self) -> str: ...


def parse_json(text: str, what: str, from_json: Callable[[Any], PositionT]) -> PositionT:
    """Parse the JSON text of a position.

    Args:
        text: the text.
        what: what the position is one in, for the message.
        from_json: makes the position of the parsed JSON, which may be any value.

    Raises:
        ValueError: the text is not that of a position.
    """
    try:
        return from_json(json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        message = f"expected the position in {what} as JSON, and found {text[:80]!r}"
        raise ValueError(message) from error
