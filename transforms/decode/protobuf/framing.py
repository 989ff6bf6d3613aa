"""Finds the type of each message, and the position of its first byte.

confluent   the byte 0, the schema's id in a registry (4 bytes, big-endian), the indexes of the
            message in the schema, then the message
plain       only the message; one type is declared for all values

The indexes are integers of variable length in zigzag encoding: how many there are, then the index
of a message in the file, then of a message in this message, and so on. A single byte 0 means the
first message of the file. Source: "Wire format" in the documentation of Confluent's registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.byte_strings import ByteStrings
from transforms.decode.confluent_header import (
    HEADER_BYTES,
    NOT_FRAMED,
    find_framed,
    framed_ids,
    header_ids,
)
from transforms.decode.decode_result import Indices
from transforms.decode.framing import Framing, WriterGroup
from transforms.decode.protobuf.declarations import FileDeclaration, InvalidProto
from transforms.decode.protobuf.descriptor_set import read_descriptor_set
from transforms.decode.protobuf.known_files import known_files
from transforms.decode.protobuf.linking import link_message, message_name, message_names
from transforms.decode.protobuf.proto_text import parse_proto
from transforms.decode.protobuf.types import MessageType
from transforms.decode.schema_registry import SchemaNotFound, SchemaRegistry, get_schema_cache
from transforms.decode.stored_schema import StoredSchema
from transforms.reject_reason import RejectCode, RejectReason

Indexes = tuple[int, ...]

#: The indexes of the first message of a file, in full and as they are abbreviated.
_FIRST: Indexes = (0,)
#: The largest number of indexes, and the most bytes that they take.
_MAX_INDEXES = 32
_MAX_INDEX_BYTES = 5 * (_MAX_INDEXES + 1)

_NO_INDEXES = RejectReason(
    RejectCode.INVALID_MESSAGE,
    "the schema id is not followed by the indexes of a message; is the value a message of Protocol "
    "Buffers in the Confluent wire format?",
)


@dataclass(frozen=True, slots=True, eq=False)
class WriterMessage:
    """The type with which messages were written.

    Attributes:
        name: the name for reasons, such as ``schema 17, message shop.Order``.
        type: the type.
    """

    name: str
    type: MessageType

    @property
    def fields(self) -> pa.StructType:
        """See ``Written``."""
        return self.type.arrow


@dataclass(frozen=True, slots=True)
class MessageGroup(WriterGroup[WriterMessage]):
    """Messages that have the same type, or whose type is not usable.

    Attributes:
        starts: for each of the messages, the position of its first byte.
    """

    starts: Indices


MessageFraming: TypeAlias = Framing[MessageGroup]


@dataclass(frozen=True, slots=True)
class DeclaredMessage(MessageFraming):
    """Messages without a header.

    Attributes:
        descriptors: a ``FileDescriptorSet``, as ``protoc --descriptor_set_out`` writes it.
        name: the full name of the type of all messages.
    """

    descriptors: bytes
    name: str

    def groups(self, values: ByteStrings, present: Indices) -> Iterator[MessageGroup]:
        """Yield one group of all values."""
        message = load_declared(self.descriptors, self.name)
        yield MessageGroup(message, present, values.offsets[:-1][present])


@dataclass(frozen=True, slots=True)
class RegistryMessage(MessageFraming):
    """Messages with a schema id and indexes in front.

    Attributes:
        registry: provides the schema of an id.
        fails_if_unknown: whether an id that the registry does not have stops the run.
    """

    registry: SchemaRegistry
    fails_if_unknown: bool = False

    def groups(self, values: ByteStrings, present: Indices) -> Iterator[MessageGroup]:
        """Yield a group for each type, and groups for the values without an id or indexes."""
        starts = values.offsets[:-1]
        is_framed = find_framed(values, present)
        if not is_framed.all():
            bare = present[~is_framed]
            yield MessageGroup(NOT_FRAMED, bare, starts[bare])
        framed = present[is_framed]
        ids = framed_ids(values, framed)
        for indexes, members, after in _group_by_indexes(values, framed):
            if indexes is None:
                yield MessageGroup(_NO_INDEXES, framed[members], starts[framed[members]])
                continue
            for schema_id in np.unique(ids[members]).tolist():
                is_member = ids[members] == schema_id
                message = self._message(schema_id, indexes)
                yield MessageGroup(message, framed[members[is_member]], after[is_member])

    def schema_ids(self, values: ByteStrings) -> npt.NDArray[np.int64]:
        """See ``Framing``."""
        return header_ids(values)

    def _message(self, schema_id: int, indexes: Indexes) -> WriterMessage | RejectReason:
        name = f"schema {schema_id}"
        try:
            stored = get_schema_cache(self.registry).schema(schema_id)
        except SchemaNotFound as error:
            if self.fails_if_unknown:
                raise
            return _unknown(f"{name}: {error}")
        return load_stored(name, stored, indexes)


def _group_by_indexes(
    values: ByteStrings, framed: Indices
) -> Iterator[tuple[Indexes | None, Indices, Indices]]:
    """Group values with a header by their indexes.

    Yields:
        The indexes, or None for values without valid ones; the positions of the values in
        ``framed``; and the positions of their messages.
    """
    begins, ends = values.offsets[:-1][framed] + HEADER_BYTES, values.offsets[1:][framed]
    has_first = begins < ends
    has_first[has_first] = values.data[begins[has_first]] == 0
    if has_first.any():
        yield _FIRST, np.flatnonzero(has_first), begins[has_first] + 1
    found: dict[Indexes | None, list[tuple[int, int]]] = {}
    for position in np.flatnonzero(~has_first).tolist():
        begin = int(begins[position])
        end = min(int(ends[position]), begin + _MAX_INDEX_BYTES)
        indexes, length = _read_indexes(values.data[begin:end].tobytes())
        found.setdefault(indexes, []).append((position, begin + length))
    for indexes, members in found.items():
        positions, starts = np.array(members, np.int64).T
        yield indexes, positions, starts


def _read_indexes(body: bytes) -> tuple[Indexes | None, int]:
    """Return the indexes at the begin of some bytes, and their length; None if there are none."""
    numbers: list[int] = []
    count, at = 1, 0
    while len(numbers) <= count:
        value = shift = 0
        while True:
            if at >= len(body) or shift > 28:
                return None, 0
            value |= (body[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if body[at - 1] < 0x80:
                break
        numbers.append(value >> 1 ^ -(value & 1))
        count = numbers[0]
        if not 0 < count <= _MAX_INDEXES:
            return None, 0
    return tuple(numbers[1:]), at


@lru_cache(maxsize=1024)
def load_stored(
    name: str, stored: StoredSchema, message: Indexes | str
) -> WriterMessage | RejectReason:
    """Prepare a message of a stored schema; or return why it cannot become columns.

    Args:
        name: the name of the schema, for reasons.
        stored: the schema, with the schemas that it refers to.
        message: the indexes of the message in the schema, or its full name.
    """
    try:
        file = parse_proto(stored.text)
        files = [file, *(parse_proto(one.stored.text) for one in stored.all_references())]
        full_name = message if isinstance(message, str) else message_name(file, message)
        return _linked(name, files, full_name)
    except InvalidProto as error:
        return _unknown(f"{name}: {error}")


@lru_cache(maxsize=16)
def load_declared(descriptors: bytes, message: str) -> WriterMessage | RejectReason:
    """Prepare a message of a ``FileDescriptorSet``; or return why it cannot become columns."""
    try:
        return _linked("decode.descriptors", read_descriptor_set(descriptors), message)
    except InvalidProto as error:
        return _unknown(f"decode.descriptors: {error}")


def _linked(name: str, files: Iterable[FileDeclaration], message: str) -> WriterMessage:
    own = list(files)
    if message not in message_names(own):
        listed = ", ".join(message_names(own)[:20]) or "none"
        text = f"there is no message {message}; the messages are {listed}"
        raise InvalidProto(text)
    # The columns of known types depend on their fields, so no file may declare them otherwise.
    linked = link_message([*own, *known_files().values()], message)
    return WriterMessage(f"{name}, message {message}", linked)


def _unknown(text: str) -> RejectReason:
    return RejectReason(RejectCode.UNKNOWN_SCHEMA, text)
