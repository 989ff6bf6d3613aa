"""Rows that a route has decoded together with its field, so that their tables do not decode again.

They travel with the raw records, in the column ``decoded``: for each record the row of its value as
a struct. The struct is null if the table must decode the value itself, for example because the
value has no row, and the table explains why. The metadata of the field names the decoder, and a
table with another decoder does not use the rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transforms.decode.decode_result import DecodeResult
from transforms.decode.decoder import ColumnDecoder

#: The column of raw records with their decoded rows.
DECODED = "decoded"

_DECODER = b"decoder"


def with_rows(records: pa.Table, decoder: ColumnDecoder, decoded: DecodeResult) -> pa.Table:
    """Return raw records with their decoded rows.

    Args:
        records: the raw records.
        decoder: the decoder, which has an identity.
        decoded: the result for the values of the records.
    """
    assert decoder.identity is not None, decoder
    schema = decoder.rows_schema
    columns = [column.combine_chunks() for column in decoded.rows.columns]
    rows = pa.StructArray.from_arrays(columns, fields=list(schema))
    if len(decoded.accepted) < records.num_rows:
        numbers = np.full(records.num_rows, -1, np.int64)
        numbers[decoded.accepted] = np.arange(len(decoded.accepted))
        rows = rows.take(pa.array(numbers, mask=numbers < 0))
    field = pa.field(DECODED, rows.type, metadata={_DECODER: decoder.identity})
    return records.append_column(field, rows)


def without_some_rows(pieces: Sequence[pa.Table]) -> list[pa.Table]:
    """Return pieces of records with the same columns: decoded rows remain only if all have them."""
    if all(DECODED in piece.column_names for piece in pieces):
        return [*pieces]
    return [piece.select([n for n in piece.column_names if n != DECODED]) for piece in pieces]


def decode_values(decoder: ColumnDecoder, records: pa.Table) -> DecodeResult:
    """Decode the values of raw records, except those that the same decoder has decoded before."""
    if not _has_rows_of(decoder, records):
        return decoder.decode_records(records.column("value"), records.column("key"))
    rows = records.column(DECODED)
    is_known = rows.is_valid().to_numpy()
    known = np.flatnonzero(is_known)
    if len(known) < records.num_rows:
        rows = rows.filter(pa.array(is_known))
    found = DecodeResult(
        rows=pa.Table.from_struct_array(rows),
        accepted=known,
        rejected=np.empty(0, np.int64),
        reasons=[],
    )
    if len(known) == records.num_rows:
        return found
    others = np.flatnonzero(~is_known)
    again = records.take(pa.array(others))
    decoded = decoder.decode_records(again.column("value"), again.column("key"))
    return DecodeResult.merge([found, decoded.at(others)])


def _has_rows_of(decoder: ColumnDecoder, records: pa.Table) -> bool:
    if DECODED not in records.column_names or decoder.identity is None:
        return False
    metadata = records.schema.field(DECODED).metadata or {}
    return bool(metadata.get(_DECODER) == decoder.identity.encode())
