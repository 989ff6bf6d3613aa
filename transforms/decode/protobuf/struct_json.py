"""Writes ``google.protobuf.Struct``, ``Value`` and ``ListValue`` as JSON.

Source: ``google/protobuf/struct.proto`` of Protocol Buffers.
"""

from __future__ import annotations

import json
import math
import struct

import numpy as np

from transforms.decode.protobuf.field_walk import BrokenMessage, FieldWalk
from transforms.decode.protobuf.types import FIXED64, LENGTH, VARINT

_MAX_DEPTH = 100

_KEY, _VALUE = 1 << 3 | LENGTH, 2 << 3 | LENGTH
_FIRST = 1 << 3 | LENGTH
_NULL, _BOOL = 1 << 3 | VARINT, 4 << 3 | VARINT
_NUMBER = 2 << 3 | FIXED64
_STRING, _STRUCT, _LIST = (number << 3 | LENGTH for number in (3, 5, 6))
_KINDS = frozenset((_NULL, _NUMBER, _STRING, _BOOL, _STRUCT, _LIST))


def to_json(name: str, body: bytes) -> str:
    """Return a message as JSON.

    Args:
        name: the full name of its type.
        body: the message.

    Raises:
        BrokenMessage: the bytes are not a valid message.
    """
    reader = {"Struct": _read_struct, "ListValue": _read_list}.get(name.rpartition(".")[2])
    return json.dumps((reader or _read_value)(body, 0), ensure_ascii=False)


def _fields(body: bytes, depth: int) -> list[tuple[int, int, int]]:
    if depth > _MAX_DEPTH:
        message = f"values are nested more than {_MAX_DEPTH} levels deep"
        raise BrokenMessage(message)
    return list(FieldWalk(np.frombuffer(body, np.uint8), 0, len(body)).fields())


def _read_struct(body: bytes, depth: int) -> object:
    found: dict[str, object] = {}
    for tag, at, length in _fields(body, depth):
        if tag == _FIRST:
            key, value = _read_entry(body[at : at + length], depth + 1)
            found[key] = value
    return found


def _read_entry(body: bytes, depth: int) -> tuple[str, object]:
    key, value = b"", b""
    for tag, at, length in _fields(body, depth):
        if tag == _KEY:
            key = body[at : at + length]
        elif tag == _VALUE:
            value += body[at : at + length]
    return _text(key), _read_value(value, depth + 1)


def _read_list(body: bytes, depth: int) -> object:
    return [
        _read_value(body[at : at + length], depth + 1)
        for tag, at, length in _fields(body, depth)
        if tag == _FIRST
    ]


def _read_value(body: bytes, depth: int) -> object:
    kind, number, content = _NULL, 0, b""
    for tag, value, length in _fields(body, depth):
        if tag in _KINDS:
            part = body[value : value + length]
            # A message that occurs again adds to the one before.
            content = content + part if tag == kind and tag in (_STRUCT, _LIST) else part
            kind, number = tag, value
    if kind == _STRUCT:
        return _read_struct(content, depth + 1)
    if kind == _LIST:
        return _read_list(content, depth + 1)
    if kind == _STRING:
        return _text(content)
    if kind == _NUMBER:
        return _number(number)
    return bool(number) if kind == _BOOL else None


def _number(bits: int) -> object:
    """Return a number; JSON has no numbers that are infinite or not a number, so these are text."""
    value = float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return int(value) if value.is_integer() and abs(value) < 1 << 53 else value


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        message = "a text is not UTF-8"
        raise BrokenMessage(message) from None
