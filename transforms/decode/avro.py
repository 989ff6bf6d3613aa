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
from typing import ClassVar

import pyarrow as pa

from transforms.decode.avro_decoding import AvroDecoding
from transforms.decode.avro_framing import AvroFraming, SchemaGroup
from transforms.decode.decode_result import DecodeResult
from transforms.decode.framed_decoder import FramedDecoder, binary_chunks


@dataclass(frozen=True, slots=True)
class AvroDecoder(FramedDecoder[SchemaGroup]):
    """Decodes columns of Avro records."""

    not_decoded: ClassVar[str] = "Avro is not decoded"

    framing: AvroFraming = field(kw_only=True)

    def decode(self, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        """See ``ColumnDecoder``.

        Raises:
            RegistryError: the registry does not provide a writer's schema, see ``Framing``.
        """
        decoding = AvroDecoding(self, self.framing.header_bytes)
        start = 0
        for chunk in binary_chunks(values):
            decoding.add(chunk, start)
            start += len(chunk)
        return decoding.finish()
