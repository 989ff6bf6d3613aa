"""Decodes Kafka values that are Avro records to columns.

Values are read with their writer's schema (``avro_framing``): all values of one schema together, by
column. Then they are converted to the types of the table's columns (``avro_conversion``):

field absent from the schema   null
int, long                      integers in range, floats (the nearest), decimals, timestamps (a long
                               without a logical type counts in ``epoch_unit``)
float, double                  double; float unless the number would become infinity
string, enum                   string; a string also binary
bytes, fixed                   binary; bytes also string, if they are UTF-8
decimal                        decimal, exactly
date, timestamps               the same types, of the years 1 to 9999; a local timestamp is UTC if
                               the column has a zone
times of the day               integers, as they are written
record, array, map             as their fields, elements and values
union                          only of null and one other type, or of numbers that fit one of them
null                           not a field

A value that is truncated, has extra bytes, or does not match its schema is rejected with the reason
and the field. A schema that cannot become columns rejects all its records: with other unions,
recursive records, or decimals of more than 38 digits.

The policy (``schema_policy``) decides about differences between the writer's schema and the table.
A field without a column is unknown even if it is null. A field of a wider type requests a wider
column as soon as a record is written with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import InvalidConfig
from lakemark.schema.avro import to_avro
from lakemark.schema.evolution import Path, Proposal, Sighting
from transforms.decode.avro_decoding import AvroDecoding, find_schema_differences, group_by_schema
from transforms.decode.avro_differences import Differences
from transforms.decode.avro_framing import Framing, WriterSchema
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder


@dataclass(frozen=True, slots=True)
class AvroDecoder(ColumnDecoder):
    """Decodes columns of Avro records.

    Attributes:
        framing: how values refer to their writer's schema.
        record_limit_bytes: maximum bytes of columns of one record; larger ones are rejected.
    """

    framing: Framing = field(kw_only=True)
    record_limit_bytes: int = field(default=64 << 20, kw_only=True)

    @classmethod
    def check_type(cls, path: str, data_type: pa.DataType) -> None:
        """Check that a table supports a column type; then Avro is decoded to it."""
        try:
            to_avro(pa.schema([pa.field("c", data_type)]), "t")
        except InvalidConfig:
            message = f"column {path!r}: Avro is not decoded to {data_type}"
            raise InvalidConfig(message) from None

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``.

        Raises:
            RegistryError: the registry does not provide a writer's schema, see ``Framing``.
        """
        decoding = AvroDecoding(self, self.framing, self.record_limit_bytes)
        start = 0
        for chunk in _chunks(values):
            decoding.add(chunk, start)
            start += len(chunk)
        return decoding.finish()

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        requested: set[Sighting] = set()
        for found in self._differences(values):
            if self.unknown_fields == "evolve":
                requested |= found.unknown
            if self.policy.wider_values == "evolve":
                requested |= found.wider
        return self.policy.to_columns(requested)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        wider = (self.policy.to_columns(found.wider) for found in self._differences(values))
        return {path for sightings in wider for path, _ in sightings}

    def _differences(self, values: pa.Array | pa.ChunkedArray) -> list[Differences]:
        found: dict[str, Differences] = {}
        for chunk in _chunks(values):
            valid = chunk.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
            for group in group_by_schema(self.framing, byte_strings(chunk), valid):
                if isinstance(group.schema, WriterSchema):
                    found[group.schema.name] = find_schema_differences(self, group.schema)
        return list(found.values())


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return [chunk.cast(pa.binary()) for chunk in chunks]
