"""Reads the declarations of a ``FileDescriptorSet``, as ``protoc --descriptor_set_out`` writes it.

Source: ``google/protobuf/descriptor.proto``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from transforms.decode.protobuf.declarations import (
    EnumDeclaration,
    FieldDeclaration,
    FileDeclaration,
    InvalidProto,
    Label,
    MessageDeclaration,
    Syntax,
)
from transforms.decode.protobuf.field_walk import BrokenMessage, FieldWalk
from transforms.decode.protobuf.types import LENGTH

#: The names of ``FieldDescriptorProto.Type``. 10 is a group; 11 and 14 are messages and enums,
#: which have a name.
_TYPES = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
_LABELS: dict[int, Label] = {1: "", 2: "required", 3: "repeated"}
_MAX_DEPTH = 32


def read_descriptor_set(body: bytes) -> list[FileDeclaration]:
    """Return the declarations of all files.

    Args:
        body: the descriptors.

    Raises:
        InvalidProto: the bytes are not descriptors, or have something that is not supported.
    """
    try:
        files = [_file(_Descriptor(one)) for one in _Descriptor(body).messages(1)]
    except (BrokenMessage, UnicodeDecodeError):
        files = []
    if not files:
        message = "the bytes are not a FileDescriptorSet; write it with protoc --descriptor_set_out"
        raise InvalidProto(message)
    return files


class _Descriptor:
    """The fields of one descriptor, by number."""

    def __init__(self, body: bytes) -> None:
        self._found: Mapping[int, list[bytes | int]] = defaultdict(list)
        for tag, value, length in FieldWalk(np.frombuffer(body, np.uint8), 0, len(body)).fields():
            content = body[value : value + length] if tag & 7 == LENGTH else value
            self._found[tag >> 3].append(content)

    def messages(self, number: int) -> list[bytes]:
        return [one for one in self._found[number] if isinstance(one, bytes)]

    def texts(self, number: int) -> list[str]:
        return [one.decode() for one in self.messages(number)]

    def text(self, number: int) -> str:
        return next(reversed(self.texts(number)), "")

    def integer(self, number: int) -> int:
        found = next(reversed(self._found[number]), 0)
        return found if isinstance(found, int) else 0

    def has(self, number: int) -> bool:
        return bool(self._found[number])


def _file(file: _Descriptor) -> FileDeclaration:
    syntax: Syntax = "proto3" if file.text(12) == "proto3" else "proto2"
    if file.text(12) not in ("", "proto2", "proto3"):
        message = f"file {file.text(1)}: editions are not supported; use proto3"
        raise InvalidProto(message)
    messages = tuple(_message(_Descriptor(one), 1) for one in file.messages(4))
    enums = tuple(_enum(_Descriptor(one)) for one in file.messages(5))
    return FileDeclaration(file.text(2), syntax, messages, enums)


def _message(message: _Descriptor, depth: int) -> MessageDeclaration:
    if depth > _MAX_DEPTH:
        text = f"messages are nested more than {_MAX_DEPTH} levels deep"
        raise InvalidProto(text)
    nested = [_Descriptor(one) for one in message.messages(3)]
    entries = {one.text(1): one for one in nested if _is_entry(one)}
    oneofs = [_Descriptor(one).text(1) for one in message.messages(8)]
    return MessageDeclaration(
        message.text(1),
        tuple(_field(_Descriptor(one), oneofs, entries) for one in message.messages(2)),
        tuple(_message(one, depth + 1) for one in nested if not _is_entry(one)),
        tuple(_enum(_Descriptor(one)) for one in message.messages(4)),
    )


def _is_entry(message: _Descriptor) -> bool:
    """Return whether a message is that of the entries of a map (``MessageOptions.map_entry``)."""
    return any(_Descriptor(options).integer(7) for options in message.messages(7))


def _field(
    field: _Descriptor, oneofs: list[str], entries: Mapping[str, _Descriptor]
) -> FieldDeclaration:
    name, number = field.text(1), field.integer(3)
    type_name = _type_name(field)
    entry = entries.get(type_name.rpartition(".")[2]) if type_name.startswith(".") else None
    if entry is not None:
        key, value = (_Descriptor(one) for one in entry.messages(2))
        return FieldDeclaration(name, number, _type_name(value), key_type=_type_name(key))
    label = _LABELS.get(field.integer(4), "")
    oneof = None
    if field.integer(17):  # proto3_optional, whose oneof only exists for older readers
        label = "optional"
    elif field.has(9):
        position = field.integer(9)
        oneof = oneofs[position] if position < len(oneofs) else None
    return FieldDeclaration(name, number, type_name, label, oneof)


def _type_name(field: _Descriptor) -> str:
    found = field.text(6) or _TYPES.get(field.integer(5))
    if field.integer(5) == 10 or found is None:
        message = f"field {field.text(1)!r} is a group, or has a type that is not supported"
        raise InvalidProto(message)
    return found


def _enum(enum: _Descriptor) -> EnumDeclaration:
    values = (_Descriptor(one) for one in enum.messages(2))
    return EnumDeclaration(
        enum.text(1), tuple((one.text(1), _signed(one.integer(2))) for one in values)
    )


def _signed(number: int) -> int:
    """Return a number of 32 bits, which is negative if its highest bit is set."""
    low = number & 0xFFFFFFFF
    return low - (1 << 32) if low >> 31 else low
