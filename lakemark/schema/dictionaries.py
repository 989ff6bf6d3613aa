"""Dictionary-encoded columns: each row has the number of its text in a dictionary.

Arrow copies numbers several times as fast as texts. Parquet stores columns with few distinct texts
in the same way, so that reading or writing a dictionary-encoded column is faster, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pyarrow as pa
import pyarrow.compute as pc

#: The type of a dictionary-encoded column of texts.
ENCODED_TEXTS = pa.dictionary(pa.int32(), pa.string())

#: The most bytes of the texts of an Arrow array that is decoded. Arrow's limit is twice as much.
_MAX_ARRAY_BYTES = 1 << 30


def is_encoded(kind: pa.DataType) -> bool:
    """Return whether a column of this type is dictionary-encoded."""
    return bool(pa.types.is_dictionary(kind))


def encoded_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the dictionary-encoded columns."""
    return [field.name for field in schema if is_encoded(field.type)]


def with_encoded(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """Return the schema whose columns of texts with these names are dictionary-encoded."""
    return pa.schema(
        [field.with_type(ENCODED_TEXTS) if field.name in names else field for field in schema],
        schema.metadata,
    )


def decode(rows: pa.Table) -> pa.Table:
    """Return the rows with plain values in all columns."""
    for at, field in enumerate(rows.schema):
        if is_encoded(field.type):
            plain = decode_texts(rows.column(at))
            rows = rows.set_column(at, field.with_type(plain.type), plain)
    return rows


def decode_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the plain texts of a dictionary-encoded column, in chunks that Arrow can hold.

    Few long texts in many rows may exceed the 2 GiB of an Arrow array.
    """
    kind = column.type.value_type
    parts = [part.cast(kind) for chunk in column.chunks for part in _divide(chunk)]
    return pa.chunked_array(parts, kind)


def _divide(encoded: pa.DictionaryArray) -> Iterator[pa.DictionaryArray]:
    longest: int | None = pc.max(pc.binary_length(encoded.dictionary)).as_py()
    step = max(1, _MAX_ARRAY_BYTES // max(1, longest or 0))
    for start in range(0, len(encoded), step):
        yield encoded.slice(start, step)
