"""Reads and writes structs in Thrift's compact protocol, in which Parquet stores its metadata.

A struct is read without its definition, as fields by number. Writing a struct gives the bytes from
which it was read, if these bytes were written by one of Thrift's own libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from lakemark.codec.varint import unsigned, zigzag


class Kind(IntEnum):
    """The type of a field or of the items of a list; the value is the one on disk."""

    TRUE = 1
    FALSE = 2
    I8 = 3
    I16 = 4
    I32 = 5
    I64 = 6
    DOUBLE = 7
    BINARY = 8
    LIST = 9
    STRUCT = 12


class Field(NamedTuple):
    """A field of a struct: its type, and its value."""

    kind: Kind
    value: Any


class Items(NamedTuple):
    """A list: the type of its items, and the items."""

    kind: Kind
    values: list[Any]


#: The fields of a struct by number, in the order on disk.
Struct: TypeAlias = dict[int, Field]

_INTEGERS = (Kind.I16, Kind.I32, Kind.I64)
_LONG_LIST = 15
_LARGEST_STEP = 15


def parse_struct(data: bytes | memoryview) -> Struct:
    """Parse a struct; bytes after its end are ignored.

    Raises:
        ValueError: the bytes are not such a struct, or have a type that Parquet does not use.
    """
    try:
        return _Reader(bytes(data)).read_struct()
    except IndexError as error:
        message = f"the bytes of a Thrift struct end too early: {error}"
        raise ValueError(message) from error


def print_struct(fields: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def read_struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while (head := self._byte()) != 0:
            step, kind = head >> 4, Kind(head & 0x0F)
            number = number + step if step else self._integer()
            fields[number] = Field(kind, self._read(kind))
        return fields

    def _read(self, kind: Kind) -> Any:
        if kind in (Kind.TRUE, Kind.FALSE):
            return kind is Kind.TRUE
        return self._read_item(kind)

    def _read_item(self, kind: Kind) -> Any:
        if kind in _INTEGERS:
            return self._integer()
        readers: dict[Kind, Callable[[], Any]] = {
            Kind.TRUE: self._byte,  # a boolean in a list, as its byte
            Kind.FALSE: self._byte,
            Kind.I8: self._byte,
            Kind.DOUBLE: lambda: self._take(8),
            Kind.BINARY: lambda: self._take(self._varint()),
            Kind.LIST: self._list,
            Kind.STRUCT: self.read_struct,
        }
        return readers[kind]()

    def _list(self) -> Items:
        head = self._byte()
        count, kind = head >> 4, Kind(head & 0x0F)
        if count == _LONG_LIST:
            count = self._varint()
        return Items(kind, [self._read_item(kind) for _ in range(count)])

    def _byte(self) -> int:
        byte = self._data[self._at]
        self._at += 1
        return byte

    def _take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            message = f"{count} bytes are expected, but {len(taken)} are left"
            raise IndexError(message)
        self._at += count
        return taken

    def _varint(self) -> int:
        number = shift = 0
        while True:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number

    def _integer(self) -> int:
        zigzag = self._varint()
        return (zigzag >> 1) ^ -(zigzag & 1)


def _write_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for number, field in fields.items():
        kind = field.kind
        if kind in (Kind.TRUE, Kind.FALSE):
            kind = Kind.TRUE if field.value else Kind.FALSE
        step = number - before
        if 0 < step <= _LARGEST_STEP:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            out += zigzag(number)
        if kind not in (Kind.TRUE, Kind.FALSE):
            _write_item(out, kind, field.value)
        before = number
    out.append(0)


def _write_item(out: bytearray, kind: Kind, value: Any) -> None:
    if kind in _INTEGERS:
        out += zigzag(value)
    elif kind in (Kind.TRUE, Kind.FALSE, Kind.I8):
        out.append(value)
    elif kind is Kind.DOUBLE:
        out += value
    elif kind is Kind.BINARY:
        out += unsigned(len(value))
        out += value
    elif kind is Kind.LIST:
        _write_list(out, value)
    else:
        _write_struct(out, value)


def _write_list(out: bytearray, items: Items) -> None:
    count = len(items.values)
    if count < _LONG_LIST:
        out.append(count << 4 | items.kind)
    else:
        out.append(_LONG_LIST << 4 | items.kind)
        out += unsigned(count)
    for value in items.values:
        _write_item(out, items.kind, value)
