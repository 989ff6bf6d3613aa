"""Dictionary-encoded columns: each row has the number of its text in a dictionary.

Arrow copies numbers several times as fast as texts. Parquet stores columns with few distinct texts
in the same way, so that reading or writing a dictionary-encoded column is faster, too.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

#: The type of a dictionary-encoded column of texts.
ENCODED_TEXTS = pa.dictionary(pa.int32(), pa.string())


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
            plain = rows.column(at).cast(field.type.value_type)
            rows = rows.set_column(at, field.with_type(plain.type), plain)
    return rows
