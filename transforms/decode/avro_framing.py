"""Which schema each Avro value was written with, and where its datum lies.

confluent   the byte 0, the schema's id in a registry (4 bytes, big-endian), then the datum
plain       nothing but the datum; one schema is declared for all of them
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from lakemark.codec.avro_bounds import check_bounded
from lakemark.codec.avro_columnar import without_null_fields
from lakemark.codec.avro_nodes import Node, root_of
from lakemark.codec.byte_strings import ByteStrings
from lakemark.errors import HudiError
from transforms.decode.avro_references import StoredSchema
from transforms.decode.avro_sizes import RecordSizes
from transforms.decode.decode_result import Indices
from transforms.decode.schema_registry import SchemaNotFound, SchemaRegistry, schema_cache

#: What happens to records whose schema the registry does not know.
UnknownSchema = Literal["reject", "fail"]

#: A null takes the place of a value in its column, so a value must not be large by its type alone.
_LARGEST_FIXED_BYTES = 4096

#: Types within types that are read: each takes a few frames of Python's stack.
_DEEPEST = 64
_TOO_DEEP = f"types within types, of which at most {_DEEPEST} levels are read"

_MAGIC = 0


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema of records, ready to be read by.

    Attributes:
        name: for reasons, such as ``schema 17``.
        avro: the parsed record.
        root: the same as a tree.
        sizes: of its records.
    """

    name: str
    avro: Mapping[str, object]
    root: Node
    sizes: RecordSizes


@dataclass(frozen=True, slots=True)
class SchemaGroup:
    """Values of one schema, or without one.

    Attributes:
        schema: what they were written with, or why nobody can tell.
        indices: which values, ascending.
    """

    schema: WriterSchema | str
    indices: Indices


class Framing(ABC):
    """How a value says which schema it was written with; pickles."""

    #: Of each value, before its datum.
    header_bytes: ClassVar[int]

    @abstractmethod
    def groups(self, values: ByteStrings, present: Indices) -> Iterator[SchemaGroup]:
        """The values by their schema.

        Args:
            values: all of them.
            present: indices of those that are not null or empty.

        Raises:
            RegistryError: nobody can tell which schema is meant, or nobody knows it, and then the
                run is to stop.
        """

    @abstractmethod
    def for_keys(self, field: str | None) -> Framing:
        """The same for Kafka keys.

        Args:
            field: what a key that is no record is called; None where all are records.
        """


@dataclass(frozen=True, slots=True)
class PlainFraming(Framing):
    """Datums alone.

    Attributes:
        stored: the schema of all values.
        key_stored: the schema of all Kafka keys, where they are read.
        field: what a key that is no record is called; None where all are records.
    """

    header_bytes: ClassVar[int] = 0

    stored: StoredSchema
    key_stored: StoredSchema | None = None
    field: str | None = None

    def groups(self, values: ByteStrings, present: Indices) -> Iterator[SchemaGroup]:
        """One group of all."""
        yield SchemaGroup(writer_schema("the declared schema", self.stored, self.field), present)

    def for_keys(self, field: str | None) -> Framing:
        """See ``Framing``."""
        return replace(self, stored=self.key_stored or self.stored, field=field)


@dataclass(frozen=True, slots=True)
class ConfluentFraming(Framing):
    """The id of a schema before each datum.

    Attributes:
        registry: knows the schema of an id.
        unknown: what happens to records whose id it does not know.
        field: as for ``PlainFraming``.
    """

    header_bytes: ClassVar[int] = 5

    registry: SchemaRegistry
    unknown: UnknownSchema = "reject"
    field: str | None = None

    def groups(self, values: ByteStrings, present: Indices) -> Iterator[SchemaGroup]:
        """A group for each id, and one of the values that have none."""
        is_framed = self._is_framed(values, present)
        if not is_framed.all():
            yield SchemaGroup(_NOT_FRAMED, present[~is_framed])
        framed = present[is_framed]
        ids = _ids(values, framed)
        for schema_id in np.unique(ids).tolist():
            yield SchemaGroup(self._schema(schema_id), framed[ids == schema_id])

    def for_keys(self, field: str | None) -> Framing:
        """See ``Framing``."""
        return replace(self, field=field)

    def _is_framed(self, values: ByteStrings, present: Indices) -> npt.NDArray[np.bool_]:
        is_framed: npt.NDArray[np.bool_] = values.lengths[present] >= self.header_bytes
        starts = values.offsets[:-1][present[is_framed]]
        is_framed[is_framed] = values.data[starts] == _MAGIC
        return is_framed

    def _schema(self, schema_id: int) -> WriterSchema | str:
        name = f"schema {schema_id}"
        try:
            return writer_schema(name, schema_cache(self.registry).schema(schema_id), self.field)
        except SchemaNotFound as error:
            if self.unknown == "fail":
                raise
            return f"{name}: {error}"


_NOT_FRAMED = (
    "the value does not begin with the byte 0 and the 4 bytes of a schema id; is it in the "
    "Confluent wire format?"
)


def _ids(values: ByteStrings, framed: Indices) -> npt.NDArray[np.uint32]:
    places = values.offsets[:-1][framed][:, None] + np.arange(1, 5)
    digits: npt.NDArray[np.uint32] = values.data[places].astype(np.uint32)
    ids: npt.NDArray[np.uint32] = digits @ np.array([1 << 24, 1 << 16, 1 << 8, 1], np.uint32)
    return ids


@lru_cache(maxsize=1024)
def writer_schema(name: str, stored: StoredSchema, field: str | None) -> WriterSchema | str:
    """A stored schema, or why its values can be no columns.

    Args:
        name: of the schema, for reasons.
        stored: the schema.
        field: as in ``PlainFraming``.
    """
    try:
        avro = stored.whole()
        if field is not None and not _is_record(avro):
            # A record of one field is written like that field.
            avro = {"type": "record", "name": "key", "fields": [{"name": field, "type": avro}]}
        if not isinstance(avro, dict):
            return f"{name} is no record"
        check_bounded(avro, name)
        avro = without_null_fields(avro)
        assert isinstance(avro, dict), avro
        root = root_of(avro)
    except HudiError as error:
        return f"{name}: {error}"
    except RecursionError:
        return f"{name}: {_TOO_DEEP}"
    if _depth(root) > _DEEPEST:
        return f"{name}: {_TOO_DEEP}"
    large = _large_fixed(root)
    if large:
        return f"{name}: a fixed of {large} bytes, of which at most {_LARGEST_FIXED_BYTES} are read"
    return WriterSchema(name, avro, root, RecordSizes(root))


def _is_record(avro: object) -> bool:
    return isinstance(avro, dict) and avro.get("type") == "record"


def _large_fixed(node: Node) -> int:
    """Bytes of the first fixed that is too large; 0 when there is none."""
    if node.size_bytes > _LARGEST_FIXED_BYTES:
        return node.size_bytes
    return next((found for found in map(_large_fixed, node.children) if found), 0)


def _depth(node: Node) -> int:
    """Levels of types within a type, itself among them."""
    return 1 + max(map(_depth, node.children), default=0)
