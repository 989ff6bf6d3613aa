"""Decoding of Protocol Buffers, compared with Google's implementation, and of random bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import examples
from tests.protobuf.drawn_messages import (
    KNOWN,
    WRAPPERS,
    DrawnType,
    descriptor_set,
    drawn_types,
    message_class,
    messages,
    proto_text,
)
from tests.protobuf.expected_rows import expected_row
from transforms.decode.decode_result import DecodeResult
from transforms.decode.protobuf.declarations import InvalidProto
from transforms.decode.protobuf.decoder import ProtobufDecoder
from transforms.decode.protobuf.descriptor_set import read_descriptor_set
from transforms.decode.protobuf.framing import DeclaredMessage, WriterMessage, load_declared
from transforms.decode.protobuf.proto_text import parse_proto
from transforms.decode.protobuf.sizes import growth, message_bytes
from transforms.decode.protobuf.types import START_GROUP
from transforms.decode.schema_differences import column_types

_EVERY_TYPE = (*KNOWN, *WRAPPERS)
#: How many copies of values make the decoder read them in rounds instead of one by one.
_MANY = 40


def _decoder(root: DrawnType) -> ProtobufDecoder:
    declared = DeclaredMessage(descriptor_set(root).SerializeToString(), "drawn.Root")
    message = load_declared(declared.descriptors, declared.name)
    assert isinstance(message, WriterMessage), message
    return ProtobufDecoder(column_types(message.type.arrow), framing=declared)


def _decode(decoder: ProtobufDecoder, values: list[bytes], copies: int) -> DecodeResult:
    """Decode values that are copied in a batch, so that these are read in rounds."""
    return decoder.decode(pa.array(values * copies, pa.binary()))


def _plain(rows: pa.Table) -> list[Any]:
    return list(rows.to_pylist(maps_as_pydicts="strict"))


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_messages_become_the_rows_that_google_reads(data: st.DataObject) -> None:
    root = data.draw(drawn_types(_EVERY_TYPE))
    kind = message_class(descriptor_set(root), "drawn.Root")
    written = data.draw(st.lists(messages(kind), min_size=1, max_size=4))
    copies = data.draw(st.sampled_from([1, _MANY]))
    values = [one.SerializeToString() for one in written]
    present = [value for value in values if value]
    decoded = _decode(_decoder(root), values, copies)
    assert len(decoded.accepted) == copies * len(present), decoded.reasons
    rows = [row for row, value in zip(map(expected_row, written), values, strict=True) if value]
    assert _same(_plain(decoded.rows), rows * copies)


@given(st.data())
@settings(max_examples=examples(300), deadline=None)
def test_damaged_messages_are_read_as_google_reads_them(data: st.DataObject) -> None:
    root = data.draw(drawn_types(tuple(WRAPPERS)))
    kind = message_class(descriptor_set(root), "drawn.Root")
    good = data.draw(messages(kind)).SerializeToString()
    damaged = st.binary(min_size=1, max_size=30) | _damaged(good)
    same = damaged.filter(lambda value: not _is_read_otherwise(kind, value))
    values = data.draw(st.lists(same, min_size=1))
    copies = data.draw(st.sampled_from([1, _MANY]))
    decoded = _decode(_decoder(root), values, copies)
    expected = [_read_by_google(kind, value) for value in values]
    accepted = [index for index, row in enumerate(expected) if row is not None]
    count = len(values)
    found = [index for index in decoded.accepted.tolist() if index < count]
    assert found == accepted, (values, decoded.reasons)
    assert len(decoded.accepted) == copies * len(accepted)
    assert _same(_plain(decoded.rows), [expected[index] for index in accepted] * copies)


@given(drawn_types(_EVERY_TYPE))
@settings(max_examples=examples(100), deadline=None)
def test_the_text_of_a_schema_declares_what_its_descriptors_declare(root: DrawnType) -> None:
    described = read_descriptor_set(descriptor_set(root).SerializeToString())[-1]
    parsed = parse_proto(proto_text(root))
    assert _names(parsed.messages) == _names(described.messages)
    assert parsed.enums == described.enums


@given(st.data())
@settings(max_examples=examples(200), deadline=None)
def test_damaged_schemas_are_read_or_refused(data: st.DataObject) -> None:
    root = data.draw(drawn_types(_EVERY_TYPE))
    text = proto_text(root)
    at = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(at, min(len(text), at + 9)))
    added = data.draw(st.text(max_size=3) | st.sampled_from(["{", "}", ";", "/*", '"', "message "]))
    try:
        parse_proto(text[:at] + added + text[end:])
    except InvalidProto as error:
        assert "line" in str(error)
    try:
        read_descriptor_set(data.draw(_damaged(descriptor_set(root).file[-1].SerializeToString())))
    except InvalidProto:
        pass


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_memory_of_a_record_is_within_the_upper_bound(data: st.DataObject) -> None:
    root = data.draw(drawn_types(_EVERY_TYPE))
    kind = message_class(descriptor_set(root), "drawn.Root")
    value = data.draw(messages(kind)).SerializeToString()
    message = load_declared(descriptor_set(root).SerializeToString(), "drawn.Root")
    assert isinstance(message, WriterMessage), message
    bound = message_bytes(message.type) + len(value) * (1 + growth(message.type))
    if value:
        rows = _decode(_decoder(root), [value], 100).rows
        # Each value also has a validity bit, and each column a last offset.
        assert rows.nbytes <= 100 * 1.2 * bound + 4_000


def _names(declared: Any) -> Any:
    """Return declarations without the scopes of names, which texts need not have."""
    return [
        (
            message.name,
            sorted(
                str((one.name, one.number, one.type_name.rpartition(".")[2], one.label))
                + str((one.oneof, one.key_type))
                for one in message.fields
            ),
            _names(message.messages),
        )
        for message in declared
    ]


def _read_by_google(kind: type[Message], value: bytes) -> dict[str, Any] | None:
    try:
        return expected_row(kind.FromString(value))
    except (DecodeError, UnicodeDecodeError):
        return None


def _is_read_otherwise(kind: type[Message], value: bytes) -> bool:
    """Return whether Google's parser of Python accepts what its other parsers do not.

    It drops an entry of a map that has a field which is neither a key nor a value, while the
    others keep it; and it accepts fields of the number 0 in groups that it does not know.
    """
    try:
        return _has_dropped(kind.FromString(value))
    except (DecodeError, UnicodeDecodeError):
        return False


def _has_dropped(message: Any) -> bool:
    numbers = {field.number for field in message.DESCRIPTOR.fields if _is_map(field)}
    unknown: Any = UnknownFieldSet(message)
    if _has_number_0(unknown) or any(one.field_number in numbers for one in unknown):
        return True
    inner = (one for field, value in message.ListFields() for one in _messages_of(field, value))
    return any(_has_dropped(one) for one in inner)


def _has_number_0(fields: Iterable[Any]) -> bool:
    return any(
        one.field_number == 0 or (one.wire_type == START_GROUP and _has_number_0(one.data))
        for one in fields
    )


def _messages_of(field: FieldDescriptor, value: Any) -> list[Message]:
    if _is_map(field):
        value = list(value.values())
    values = list(value) if field.is_repeated else [value]
    return [one for one in values if isinstance(one, Message)]


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@st.composite
def _damaged(draw: st.DrawFn, good: bytes) -> bytes:
    """Draw bytes that differ from a valid message in a few places, or join it with itself."""
    if draw(st.integers(0, 3)) == 0:
        return good + draw(st.sampled_from([good, good[: len(good) // 2], b"\x0b\x0c"])) or b"\x00"
    at = draw(st.integers(0, len(good)))
    end = draw(st.integers(at, min(len(good), at + 2)))
    return good[:at] + draw(st.binary(max_size=2)) + good[end:] or b"\x00"


def _same(found: Any, expected: Any) -> bool:
    """Return whether values are equal; NaN equals itself, and JSON is compared as it is parsed."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(
            _same(found[name], expected[name]) for name in expected
        )
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(_same, found, expected))
    if isinstance(expected, float) and isinstance(found, float) and math.isnan(expected):
        return math.isnan(found)
    if isinstance(found, str) and found != expected:
        return _same_json(found, expected)
    return bool(found == expected)


def _same_json(found: str, expected: Any) -> bool:
    try:
        return bool(json.loads(found) == expected)
    except ValueError:
        return False
