"""Which format the data blocks of a table's logs are written in where nobody says."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lakemark.schema.field_path import column_at


def log_format_for(schema: pa.Schema, ordering_fields: Sequence[str]) -> str:
    """``parquet``, the quicker one to write and to read; or ``avro`` where a text orders the rows.

    An ordering value that is a text and lies in a Parquet block is misread by Apache Hudi 1.2.0 on
    Spark, whoever wrote it: a newer row loses to an older one. Out of Avro blocks it is read
    rightly. ``tests/interop/test_text_ordering.py`` shows both.

    Args:
        schema: the table's columns.
        ordering_fields: columns that order two changes of a record; dotted ones go into structs.
    """
    nothing = schema.empty_table()
    kinds = [column_at(nothing, name).type for name in ordering_fields]
    return "avro" if any(pa.types.is_string(kind) for kind in kinds) else "parquet"
