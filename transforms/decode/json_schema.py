"""Decodes Kafka values that are JSON objects after the id of their schema in a registry.

The objects are decoded as ``transforms.decode.json`` describes, without the schema, so that no
request to the registry is needed. Only if unknown fields become columns, the schema with which a
record was written decides the types of these columns. If the registry does not have the schema, the
values decide them, as for JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import InvalidConfig
from lakemark.schema.evolution import Path, Proposal, Sighting, ValueKind
from transforms.decode.confluent_header import (
    NOT_FRAMED,
    find_framed,
    header_ids,
    ids_of_valid,
    without_headers,
)
from transforms.decode.decode_result import DecodeResult, Indices
from transforms.decode.json import JsonDecoder
from transforms.decode.json_schema_types import find_columns
from transforms.decode.schema_registry import SchemaNotFound, SchemaRegistry, get_schema_cache
from transforms.decode.stored_schema import StoredSchema
from transforms.decode.written_rows import find_schema_differences


@dataclass(frozen=True, slots=True)
class JsonSchemaDecoder(JsonDecoder):
    """Decodes columns of JSON objects with a schema id in front.

    Attributes:
        registry: provides the schema of an id.
    """

    registry: SchemaRegistry = field(kw_only=True)

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``."""
        column = _combined(values)
        is_bare = _find_bare(column)
        bodies = without_headers(column)
        if not is_bare.any():
            return JsonDecoder.decode(self, bodies)
        framed, bare = np.flatnonzero(~is_bare), np.flatnonzero(is_bare)
        decoded = JsonDecoder.decode(self, bodies.take(pa.array(framed))).at(framed)
        return DecodeResult.merge([decoded, self._rejected(bare)])

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``.

        Raises:
            RegistryError: the registry cannot be read.
        """
        column = _combined(values)
        column = column.filter(pa.array(~_find_bare(column)))
        bodies = without_headers(column)
        seen = JsonDecoder.propose_columns(self, bodies)
        if self.unknown_fields != "evolve" or not seen:
            return seen
        ids = np.unique(header_ids(byte_strings(column)))
        types = frozenset[Sighting]().union(*map(self._types, ids[ids >= 0].tolist()))
        return _united(types, seen)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        bodies = without_headers(_combined(values))
        return JsonDecoder.find_wider_paths(self, bodies)

    def schema_ids(self, values: pa.ChunkedArray) -> pa.Array | None:
        """See ``ColumnDecoder``."""
        return ids_of_valid(values, header_ids(byte_strings(_combined(values))))

    def _rejected(self, indices: Indices) -> DecodeResult:
        return DecodeResult(
            rows=self.rows_schema.empty_table(),
            accepted=np.empty(0, np.int64),
            rejected=indices,
            reasons=[NOT_FRAMED] * len(indices),
        )

    def _types(self, schema_id: int) -> Proposal:
        """Return the columns that a schema has and the table lacks; none if it is not known."""
        try:
            stored = get_schema_cache(self.registry).schema(schema_id)
        except SchemaNotFound:
            return frozenset()
        found = find_schema_differences(self, _columns(stored))
        return self.policy.to_columns(found.unknown)


def _united(types: Proposal, seen: Proposal) -> Proposal:
    """Return the types that schemas give to the fields that were seen, or else those of the values.

    If schemas say that a field has integers and that it has numbers, it becomes a double, unless a
    value was seen that only a bigint stores exactly.
    """
    described = {path for path, _ in types}
    paths = {path for path, _ in seen}
    found = {one for one in types if one[0] in paths}
    found -= {(path, ValueKind.LONG) for path, kind in found if kind is ValueKind.DOUBLE} - seen
    return frozenset(found | {one for one in seen if one[0] not in described})


@lru_cache(maxsize=256)
def _columns(stored: StoredSchema) -> pa.Schema:
    """Return the columns of a schema; none if it has too many parts."""
    try:
        return find_columns(stored).columns
    except InvalidConfig:
        return pa.schema([])


def _combined(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return column.cast(pa.binary())


def _find_bare(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which values have bytes, but no schema id."""
    strings = byte_strings(column)
    present = np.flatnonzero(
        column.is_valid().to_numpy(zero_copy_only=False) & (strings.lengths > 0)
    )
    is_bare = np.zeros(len(column), np.bool_)
    is_bare[present] = ~find_framed(strings, present)
    return is_bare
