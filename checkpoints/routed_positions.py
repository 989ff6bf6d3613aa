"""How far each table of a routed pipeline has read the topic; see ``sinks.routed.sink``.

A position says: the table has all its records with smaller offsets. This stays true, whatever is
written later. So of two positions of a table, the larger offset of each partition counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from checkpoints.checkpoint import KafkaCheckpoint

#: How many lost ranges are kept: the newest ones.
_LOST_KEPT = 100


@dataclass(frozen=True, kw_only=True)
class RoutedPositions:
    """The positions of a topic's tables. Immutable.

    Attributes:
        rule: the route that divides the topic, as text. With another one, a record could belong to
            another table, which has read it already.
        topic_id: Kafka's id of the topic; "" if it is not known.
        complete: the position of all tables that are not in ``behind``.
        behind: the positions of the tables that are set aside or catch up.
        commits: the known tables: the requested time of the newest commit of each table whose
            position was taken into account; "" if it has none. If the newest commit of a table is
            older, an operator has undone commits.
        lost: the lost ranges that the stream has skipped (``LostRange.facts``), newest last.
    """

    rule: str
    topic_id: str
    complete: KafkaCheckpoint
    behind: Mapping[str, KafkaCheckpoint] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)
    lost: Sequence[Mapping[str, object]] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the result of ``to_json``.

        Raises:
            ValueError: the text has another form.
        """
        try:
            facts = json.loads(text)
            return cls(
                rule=str(facts["rule"]),
                topic_id=str(facts["topic_id"]),
                complete=KafkaCheckpoint.parse(facts["complete"]),
                behind={n: KafkaCheckpoint.parse(one) for n, one in facts["behind"].items()},
                commits=dict(facts["commits"]),
                lost=tuple(facts["lost"]),
            )
        except (TypeError, LookupError, AttributeError, RecursionError) as error:
            message = f"expected the positions of routed tables as JSON, and found {text[:80]!r}"
            raise ValueError(message) from error

    def to_json(self) -> str:
        """Return the positions as text."""
        facts = {
            "rule": self.rule,
            "topic_id": self.topic_id,
            "complete": str(self.complete),
            "behind": {name: str(one) for name, one in sorted(self.behind.items())},
            "commits": dict(sorted(self.commits.items())),
            "lost": list(self.lost),
        }
        return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))

    def of(self, table: str) -> KafkaCheckpoint:
        """Return the position of a table; new tables have no record before ``complete``."""
        return self.behind.get(table, self.complete)

    def with_tables(self, names: Iterable[str]) -> Self:
        """Return the positions with further known tables."""
        return replace(self, commits={**dict.fromkeys(names, ""), **self.commits})

    def with_lost(self, lost: Sequence[Mapping[str, object]]) -> Self:
        """Return the positions with further lost ranges."""
        return replace(self, lost=(*self.lost, *lost)[-_LOST_KEPT:])


def later(one: KafkaCheckpoint, other: KafkaCheckpoint) -> KafkaCheckpoint:
    """Return the larger offset of each partition."""
    partitions = one.offsets.keys() | other.offsets.keys()
    return KafkaCheckpoint(
        one.topic, {p: max(one.offsets.get(p, 0), other.offsets.get(p, 0)) for p in partitions}
    )


def earliest(positions: Iterable[KafkaCheckpoint]) -> KafkaCheckpoint:
    """Return the smallest offset of each partition that all positions contain; at least one.

    A partition that a position lacks was not read at all, so it is read from its beginning.
    """
    first, *others = positions
    partitions = set(first.offsets).intersection(*(one.offsets for one in others))
    return KafkaCheckpoint(
        first.topic, {p: min(one.offsets[p] for one in (first, *others)) for p in partitions}
    )
