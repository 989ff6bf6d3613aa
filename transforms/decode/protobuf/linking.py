"""Resolves the names of types, and chooses what becomes of each message.

A name is searched from the innermost message outwards, then in the package and the packages around
it. Source: "Packages and Name Resolution" in the language guide of Protocol Buffers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from transforms.decode.protobuf.declarations import (
    EnumDeclaration,
    FieldDeclaration,
    FileDeclaration,
    InvalidProto,
    MessageDeclaration,
    Syntax,
)
from transforms.decode.protobuf.types import Field, Form, Kind, MessageType

_GOOGLE = "google.protobuf."
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
_FORMS = {
    f"{_GOOGLE}Timestamp": Form.TIMESTAMP,
    f"{_GOOGLE}Duration": Form.DURATION,
    **{f"{_GOOGLE}{name}Value": Form.WRAPPER for name in _WRAPPED},
    **{f"{_GOOGLE}{name}": Form.JSON for name in ("Struct", "Value", "ListValue")},
}
_SCALARS = {kind.value: kind for kind in Kind if kind not in (Kind.ENUM, Kind.MESSAGE)}
_KEYS = frozenset(_SCALARS) - {"double", "float", "bytes"}

#: The limits of a schema, whose columns are a tree.
_MAX_FIELDS = 10_000
_MAX_DEPTH = 64
_LARGEST_NUMBER = (1 << 29) - 1


@dataclass(frozen=True, slots=True)
class _Declared:
    """A type with its full name."""

    name: str
    syntax: Syntax
    declaration: MessageDeclaration | EnumDeclaration


def message_name(file: FileDeclaration, indexes: Sequence[int]) -> str:
    """Return the full name of the message to which indexes of the wire format refer.

    Args:
        file: the file that contains the message.
        indexes: the index of a message in the file, then of a message in this message, and so on.

    Raises:
        InvalidProto: there is no such message.
    """
    names, messages = [file.package] if file.package else [], file.messages
    for index in indexes:
        if not 0 <= index < len(messages):
            message = f"it has no message with the indexes {list(indexes)}"
            raise InvalidProto(message)
        names.append(messages[index].name)
        messages = messages[index].messages
    return ".".join(names)


def message_names(files: Iterable[FileDeclaration]) -> list[str]:
    """Return the full names of all messages in files."""
    declared = (one for file in files for one in _declared_types(file))
    return [one.name for one in declared if isinstance(one.declaration, MessageDeclaration)]


def link_message(files: Iterable[FileDeclaration], name: str) -> MessageType:
    """Return a message whose fields have their types.

    Args:
        files: the file of the message, and all files whose types it uses.
        name: the full name of the message.

    Raises:
        InvalidProto: a type is not declared, or the message cannot become columns.
    """
    types = {one.name: one for file in files for one in _declared_types(file)}
    linked = _Linker(types).message(name, ())
    if linked.form is not Form.STRUCT:
        message = f"message {name} has no fields that can become columns"
        raise InvalidProto(message)
    return linked


def _declared_types(file: FileDeclaration) -> Iterator[_Declared]:
    yield from _types_within(file.package, file.syntax, file.messages, file.enums)


def _types_within(
    scope: str,
    syntax: Syntax,
    messages: Iterable[MessageDeclaration],
    enums: Iterable[EnumDeclaration],
) -> Iterator[_Declared]:
    prefix = f"{scope}." if scope else ""
    for enum in enums:
        yield _Declared(prefix + enum.name, syntax, enum)
    for one in messages:
        yield _Declared(prefix + one.name, syntax, one)
        yield from _types_within(prefix + one.name, syntax, one.messages, one.enums)


@dataclass(slots=True)
class _Linker:
    """Links the messages of one schema."""

    types: Mapping[str, _Declared]
    field_count: int = field(default=0)

    def message(self, name: str, around: tuple[str, ...]) -> MessageType:
        """Link a message.

        Args:
            name: the full name.
            around: the names of the messages that contain it.
        """
        declared = self.types.get(name)
        if declared is None or not isinstance(declared.declaration, MessageDeclaration):
            message = f"message {name} is not declared"
            raise InvalidProto(message)
        form = _FORMS.get(name, Form.STRUCT if declared.declaration.fields else Form.PRESENCE)
        if name in around:
            form = Form.BYTES
        if form in (Form.JSON, Form.PRESENCE, Form.BYTES):
            return MessageType(name, (), form)
        if len(around) >= _MAX_DEPTH:
            message = f"its messages are nested more than {_MAX_DEPTH} levels deep"
            raise InvalidProto(message)
        _check_fields(name, declared.declaration.fields)
        within = (*around, name)
        fields = [self._field(declared, one, within) for one in declared.declaration.fields]
        return MessageType(name, tuple(fields), form)

    def _field(
        self, owner: _Declared, declared: FieldDeclaration, around: tuple[str, ...]
    ) -> Field:
        self.field_count += 1
        if self.field_count > _MAX_FIELDS:
            text = f"it has more than {_MAX_FIELDS} fields, with those of its messages"
            raise InvalidProto(text)
        if declared.key_type is not None:
            entry = self._entry(owner, declared, around)
            return Field(
                declared.name, declared.number, Kind.MESSAGE, True, is_map=True, message=entry
            )
        kind, message, symbols = self._type(owner, declared.type_name, around)
        is_repeated = declared.label == "repeated"
        has_presence = not is_repeated and (
            kind is Kind.MESSAGE
            or declared.oneof is not None
            or declared.label == "optional"
            or owner.syntax == "proto2"
        )
        return Field(
            declared.name,
            declared.number,
            kind,
            is_repeated,
            is_required=declared.label == "required",
            has_presence=has_presence,
            oneof=declared.oneof,
            message=message,
            symbols=symbols,
        )

    def _entry(
        self, owner: _Declared, declared: FieldDeclaration, around: tuple[str, ...]
    ) -> MessageType:
        """Return the message of the entries of a map, whose absent fields have default values."""
        if declared.key_type not in _KEYS:
            message = f"field {declared.name!r}: {declared.key_type} is no type of keys"
            raise InvalidProto(message)
        kind, message_type, symbols = self._type(owner, declared.type_name, around)
        fields = (
            Field("key", 1, _SCALARS[declared.key_type]),
            Field("value", 2, kind, message=message_type, symbols=symbols),
        )
        return MessageType(f"{owner.name}.{declared.name}", fields, Form.STRUCT)

    def _type(
        self, owner: _Declared, name: str, around: tuple[str, ...]
    ) -> tuple[Kind, MessageType | None, tuple[tuple[int, str], ...]]:
        if name in _SCALARS:
            return _SCALARS[name], None, ()
        found = self._find(owner.name, name)
        if isinstance(found.declaration, MessageDeclaration):
            return Kind.MESSAGE, self.message(found.name, around), ()
        return Kind.ENUM, None, _symbols(found)

    def _find(self, scope: str, name: str) -> _Declared:
        """Find a type by a name that is relative to a message."""
        if name.startswith("."):
            candidates = [name[1:]]
        else:
            parts = scope.split(".")
            candidates = [".".join([*parts[:length], name]) for length in range(len(parts), -1, -1)]
        for candidate in candidates:
            if candidate in self.types:
                return self.types[candidate]
        message = f"type {name} is not declared, and no schema that is referred to declares it"
        raise InvalidProto(message)


def _check_fields(name: str, fields: Sequence[FieldDeclaration]) -> None:
    names = {one.name for one in fields}
    numbers = {one.number for one in fields}
    if len(names) < len(fields) or len(numbers) < len(fields):
        message = f"two fields of message {name} have the same name or the same number"
        raise InvalidProto(message)
    if not all(1 <= number <= _LARGEST_NUMBER for number in numbers):
        message = f"a field of message {name} has a number that no field may have"
        raise InvalidProto(message)


def _symbols(found: _Declared) -> tuple[tuple[int, str], ...]:
    """Return the name of each number of an enum; of several names, the first."""
    assert isinstance(found.declaration, EnumDeclaration), found.name
    names: dict[int, str] = {}
    for name, number in found.declaration.values:
        names.setdefault(number, name)
    if not names:
        message = f"enum {found.name} has no values"
        raise InvalidProto(message)
    return tuple((number, name) for number, name in names.items())
