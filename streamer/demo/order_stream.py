"""Generates an endless sequence of order events, as columns of numbers.

Invariants:

- the sequence depends only on the seed, the number of orders and the mix, so a longer sequence
  begins with the shorter one;
- no two events have the same ``updated_at``, except a repeat and its original;
- after an order is deleted, no late event or repeat from before the deletion follows, so the
  expected rows do not depend on when compaction runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

#: The time of the first event, 2026-01-01T00:00:00Z, and the time between two events.
FIRST_EVENT_US = 1_767_225_600_000_000
EVENT_STEP_US = 100_000

#: How many events are drawn at once. Another number would change the sequence.
BLOCK_EVENTS = 65_536

_RECENT_EVENTS = 2_000
_LAST_STAGE = 4


class EventKind(IntEnum):
    """The effect of an event on the table."""

    UPSERT = 0
    #: An older version of an order, sent after a newer one.
    LATE = 1
    #: A message that was already sent, byte for byte.
    REPEAT = 2
    #: A complete row in which ``_hoodie_is_deleted`` is true.
    DELETE = 3
    #: A key without a value.
    TOMBSTONE = 4
    #: A value that cannot be decoded.
    BROKEN = 5


@dataclass(frozen=True, slots=True)
class OrderMix:
    """The share of each kind of event, from 0 to 1; all other events are plain upserts.

    Tombstones have no partition value, so use them only for a table without partitions.
    """

    late: float = 0.05
    repeated: float = 0.02
    deleted: float = 0.01
    tombstones: float = 0.0
    broken: float = 0.002


@dataclass(frozen=True, slots=True)
class EventBlock:
    """Consecutive events, as columns of equal length.

    Attributes:
        number: the position in the sequence, from 0.
        kind: an ``EventKind``.
        order: the number of the order, from 0.
        stage: the progress of the order, 0 to 4.
        updated_at: the event time, in microseconds since 1970.
        quantity: how many articles are ordered, 1 to 9.
        note: a number that selects the note.
    """

    number: Ints
    kind: Ints
    order: Ints
    stage: Ints
    updated_at: Ints
    quantity: Ints
    note: Ints

    def take(self, rows: Ints | slice) -> EventBlock:
        """Return the events at ``rows``."""
        return EventBlock(*(getattr(self, name)[rows] for name in self.__slots__))


def event_blocks(
    count: int, keys: int, seed: int, mix: OrderMix, first: int = 0
) -> Iterator[EventBlock]:
    """Yield the ``count`` events of the sequence that begin at event ``first``, in order."""
    moves_of_order = np.zeros(keys, dtype=np.int64)
    for start in range(0, first + count, BLOCK_EVENTS):
        random = np.random.default_rng([seed, start // BLOCK_EVENTS])
        block = _draw(random, start, mix, moves_of_order)
        wanted = slice(max(0, first - start), max(0, first + count - start))
        if wanted.start < BLOCK_EVENTS:
            yield block.take(wanted)


def _draw(
    random: np.random.Generator, start: int, mix: OrderMix, moves_of_order: Ints
) -> EventBlock:
    """Draw one block of events, and update ``moves_of_order``, the number of upserts so far."""
    here = np.arange(BLOCK_EVENTS, dtype=np.int64)
    kind = _draw_kinds(random, mix)
    order = random.integers(0, len(moves_of_order), BLOCK_EVENTS)
    source = _draw_sources(random, kind)
    order = np.where(source >= 0, order[source], order)
    kind[(source >= 0) & (_last_delete(order, kind) > source)] = EventKind.UPSERT

    behind = np.where(
        kind == EventKind.LATE, here - source + random.integers(1, 5_000, here.size), 0
    )
    # A late event has a unique time, because the steps and the remainder in this time add up to the
    # event's position.
    updated_at = FIRST_EVENT_US + (start + here - behind) * EVENT_STEP_US + behind
    stage = np.minimum(_moves(order, kind, moves_of_order), _LAST_STAGE)
    stage = np.where(kind == EventKind.LATE, np.maximum(stage[source] - 1, 0), stage)
    quantity = random.integers(1, 10, here.size)
    note = random.integers(0, 1 << 16, here.size)
    origin = np.where(kind == EventKind.REPEAT, source, here)
    block = EventBlock(start + here, kind, order, stage, updated_at, quantity, note)
    return replace(block.take(origin), number=block.number, kind=kind)


def _draw_kinds(random: np.random.Generator, mix: OrderMix) -> Ints:
    shares = [0.0, mix.late, mix.repeated, mix.deleted, mix.tombstones, mix.broken]
    shares[EventKind.UPSERT] = 1.0 - sum(shares)
    return np.searchsorted(np.cumsum(shares), random.random(BLOCK_EVENTS), side="right").clip(
        0, EventKind.BROKEN
    )


def _draw_sources(random: np.random.Generator, kind: Ints) -> Ints:
    """Choose a recent upsert for each late event and repeat; without one, make it an upsert."""
    follows = np.flatnonzero((kind == EventKind.LATE) | (kind == EventKind.REPEAT))
    upserts = np.flatnonzero(kind == EventKind.UPSERT)
    before = np.searchsorted(upserts, follows)
    back = (random.random(follows.size) * np.minimum(before, _RECENT_EVENTS)).astype(np.int64)
    has_source = before > 0
    kind[follows[~has_source]] = EventKind.UPSERT
    source = np.full(BLOCK_EVENTS, -1, dtype=np.int64)
    source[follows[has_source]] = upserts[before[has_source] - 1 - back[has_source]]
    return source


def _last_delete(order: Ints, kind: Ints) -> Ints:
    """Return for each event the position of the latest earlier deletion of its order, or -1."""
    by_order = np.argsort(order, kind="stable")
    group = np.cumsum(np.diff(order[by_order], prepend=-1) != 0)
    is_delete = np.isin(kind[by_order], (EventKind.DELETE, EventKind.TOMBSTONE))
    position = np.where(is_delete, by_order, -1)
    newest = np.maximum.accumulate(position + group * BLOCK_EVENTS * 2) - group * BLOCK_EVENTS * 2
    result = np.empty_like(order)
    result[by_order] = np.maximum(newest, -1)
    return result


def _moves(order: Ints, kind: Ints, moves_of_order: Ints) -> Ints:
    """Return the number of earlier upserts of each event's order; update ``moves_of_order``."""
    by_order = np.argsort(order, kind="stable")
    is_upsert = (kind[by_order] == EventKind.UPSERT).astype(np.int64)
    before = np.cumsum(is_upsert) - is_upsert
    starts = np.flatnonzero(np.diff(order[by_order], prepend=-1))
    lengths = np.diff(starts, append=order.size)
    before -= np.repeat(before[starts], lengths)
    moves = np.empty_like(order)
    moves[by_order] = before + moves_of_order[order[by_order]]
    np.add.at(moves_of_order, order[kind == EventKind.UPSERT], 1)
    return moves
