"""Decodes Kafka values that are Avro records to columns.

All values that were written with one schema are read together, column by column, with this writer's
schema (``avro_framing``). Then they are converted to the types of the table's columns
(``column_conversion``). A writer's type can be converted to these column types:

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
record, array, map             the same type, if the fields, elements or values can be converted
union                          the type of its branch, if there is only null and one other type, or
                               only numbers that fit one of them
null                           none, because it is not a field

A value is rejected if it is truncated, has extra bytes, or does not match its schema; the reason
names the field. Some schemas cannot become columns: schemas with other unions, with recursive
records, or with decimals of more than 38 digits. All their records are rejected.

The policy (``schema_policy``) decides about differences between the writer's schema and the table.
A field without a column is unknown, even if it is null. If wider values evolve the table, a field
of a wider type requests a wider column as soon as one record is written with this schema.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lakemark.codec.byte_strings import byte_strings
from lakemark.errors import InvalidConfig
from lakemark.schema.avro import to_avro
from lakemark.schema.evolution import Path, Proposal
from transforms.decode.avro_decoding import AvroDecoding, group_by_schema
from transforms.decode.avro_framing import Framing, WriterSchema
from transforms.decode.confluent_header import ids_of_valid
from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder
from transforms.decode.schema_differences import Differences, requested_columns, wider_paths
from transforms.decode.written_rows import find_schema_differences


@dataclass(frozen=True, slots=True)
class AvroDecoder(ColumnDecoder):
    """Decodes columns of Avro records.

    Attributes:
        framing: how values refer to their writer's schema.
        record_limit_bytes: how many bytes the columns of one record may take; a larger record is
            rejected.
    """

    framing: Framing = field(kw_only=True)
    record_limit_bytes: int = field(default=64 << 20, kw_only=True)

    def check_type(self, path: str, data_type: pa.DataType) -> None:
        """Check that a table can have this column type; Avro is decoded to every such type."""
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
        return requested_columns(self._differences(values), self.policy, self.unknown_fields)

    def find_wider_paths(self, values: pa.Array | pa.ChunkedArray) -> set[Path]:
        """See ``ColumnDecoder``."""
        return wider_paths(self._differences(values), self.policy)

    def schema_ids(self, values: pa.ChunkedArray) -> pa.Array | None:
        """See ``ColumnDecoder``. Only values in the Confluent wire format have ids."""
        return ids_of_valid(values, self.framing.schema_ids(byte_strings(values.cast(pa.binary()))))

    def _differences(self, values: pa.Array | pa.ChunkedArray) -> list[Differences]:
        found: dict[str, Differences] = {}
        for chunk in _chunks(values):
            valid = chunk.is_valid().to_numpy(zero_copy_only=False).astype(np.bool_)
            for group in group_by_schema(self.framing, byte_strings(chunk), valid):
                if isinstance(group.schema, WriterSchema):
                    fields = group.schema.root.arrow
                    found[group.schema.name] = find_schema_differences(self, fields)
        return list(found.values())


def _chunks(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
    return [chunk.cast(pa.binary()) for chunk in chunks]
