"""Finds the writer's schema of each Avro value, and the start of its datum (the encoded record).

confluent   the byte 0, the schema's id in a registry (4 bytes, big-endian), then the datum
plain       only the datum; one schema is declared for all values
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.avro_bounds import check_bounded
from lakemark.codec.avro_columnar import without_null_fields
from lakemark.codec.avro_nodes import Node, root_of
from lakemark.codec.byte_strings import ByteStrings
from lakemark.errors import HudiError
from transforms.decode.avro_connect_names import with_logical_types
from transforms.decode.avro_references import resolve_references
from transforms.decode.avro_sizes import RecordSizes
from transforms.decode.confluent_header import (
    HEADER_BYTES,
    NOT_FRAMED,
    find_framed,
    framed_ids,
    header_ids,
)
from transforms.decode.decode_result import Indices
from transforms.decode.framing import Framing, WriterGroup
from transforms.decode.schema_registry import SchemaNotFound, SchemaRegistry, get_schema_cache
from transforms.decode.stored_schema import StoredSchema
from transforms.reject_reason import RejectCode, RejectReason

#: What to do with records whose schema the registry does not have.
UnknownSchema = Literal["reject", "fail"]

#: The largest fixed type. It is small, because a null uses as much memory as a value of its type.
_MAX_FIXED_BYTES = 4096

#: The largest depth of nested types, because each level takes a few frames of Python's stack.
_MAX_DEPTH = 64
_TOO_DEEP = f"its types are nested more than {_MAX_DEPTH} levels deep"


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A writer's schema, prepared for decoding.

    Attributes:
        name: the name for reasons, such as ``schema 17``.
        avro: the parsed schema, which is a record.
        root: the schema as a tree.
        sizes: computes the sizes of records.
    """

    name: str
    avro: Mapping[str, object]
    root: Node
    sizes: RecordSizes

    @property
    def fields(self) -> pa.StructType:
        """See ``Written``."""
        return self.root.arrow


SchemaGroup: TypeAlias = WriterGroup[WriterSchema]


class AvroFraming(Framing[SchemaGroup]):
    """How Avro values refer to their writer's schema."""

    #: The number of bytes before the datum of each value.
    header_bytes: ClassVar[int]

    @abstractmethod
    def for_keys(self, field: str | None) -> AvroFraming:
        """Return the framing of Kafka keys.

        Args:
            field: the name of the field for keys that are not records; None if all keys are
                records.
        """


@dataclass(frozen=True, slots=True)
class PlainFraming(AvroFraming):
    """Datums without a header.

    Attributes:
        stored: the schema of all values.
        key_stored: the schema of all Kafka keys, if keys are read.
        field: the name of the field for values that are not records; None if all are records.
    """

    header_bytes: ClassVar[int] = 0

    stored: StoredSchema
    key_stored: StoredSchema | None = None
    field: str | None = None

    def groups(self, values: ByteStrings, present: Indices) -> Iterator[SchemaGroup]:
        """Yield one group of all values."""
        yield WriterGroup(
            load_writer_schema("the declared schema", self.stored, self.field), present
        )

    def for_keys(self, field: str | None) -> AvroFraming:
        """See ``AvroFraming``."""
        return replace(self, stored=self.key_stored or self.stored, field=field)


@dataclass(frozen=True, slots=True)
class ConfluentFraming(AvroFraming):
    """Datums with a schema id in front.

    Attributes:
        registry: provides the schema of an id.
        unknown_schema: what to do with records whose id the registry does not have.
        field: see ``PlainFraming``.
        typed_times: whether the dates and timestamps of Debezium get logical types
            (``avro_connect_names``); if not, they remain numbers.
    """

    header_bytes: ClassVar[int] = HEADER_BYTES

    registry: SchemaRegistry
    unknown_schema: UnknownSchema = "reject"
    field: str | None = None
    typed_times: bool = False

    def groups(self, values: ByteStrings, present: Indices) -> Iterator[SchemaGroup]:
        """Yield a group for each id, and one group for all values without an id."""
        is_framed = find_framed(values, present)
        if not is_framed.all():
            yield WriterGroup(NOT_FRAMED, present[~is_framed])
        framed = present[is_framed]
        ids = framed_ids(values, framed)
        for schema_id in np.unique(ids).tolist():
            yield WriterGroup(self._schema(schema_id), framed[ids == schema_id])

    def for_keys(self, field: str | None) -> AvroFraming:
        """See ``AvroFraming``."""
        return replace(self, field=field)

    def schema_ids(self, values: ByteStrings) -> npt.NDArray[np.int64]:
        """See ``Framing``."""
        return header_ids(values)

    def _schema(self, schema_id: int) -> WriterSchema | RejectReason:
        name = f"schema {schema_id}"
        try:
            stored = get_schema_cache(self.registry).schema(schema_id)
            return load_writer_schema(name, stored, self.field, typed_times=self.typed_times)
        except SchemaNotFound as error:
            if self.unknown_schema == "fail":
                raise
            return _unknown_schema(f"{name}: {error}")


def _unknown_schema(text: str) -> RejectReason:
    return RejectReason(RejectCode.UNKNOWN_SCHEMA, text)


@lru_cache(maxsize=1024)
def load_writer_schema(
    name: str, stored: StoredSchema, field: str | None, *, typed_times: bool = False
) -> WriterSchema | RejectReason:
    """Prepare a stored schema; or return why its records cannot become columns.

    Args:
        name: the name of the schema, for reasons.
        stored: the schema.
        field: see ``PlainFraming``.
        typed_times: see ``ConfluentFraming``.
    """
    try:
        avro = resolve_references(stored)
        if typed_times:
            avro = with_logical_types(avro)
        if field is not None and not _is_record(avro):
            # Avro encodes a record with one field in the same way as the field alone.
            avro = {"type": "record", "name": "key", "fields": [{"name": field, "type": avro}]}
        if not isinstance(avro, dict):
            return _unknown_schema(f"{name} is not a record")
        check_bounded(avro, name)
        avro = without_null_fields(avro)
        assert isinstance(avro, dict), avro
        root = root_of(avro)
    except HudiError as error:
        return _unknown_schema(f"{name}: {error}")
    except RecursionError:
        return _unknown_schema(f"{name}: {_TOO_DEEP}")
    if _depth(root) > _MAX_DEPTH:
        return _unknown_schema(f"{name}: {_TOO_DEEP}")
    large = _find_large_fixed(root)
    if large:
        return _unknown_schema(
            f"{name}: a fixed of {large} bytes; at most {_MAX_FIXED_BYTES} are supported"
        )
    return WriterSchema(name, avro, root, RecordSizes(root))


def _is_record(avro: object) -> bool:
    return isinstance(avro, dict) and avro.get("type") == "record"


def _find_large_fixed(node: Node) -> int:
    """Return the size of the first fixed type that is too large; 0 if there is none."""
    if node.size_bytes > _MAX_FIXED_BYTES:
        return node.size_bytes
    return next((found for found in map(_find_large_fixed, node.children) if found), 0)


def _depth(node: Node) -> int:
    """Return the depth of nested types, which is 1 for a type without children."""
    return 1 + max(map(_depth, node.children), default=0)
