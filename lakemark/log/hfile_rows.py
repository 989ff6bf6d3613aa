"""Reads rows from an HFile, whose values are the rows in Avro binary, without the schema.

If the schema has a string field ``key``, as in the metadata table, this field is empty in the
stored rows, because the HFile stores the key.
Source: ``HoodieHFileDataBlock``, ``HoodieAvroHFileReaderImplBase`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.avro_rows import decode_rows
from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.hfile.reader import HFileReader
from lakemark.errors import CorruptData

#: The field of a row whose value is stored as the key in the HFile.
_KEY_FIELD = "key"


def read_hfile_rows(
    file: HFileReader, avro_schema: Mapping[str, object], path: str
) -> Iterator[pa.Table]:
    """Yield the rows in the order of their keys, one table for some blocks of the HFile.

    Args:
        file: the open HFile.
        avro_schema: the schema with which the rows were written.
        path: path of the file, for errors.

    Raises:
        CorruptData: the bytes do not match the format or the schema.
        Unsupported: Arrow columns cannot store the types of the schema.
    """
    for keys, values in file.scan():
        rows = byte_strings(values)
        starts, ends = rows.offsets[:-1], rows.offsets[1:]
        data = rows.data[: rows.offsets[-1]]
        try:
            decoded = decode_rows(data.data, starts, ends, avro_schema, path)
        except CorruptData as error:  # drop the offset, which refers to the uncompressed values
            raise CorruptData(path, None, error.expected, error.actual) from error
        yield _with_keys(decoded, keys, path)


def _with_keys(rows: pa.Table, keys: pa.BinaryArray, path: str) -> pa.Table:
    at = rows.schema.get_field_index(_KEY_FIELD)
    if at < 0 or not pa.types.is_string(rows.schema.field(at).type):
        return rows
    try:
        text = keys.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise CorruptData(path, None, "keys in UTF-8", str(error)) from error
    stored = rows.column(at)
    is_empty = pc.fill_null(pc.equal(stored, ""), fill_value=True)
    return rows.set_column(at, rows.schema.field(at), pc.if_else(is_empty, text, stored))
