"""Kafka values that are Avro records, decoded into columns.

Values are read by the schema that they were written with (``avro_framing``), all of one schema
together and by columns, then put into the types of the table's columns (``avro_conversion``):

field absent from the schema   null
int, long                      integers in range, floats (the nearest), decimals, timestamps (a long
                               without a logical type counts in ``epoch_unit``)
float, double                  double; float where it is no infinity
string, enum                   string; a string also bytes
bytes, fixed                   binary; bytes also string, where they are UTF-8
decimal                        decimal, exactly
date, timestamps               themselves, of the years 1 to 9999; a local one is UTC where a zone
                               is wanted
times of the day               integers, as they are written
record, array, map             as their fields, elements and values
union                          of null and one other type alone, or numbers that one of them holds
null                           no field at all

A value that is cut off, has bytes left over, or is no value of its schema is rejected with the
reason and the field. So are all values of a schema that cannot be columns: other unions, records
that hold themselves, decimals of more than 38 digits.

What the table lacks goes by the policy (``schema_policy``), told by the writer's schema: a field
that no column is there for is unknown whether or not it holds something, and one of a wider type
asks for a wider column as soon as records are written with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import InvalidConfig
from lakemark.schema.avro import to_avro
from lakemark.schema.evolution import Path, Proposal, Sighting
from transforms.decode.avro_decoding import AvroDecoding, differences, group_by_schema
from transforms.decode.avro_differences import Differences
from transforms.decode.avro_framing import Framing, WriterSchema
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder


@dataclass(frozen=True, slots=True)
class AvroDecoder(ColumnDecoder):
    """Decodes columns of Avro records.

    Attributes:
        framing: which schema each value was written with.
        record_limit_bytes: of the columns that one record may become; others are rejected.
    """

    framing: Framing = field(kw_only=True)
    record_limit_bytes: int = field(default=64 << 20, kw_only=True)

    @classmethod
    def check_type(cls, path: str, data_type: pa.DataType) -> None:
        """Pass when Avro is decoded to a type: to whatever a table holds."""
        try:
            to_avro(pa.schema([pa.field("c", data_type)]), "t")
        except InvalidConfig:
            message = f"column {path!r}: Avro is not decoded to {data_type}"
            raise InvalidConfig(message) from None

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``.

        Raises:
            RegistryError: nobody knows which schema values were written with, see ``Framing``.
        """
        decoding, start = AvroDecoding(self), 0
        for chunk in _chunks(values):
            decoding.add(chunk, start)
            start += len(chunk)
        return decoding.finish()

    def propose_columns(self, values: pa.Array | pa.ChunkedArray) -> Proposal:
        """See ``ColumnDecoder``."""
        asked: set[Sighting] = set()
        for found in self._differences(values):
            if self.unknown_fields == "evolve":
                asked |= found.unknown
            if self.policy.wider_values == "evolve":
                asked |= found.wider
        return self.policy.to_columns(asked)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        wider = (self.policy.to_columns(found.wider) for found in self._differences(values))
        return {path for sightings in wider for path, _ in sightings}

    def _differences(self, values: pa.Array | pa.ChunkedArray) -> list[Differences]:
        found: dict[str, Differences] = {}
        for chunk in _chunks(values):
            valid = chunk.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
            for group in group_by_schema(self, byte_strings(chunk), valid):
                if isinstance(group.schema, WriterSchema):
                    found[group.schema.name] = differences(self, group.schema)
        return list(found.values())


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return [chunk.cast(pa.binary()) for chunk in chunks]
