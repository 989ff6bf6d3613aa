"""Divides many encoded messages into their fields at once, with one cursor in each message.

Each round reads the next field of all messages. If only a few messages have more fields, these are
divided one by one, which costs less than more rounds; so is what follows a group. A message that
is not valid is reported, and its other fields are dropped. Fields that are not wanted are skipped.

Source: "Encoding" of the documentation of Protocol Buffers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from transforms.decode.decode_result import Indices
from transforms.decode.protobuf.faults import Faults
from transforms.decode.protobuf.field_walk import (
    BAD_TAG,
    CUT,
    LARGEST_LENGTH,
    LARGEST_TAG,
    LONGEST_TAG,
    LONGEST_VARINT,
    BrokenMessage,
    FieldWalk,
)
from transforms.decode.protobuf.types import END_GROUP, FIXED32, FIXED64, START_GROUP, VARINT

Mask: TypeAlias = npt.NDArray[np.bool_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Numbers: TypeAlias = npt.NDArray[np.uint64]

#: If at most this many messages have more fields, they are divided one by one.
_FEW_MESSAGES = 32
#: The largest tag for which counting is faster than sorting.
_LOW_TAGS = 1 << 12


class Messages(NamedTuple):
    """Encoded messages: message ``i`` is ``data[starts[i]:ends[i]]``.

    Attributes:
        data: the bytes of all messages; at least one byte.
        starts: the position of each message.
        ends: the position after each message.
        rows: for each message, the row of the batch that contains it; -1 for a message that is
            absent, which has no bytes.
        path: the dotted name of the field that contains the messages; empty for the outermost ones.
    """

    data: Bytes
    starts: Indices
    ends: Indices
    rows: Indices
    path: str = ""

    def inner_path(self, name: str) -> str:
        """Return the dotted name of a field of the messages."""
        return f"{self.path}.{name}" if self.path else name


@dataclass(frozen=True, slots=True)
class Occurrences:
    """The values of one field, with one wire type, in the order in which each message has them.

    Attributes:
        messages: for each value, the index of its message.
        order: the place of the value among all fields of its message, counted from any number.
        values: a number; or the position of the first byte of a text, message or packed elements.
        lengths: how many bytes the text, the message or the packed elements have; else 0.
    """

    messages: Indices
    order: Indices
    values: Numbers
    lengths: Indices

    def take(self, chosen: Indices | Mask) -> Occurrences:
        """Return some of the values."""
        return Occurrences(
            self.messages[chosen], self.order[chosen], self.values[chosen], self.lengths[chosen]
        )

    @classmethod
    def concat(cls, parts: Iterable[Occurrences]) -> Occurrences:
        """Return the values of all parts, the first of which come first."""
        listed = list(parts)
        return cls(
            np.concatenate([_NO_INDICES, *(one.messages for one in listed)]),
            np.concatenate([_NO_INDICES, *(one.order for one in listed)]),
            np.concatenate([_NO_NUMBERS, *(one.values for one in listed)]),
            np.concatenate([_NO_INDICES, *(one.lengths for one in listed)]),
        )


_NO_INDICES = np.empty(0, np.int64)
_NO_NUMBERS = np.empty(0, np.uint64)

#: The values of each field that was found, by its tag: eight times the number plus the wire type.
Found: TypeAlias = dict[int, Occurrences]


def divide(messages: Messages, wanted: Set[int], faults: Faults) -> Found:
    """Return the fields of messages.

    Args:
        messages: the messages.
        wanted: the tags of the fields to return.
        faults: receives the rows of messages that are not valid.
    """
    division = _Division(messages, wanted, faults)
    division.run()
    return {tag: Occurrences.concat(parts) for tag, parts in division.found.items()}


class _Division:
    """The state of one call of ``divide``."""

    def __init__(self, messages: Messages, wanted: Set[int], faults: Faults) -> None:
        self._messages, self._wanted, self._faults = messages, wanted, faults
        self.found: dict[int, list[Occurrences]] = defaultdict(list)

    def run(self) -> None:
        starts, ends = self._messages.starts, self._messages.ends
        active = np.flatnonzero(starts < ends)
        at, limits = starts[active], ends[active]
        step = 0
        while len(active) > _FEW_MESSAGES:
            at = self._round(active, at, limits, step)
            goes_on = (at >= 0) & (at < limits)
            if not goes_on.all():
                active, at, limits = active[goes_on], at[goes_on], limits[goes_on]
            step += 1
        for message, first, limit in zip(
            active.tolist(), at.tolist(), limits.tolist(), strict=True
        ):
            self._divide_one(message, first, limit, step)

    def _round(self, active: Indices, at: Indices, limits: Indices, step: int) -> Indices:
        """Read the next field of each message.

        Returns:
            The positions after the fields; -1 for a message that is not valid.
        """
        tags, after = read_varints(self._messages.data, at, limits, LONGEST_TAG)
        bad = (after < 0) | (tags > LARGEST_TAG)
        if bad.any():
            after[bad] = -1
            self._fail(active[bad], CUT)
            tags[bad] = 0
        for tag in _distinct(tags):
            chosen = np.flatnonzero((tags == tag) & (after >= 0))
            if len(chosen) == len(active):
                after = self._read(tag, active, after, limits, step)
            elif len(chosen):
                after[chosen] = self._read(tag, active[chosen], after[chosen], limits[chosen], step)
        return after

    def _read(self, tag: int, active: Indices, at: Indices, limits: Indices, step: int) -> Indices:
        """Read the values of a field; return the positions after them, or -1."""
        wire_type = tag & 7
        if tag < 8 or wire_type > FIXED32 or wire_type == END_GROUP:
            self._fail(active, BAD_TAG)
            return np.full(len(active), -1, np.int64)
        if wire_type == START_GROUP:
            # Each group would be found by another walk over the rest of its message.
            for message, first, limit in zip(
                active.tolist(), at.tolist(), limits.tolist(), strict=True
            ):
                self._divide_one(message, first, limit, step, group=tag >> 3)
            return limits
        values, lengths, after = self._read_values(wire_type, at, limits)
        is_cut = (after < 0) | (after > limits)
        if is_cut.any():
            self._fail(active[is_cut], CUT)
            after = np.where(is_cut, -1, after)
        if tag in self._wanted:
            order = np.full(len(active), step, np.int64)
            found = Occurrences(active, order, values, lengths)
            self.found[tag].append(found.take(~is_cut) if is_cut.any() else found)
        return after

    def _read_values(
        self, wire_type: int, at: Indices, limits: Indices
    ) -> tuple[Numbers, Indices, Indices]:
        """Return values, their lengths, and the positions after them."""
        data, no_lengths = self._messages.data, np.zeros(len(at), np.int64)
        if wire_type == VARINT:
            values, after = read_varints(data, at, limits, LONGEST_VARINT)
            return values, no_lengths, after
        if wire_type in (FIXED32, FIXED64):
            width = 4 if wire_type == FIXED32 else 8
            return read_fixed(data, at, width), no_lengths, at + width
        sizes, after = read_varints(data, at, limits, LONGEST_TAG)
        is_bad = (after < 0) | (sizes > LARGEST_LENGTH)
        lengths = np.where(is_bad, 0, sizes).astype(np.int64)
        return after.astype(np.uint64), lengths, np.where(is_bad, -1, after + lengths)

    def _divide_one(
        self, message: int, first: int, limit: int, step: int, group: int | None = None
    ) -> None:
        """Divide one message, from a position within it.

        Args:
            message: the index of the message.
            first: the position.
            limit: the position after the message.
            step: the order of the next field.
            group: the number of the group that contains the position; None if none does.
        """
        one = FieldWalk(self._messages.data, first, limit)
        parts: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        try:
            if group is not None:
                one.skip_group(group, 1)
            for tag, value, length in one.fields():
                if tag in self._wanted:
                    parts[tag].append((step, value, length))
                step += 1
        except BrokenMessage as broken:
            self._fail(np.array([message]), str(broken))
        for tag, found in parts.items():
            orders, values, lengths = zip(*found, strict=True)
            self.found[tag].append(
                Occurrences(
                    np.full(len(found), message, np.int64),
                    np.array(orders, np.int64),
                    np.array(values, np.uint64),
                    np.array(lengths, np.int64),
                )
            )

    def _fail(self, messages: Indices, text: str) -> None:
        self._faults.add_invalid(self._messages.rows[messages], text, self._messages.path)


def read_varints(
    data: Bytes, at: Indices, limits: Indices, longest: int
) -> tuple[Numbers, Indices]:
    """Read an integer of variable length at each position.

    Args:
        data: the bytes; at least one.
        at: the positions.
        limits: for each integer, the position at which it must have ended.
        longest: the largest number of bytes.

    Returns:
        The integers, and the positions after them; -1 where there is none.
    """
    last = len(data) - 1
    digits = data[np.minimum(at, last)]
    values = (digits & 0x7F).astype(np.uint64)
    after = np.where(at < limits, at + 1, -1)
    rows = np.flatnonzero((digits >= 0x80) & (after >= 0))
    for index in range(1, longest):
        if not len(rows):
            return values, after
        places = after[rows]
        digits = data[np.minimum(places, last)]
        values[rows] |= (digits & 0x7F).astype(np.uint64) << np.uint64(7 * index)
        is_cut = places >= limits[rows]
        after[rows] = np.where(is_cut, -1, places + 1)
        rows = rows[(digits >= 0x80) & ~is_cut]
    after[rows] = -1
    return values, after


def read_fixed(data: Bytes, at: Indices, width: int) -> Numbers:
    """Return the number of ``width`` bytes at each position; any number if it is cut off."""
    places = np.minimum(at[:, None] + np.arange(width), len(data) - 1)
    numbers: Numbers = data[places].view(f"<u{width}").reshape(-1).astype(np.uint64)
    return numbers


def _distinct(tags: Numbers) -> list[int]:
    """Return the different tags."""
    if (tags == tags[0]).all():
        return [int(tags[0])]
    if tags.max() < _LOW_TAGS:
        return [int(tag) for tag in np.flatnonzero(np.bincount(tags.astype(np.int64)))]
    return [int(tag) for tag in np.unique(tags)]
