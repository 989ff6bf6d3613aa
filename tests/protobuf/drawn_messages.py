"""Draws types of messages, and messages of these types, for Google's implementation of Protobuf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

_FIELD = descriptor_pb2.FieldDescriptorProto
_UNSIGNED_32, _UNSIGNED_64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
_SIGNED_32, _SIGNED_64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)

#: The scalar types by their names in ``.proto`` files, with strategies of their values.
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "double": st.floats(allow_nan=False),
    "float": st.floats(width=32, allow_nan=False),
    "int32": _SIGNED_32 | st.integers(-2, 200),
    "int64": _SIGNED_64 | st.integers(-2, 200),
    "uint32": _UNSIGNED_32 | st.integers(0, 200),
    "uint64": _UNSIGNED_64,
    "sint32": _SIGNED_32,
    "sint64": _SIGNED_64,
    "fixed32": _UNSIGNED_32,
    "fixed64": _UNSIGNED_64,
    "sfixed32": _SIGNED_32,
    "sfixed64": _SIGNED_64,
    "bool": st.booleans(),
    "string": st.text(max_size=4),
    "bytes": st.binary(max_size=4),
}
_KEY_TYPES = [name for name in SCALARS if name not in ("double", "float", "bytes")]
_ENUM = ("Color", {"RED": 0, "GREEN": 1, "DARK": -3, "FAR": 70_000})

#: Types with a meaning of their own, by the file that declares them.
KNOWN = {
    "google.protobuf.Timestamp": timestamp_pb2,
    "google.protobuf.Duration": duration_pb2,
    "google.protobuf.Struct": struct_pb2,
    "google.protobuf.Value": struct_pb2,
    "google.protobuf.Empty": empty_pb2,
}
WRAPPERS = {
    f"google.protobuf.{name}Value": wrappers_pb2
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}


@dataclass(frozen=True)
class DrawnField:
    """A field: ``label`` is ``""``, ``optional``, ``repeated``, ``map`` or the name of a oneof."""

    name: str
    number: int
    type_name: str
    label: str
    key_type: str = "string"


@dataclass(frozen=True)
class DrawnType:
    """A message and the messages inside it."""

    name: str
    fields: tuple[DrawnField, ...]
    nested: tuple[DrawnType, ...]


@st.composite
def drawn_types(
    draw: st.DrawFn, extra: tuple[str, ...] = (), depth: int = 2, name: str = "Root"
) -> DrawnType:
    """Draw a message.

    Args:
        draw: see Hypothesis.
        extra: the full names of other messages that fields may have as their types.
        depth: how deep messages are nested.
        name: the name of the message.
    """
    nested = draw(st.lists(st.just(0), max_size=2)) if depth else []
    inner = tuple(
        draw(drawn_types(extra, depth - 1, f"{name}{'AB'[n]}")) for n in range(len(nested))
    )
    types = [*SCALARS, _ENUM[0], *extra, *2 * [one.name for one in inner]]
    numbers = draw(
        st.lists(
            st.integers(1, 20)
            | st.integers(1, 2**29 - 1).filter(lambda n: not 19_000 <= n < 20_000),
            min_size=1,
            max_size=5,
            unique=True,
        )
    )
    labels = st.sampled_from(["", "", "optional", "repeated", "map", "one", "one", "other"])
    fields = tuple(
        DrawnField(
            f"f{number}",
            number,
            draw(st.sampled_from(types)),
            draw(labels),
            draw(st.sampled_from(_KEY_TYPES)),
        )
        for number in numbers
    )
    return DrawnType(name, fields, inner)


def proto_text(root: DrawnType) -> str:
    """Return the ``.proto`` file of a message."""
    imports = {
        f"google/protobuf/{one}.proto"
        for one in ("timestamp", "duration", "struct", "empty", "wrappers")
    }
    enum = "".join(f" {name} = {number};" for name, number in _ENUM[1].items())
    listed = "".join(f'import "{name}";\n' for name in sorted(imports))
    return (
        f'syntax = "proto3";\npackage drawn;\n{listed}enum {_ENUM[0]} {{{enum} }}\n'
        f"{_message_text(root)}"
    )


def _message_text(one: DrawnType) -> str:
    lines, oneofs = [_message_text(inner) for inner in one.nested], dict[str, list[str]]()
    for member in one.fields:
        declared = f"{member.type_name} {member.name} = {member.number};"
        if member.label == "map":
            declared = (
                f"map<{member.key_type}, {member.type_name}> {member.name} = {member.number};"
            )
        elif member.label in ("optional", "repeated"):
            declared = f"{member.label} {declared}"
        if member.label in ("one", "other"):
            oneofs.setdefault(member.label, []).append(declared)
        else:
            lines.append(declared)
    lines += [f"oneof {name} {{ {' '.join(members)} }}" for name, members in oneofs.items()]
    return f"message {one.name} {{\n" + "\n".join(lines) + "\n}\n"


def descriptor_set(root: DrawnType) -> descriptor_pb2.FileDescriptorSet:
    """Return the descriptors of a message and of everything that it uses."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, duration_pb2, struct_pb2, empty_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    own = files.file.add(name="drawn.proto", package="drawn", syntax="proto3")
    own.dependency.extend(one.name for one in files.file[:-1])
    enum = own.enum_type.add(name=_ENUM[0])
    for name, number in _ENUM[1].items():
        enum.value.add(name=name, number=number)
    _describe(root, own.message_type.add(), ".drawn")
    return files


def _describe(one: DrawnType, into: descriptor_pb2.DescriptorProto, scope: str) -> None:
    into.name = one.name
    scope = f"{scope}.{one.name}"
    for inner in one.nested:
        _describe(inner, into.nested_type.add(), scope)
    oneofs: list[str] = []
    names = {inner.name: f"{scope}.{inner.name}" for inner in one.nested}
    for member in one.fields:
        described = into.field.add(
            name=member.name, number=member.number, label=_FIELD.LABEL_OPTIONAL
        )
        if member.label == "map":
            entry = into.nested_type.add(name=f"{member.name.capitalize()}Entry")
            entry.options.map_entry = True
            for number, (name, kind) in enumerate(
                (("key", member.key_type), ("value", member.type_name)), 1
            ):
                part = entry.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
                _set_type(part, kind, names)
            described.label = _FIELD.LABEL_REPEATED
            described.type, described.type_name = _FIELD.TYPE_MESSAGE, f"{scope}.{entry.name}"
            continue
        _set_type(described, member.type_name, names)
        if member.label == "repeated":
            described.label = _FIELD.LABEL_REPEATED
        elif member.label in ("one", "other"):
            if member.label not in oneofs:
                oneofs.append(member.label)
            described.oneof_index = oneofs.index(member.label)
    for name in oneofs:
        into.oneof_decl.add(name=name)
    for member, described in zip(one.fields, into.field, strict=True):
        if member.label == "optional":
            described.proto3_optional = True
            described.oneof_index = len(into.oneof_decl)
            into.oneof_decl.add(name=f"_{member.name}")


def _set_type(field: Any, kind: str, names: dict[str, str]) -> None:
    if kind in SCALARS:
        field.type = _FIELD.Type.Value(f"TYPE_{kind.upper()}")
    elif kind == _ENUM[0]:
        field.type, field.type_name = _FIELD.TYPE_ENUM, f".drawn.{kind}"
    else:
        field.type, field.type_name = _FIELD.TYPE_MESSAGE, names.get(kind, f".{kind}")


def message_class(files: descriptor_pb2.FileDescriptorSet, name: str) -> type[Message]:
    """Return Google's class of a message."""
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


@st.composite
def messages(draw: st.DrawFn, kind: type[Message]) -> Message:
    """Draw a message of a class."""
    one = kind()
    _fill(draw, one)
    return one


def _fill(draw: st.DrawFn, one: Any) -> None:
    descriptor: Descriptor = one.DESCRIPTOR
    filler = _KNOWN_FILLERS.get(descriptor.full_name)
    if filler is not None:
        filler(draw, one)
        return
    for field in descriptor.fields:
        if draw(st.integers(0, 3)) == 0:
            continue
        _fill_field(draw, one, field)


def _fill_field(draw: st.DrawFn, one: Any, field: FieldDescriptor) -> None:
    cell = getattr(one, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = field.message_type.fields
        for _ in range(draw(st.integers(0, 2))):
            name = draw(_values(key))
            if value.message_type is not None:
                _fill(draw, cell[name])
            else:
                cell[name] = draw(_values(value))
    elif field.is_repeated:
        for _ in range(draw(st.integers(0, 3))):
            if field.message_type is not None:
                _fill(draw, cell.add())
            else:
                cell.append(draw(_values(field)))
    elif field.message_type is not None:
        cell.SetInParent()
        _fill(draw, cell)
    else:
        setattr(one, field.name, draw(_values(field)))


def _values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.enum_type is not None:
        return st.sampled_from([*_ENUM[1].values(), 5])
    names: dict[int, str] = {number: name for name, number in _FIELD.Type.items()}
    return SCALARS[names[field.type].removeprefix("TYPE_").lower()]


def _fill_timestamp(draw: st.DrawFn, one: Any) -> None:
    one.seconds = draw(st.integers(-62_135_596_800, 253_402_300_799))
    one.nanos = draw(st.integers(0, 999_999_999))


def _fill_duration(draw: st.DrawFn, one: Any) -> None:
    sign = draw(st.sampled_from([-1, 1]))
    one.seconds = sign * draw(st.integers(0, 315_576_000_000))
    one.nanos = sign * draw(st.integers(0, 999_999_999))


_SCALARS_OF_JSON = (
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
_FLAT_JSON = st.lists(_SCALARS_OF_JSON, max_size=2) | st.dictionaries(
    st.text(max_size=2), _SCALARS_OF_JSON, max_size=2
)
_JSON = _SCALARS_OF_JSON | _FLAT_JSON | st.lists(_FLAT_JSON, max_size=2)


def _fill_struct(draw: st.DrawFn, one: Any) -> None:
    one.update(draw(st.dictionaries(st.text(max_size=2), _JSON, max_size=3)))


def _fill_value(draw: st.DrawFn, one: Any) -> None:
    outer = struct_pb2.Struct()
    outer.update({"v": draw(_JSON)})
    one.CopyFrom(type(one).FromString(outer.fields["v"].SerializeToString()))


_KNOWN_FILLERS: dict[str, Callable[[st.DrawFn, Any], None]] = {
    "google.protobuf.Timestamp": _fill_timestamp,
    "google.protobuf.Duration": _fill_duration,
    "google.protobuf.Struct": _fill_struct,
    "google.protobuf.Value": _fill_value,
}
