"""What a file of Protocol Buffers declares, before names of types are resolved.

The declarations come from the text of a ``.proto`` file (``proto_text``) or from a set of file
descriptors (``descriptor_set``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakemark.errors import Permanent

Syntax = Literal["proto2", "proto3"]
Label = Literal["", "optional", "required", "repeated"]


class InvalidProto(Permanent):
    """A schema of Protocol Buffers is not valid, or has something that is not supported."""


@dataclass(frozen=True, slots=True)
class FieldDeclaration:
    """A field of a message.

    Attributes:
        name: the name.
        number: the number that identifies the field in a message.
        type_name: the name of a scalar type, or of a message or enum; it may be relative.
        label: the word in front of the type, if any.
        oneof: the name of the ``oneof`` that contains the field.
        key_type: the type of the keys, if the field is a map. ``type_name`` is that of its values.
    """

    name: str
    number: int
    type_name: str
    label: Label = ""
    oneof: str | None = None
    key_type: str | None = None


@dataclass(frozen=True, slots=True)
class EnumDeclaration:
    """An enum: its values in their order, each with its number."""

    name: str
    values: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class MessageDeclaration:
    """A message, and the types that are declared inside it, in their order."""

    name: str
    fields: tuple[FieldDeclaration, ...] = ()
    messages: tuple[MessageDeclaration, ...] = ()
    enums: tuple[EnumDeclaration, ...] = ()


@dataclass(frozen=True, slots=True)
class FileDeclaration:
    """A file.

    Attributes:
        package: the package; empty if there is none.
        syntax: decides which fields have a presence of their own.
        messages: the messages in their order, to which the indexes of the wire format refer.
        enums: the enums.
    """

    package: str
    syntax: Syntax
    messages: tuple[MessageDeclaration, ...]
    enums: tuple[EnumDeclaration, ...] = ()
