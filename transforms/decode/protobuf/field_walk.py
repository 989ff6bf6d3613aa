"""Walks over the fields of a single message. ``fields`` divides many messages at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from transforms.decode.protobuf.types import (
    END_GROUP,
    FIXED32,
    FIXED64,
    LENGTH,
    VARINT,
)

LONGEST_VARINT = 10
#: The longest encoding of a tag or a length, which have at most 32 and 31 bits.
LONGEST_TAG = 5
LARGEST_TAG, LARGEST_LENGTH = (1 << 32) - 1, (1 << 31) - 1
_MAX_GROUP_DEPTH = 100

CUT = "the message ends inside a field"
BAD_TAG = "a field has a number or a wire type that does not exist"


class BrokenMessage(Exception):
    """The bytes are not those of a message."""


class FieldWalk:
    """Walks over one message, ``data[at:limit]``."""

    def __init__(self, data: npt.NDArray[np.uint8], at: int, limit: int) -> None:
        self._bytes, self._at = data[at:limit].tobytes(), 0
        self._first = at

    def fields(self) -> Iterator[tuple[int, int, int]]:
        """Yield the tag, the value and the length of each field, see ``Occurrences``."""
        while self._at < len(self._bytes):
            tag = self._tag()
            yield (tag, *self._value(tag, 0))

    def skip_group(self, number: int, depth: int) -> None:
        """Skip the fields of a group, and its end."""
        if depth > _MAX_GROUP_DEPTH:
            message = f"groups are nested more than {_MAX_GROUP_DEPTH} levels deep"
            raise BrokenMessage(message)
        while (tag := self._tag()) != number << 3 | END_GROUP:
            self._value(tag, depth)

    def _tag(self) -> int:
        tag = self._varint(LONGEST_TAG, LARGEST_TAG)
        if tag < 8 or tag & 7 > FIXED32:
            raise BrokenMessage(BAD_TAG)
        return tag

    def _value(self, tag: int, depth: int) -> tuple[int, int]:
        """Read a value; return it with its length, see ``Occurrences``."""
        wire_type = tag & 7
        if wire_type == VARINT:
            return self._varint(LONGEST_VARINT, (1 << 70) - 1) & (1 << 64) - 1, 0
        if wire_type in (FIXED32, FIXED64):
            begin = self._skip(4 if wire_type == FIXED32 else 8)
            return int.from_bytes(self._bytes[begin : self._at], "little"), 0
        if wire_type == LENGTH:
            length = self._varint(LONGEST_TAG, LARGEST_LENGTH)
            return self._first + self._skip(length), length
        if wire_type == END_GROUP:
            raise BrokenMessage(BAD_TAG)
        self.skip_group(tag >> 3, depth + 1)
        return 0, 0

    def _skip(self, length: int) -> int:
        begin = self._at
        self._at += length
        if self._at > len(self._bytes):
            raise BrokenMessage(CUT)
        return begin

    def _varint(self, longest: int, largest: int) -> int:
        value = 0
        for index in range(longest):
            begin = self._skip(1)
            digit = self._bytes[begin]
            value |= (digit & 0x7F) << 7 * index
            if digit < 0x80:
                if value > largest:
                    break
                return value
        raise BrokenMessage(CUT)
