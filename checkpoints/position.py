"""How far a streamer has read its source: the type of every position that a commit records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping


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
    def is_known_to_apache(self) -> bool:
        """Whether Apache Hudi's streamer continues at the text of this position."""
        return False

    @abstractmethod
    def __str__(self) -> str: ...
