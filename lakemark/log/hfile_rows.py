"""Rows that lie in an HFile: a key, and the row in Avro binary, without its schema.

Where the schema has a string field ``key``, as in the metadata table, it is stored empty, since the
HFile has the key already. Source: ``HoodieHFileDataBlock``, ``HoodieAvroHFileReaderImplBase`` of
Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_rows import decode_rows
from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.hfile.reader import HFileReader
from lakemark.errors import CorruptData

#: Field of which the value is the HFile's key.
_KEY_FIELD = "key"


def read_hfile_rows(
    file: HFileReader, avro_schema: Mapping[str, object], path: str
) -> Iterator[pa.Table]:
    """The rows in the order of their keys, one table for each block of the HFile.

    Args:
        file: the open HFile.
        avro_schema: what the rows were written with.
        path: names the file in errors.

    Raises:
        CorruptData: bytes that disagree with the format, or with the schema.
        Unsupported: a schema that Arrow's columns cannot hold.
    """
    for keys, values in file.scan():
        rows = byte_strings(values)
        starts, ends = rows.offsets[:-1], rows.offsets[1:]
        data = rows.data[: rows.offsets[-1]]
        try:
            decoded = decode_rows(data.data, starts, ends, avro_schema, path)
        except CorruptData as error:  # its offset is one among uncompressed values
            raise CorruptData(path, None, error.expected, error.actual) from error
        yield _with_keys(decoded, keys, path)


def _with_keys(rows: pa.Table, keys: pa.BinaryArray, path: str) -> pa.Table:
    place = rows.schema.get_field_index(_KEY_FIELD)
    if place < 0 or not pa.types.is_string(rows.schema.field(place).type):
        return rows
    try:
        text = keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptData(path, None, "keys in UTF-8", str(error)) from error
    stored = rows.column(place)
    is_empty = pc.fill_null(pc.equal(stored, ""), fill_value=True)
    return rows.set_column(place, rows.schema.field(place), pc.if_else(is_empty, text, stored))
