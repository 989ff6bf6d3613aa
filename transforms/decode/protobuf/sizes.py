"""Computes how many bytes the columns of messages take, before these are decoded.

An element that takes one or two bytes of a message may become many cells, so a small message may
need much memory.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from transforms.decode.protobuf.types import Field, Form, Kind, MessageType

_OFFSET_BYTES = 4
#: How many bytes of JSON a byte of a ``Struct`` may become, such as a null or a control character.
_JSON_GROWTH = 8


@lru_cache(maxsize=4096)
def item_bytes(field: Field) -> int:
    """Return the column bytes of a value or an element, without the bytes of texts and elements."""
    if field.message is not None:
        return message_bytes(field.message)
    if field.kind is Kind.ENUM:
        return _OFFSET_BYTES + max(len(name.encode()) for _, name in field.symbols)
    if pa.types.is_primitive(field.item_type):
        return -(-int(field.item_type.bit_width) // 8)
    return _OFFSET_BYTES


def message_bytes(message: MessageType) -> int:
    """Return the column bytes of a message, without the bytes of texts and elements."""
    if message.form not in (Form.STRUCT, Form.WRAPPER):
        return 8
    return sum(_OFFSET_BYTES if one.is_repeated else item_bytes(one) for one in message.fields)


@lru_cache(maxsize=1024)
def growth(message: MessageType) -> int:
    """Return the largest number of column bytes that a byte of a message may become."""
    return max((_field_growth(one) for one in message.fields), default=1)


def _field_growth(field: Field) -> int:
    inner = 1
    if field.message is not None:
        inner = _JSON_GROWTH if field.message.form is Form.JSON else growth(field.message)
    if not field.is_repeated:
        return inner
    # A packed element takes one byte; any other has a tag and a length.
    return inner + item_bytes(field) // (1 if field.is_packable else 2)
