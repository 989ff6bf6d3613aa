"""Encodes and decodes the subset of Protocol Buffers in HFiles: varints and byte strings.

A message is a sequence of fields. Each field is a varint ``number << 3 | type``, then the value.
In a stream, the length of a message (a varint) precedes the message.
Source: Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from lakemark.codec.varint import unsigned
from lakemark.errors import CorruptData

#: Field number and value: an unsigned integer, or bytes.
Field: TypeAlias = tuple[int, int | bytes]

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_LONGEST_VARINT_BITS = 64


class Message:
    """The fields of one message.

    Args:
        data: bytes that contain the length of the message, then the message.
        start: position of the length in ``data``.
        path: file that contains ``data``, for errors.
        offset: position of ``data`` in the file.

    Attributes:
        fields: the fields in stored order; a repeated field has one element for each value.

    Raises:
        CorruptData: there is no complete message at ``start``.
    """

    def __init__(self, data: bytes, start: int, path: str, offset: int) -> None:
        self._data, self._path, self._offset = data, path, offset
        length, body = self._varint(start, len(data))
        self._check(length <= len(data) - body, start, "a message that fits")
        self.fields: list[Field] = list(self._read(body, body + length))

    def integers(self) -> Mapping[int, int]:
        """Return the integer fields by number; the last value of a repeated field wins."""
        return {number: value for number, value in self.fields if isinstance(value, int)}

    def byte_strings(self, number: int) -> list[bytes]:
        """Return the values of a field of bytes, strings or messages."""
        return [value for n, value in self.fields if n == number and isinstance(value, bytes)]

    def _read(self, at: int, end: int) -> Iterator[Field]:
        while at < end:
            tag, value_at = self._varint(at, end)
            kind, number = tag & 7, tag >> 3
            if kind == _VARINT:
                value, at = self._varint(value_at, end)
                yield number, value
                continue
            value_at, size_bytes = self._extent(kind, value_at, end)
            self._check(size_bytes <= end - value_at, value_at, "a field inside its message")
            at = value_at + size_bytes
            yield number, self._data[value_at:at]

    def _extent(self, kind: int, at: int, end: int) -> tuple[int, int]:
        """Return where the bytes of a field's value begin, and the number of these bytes."""
        if kind == _BYTES:
            size_bytes, at = self._varint(at, end)
            return at, size_bytes
        self._check(kind in (_FIXED_32, _FIXED_64), at, "a known type of field")
        return at, 4 if kind == _FIXED_32 else 8

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """Read the varint at ``at``; return its value, and the position after it.

        Each byte has seven bits of the value, lowest first. The high bit is set in all bytes but
        the last.
        """
        value = 0
        for shift in range(0, _LONGEST_VARINT_BITS, 7):
            self._check(at < end, at, "an integer inside its message")
            value |= (self._data[at] & 0x7F) << shift
            at += 1
            if self._data[at - 1] < 0x80:
                return value, at
        raise CorruptData(self._path, self._offset + at, "an integer of 64 bits", "a longer one")

    def _check(self, is_right: bool, at: int, expected: str) -> None:
        if not is_right:
            raise CorruptData(self._path, self._offset + at, expected, "something else")


def single(data: bytes, path: str, offset: int) -> Message:
    """Parse ``data`` as one message without a length before it, such as a nested message."""
    return Message(delimited(data), 0, path, offset)


def integer_field(number: int, value: int) -> bytes:
    """Return an integer field. A negative value is encoded as 64 bits, as Java does."""
    return unsigned(number << 3 | _VARINT) + unsigned(value % (1 << _LONGEST_VARINT_BITS))


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field that contains bytes, a string or a message."""
    return unsigned(number << 3 | _BYTES) + delimited(value)


def delimited(message: bytes) -> bytes:
    """Return the length of a message, followed by the message."""
    return unsigned(len(message)) + message
