"""The default format of data blocks in a table's logs."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakemark.schema.field_path import column_at


def log_format_for(schema: pa.Schema, ordering_fields: Sequence[str]) -> str:
    """Return ``parquet``, which is faster, or ``avro`` if a text column orders the rows.

    Apache Hudi 1.2.0 on Spark misreads a text as ordering value in a Parquet block, whoever wrote
    the block: a newer row loses to an older one. In Avro blocks it reads the value correctly.
    ``tests/interop/test_text_ordering.py`` shows both.

    Args:
        schema: the table's columns.
        ordering_fields: columns that order two changes of a record; a dotted name is a field of a
            struct.
    """
    nothing = schema.empty_table()
    kinds = [column_at(nothing, name).type for name in ordering_fields]
    return "avro" if any(pa.types.is_string(kind) for kind in kinds) else "parquet"
