"""Encodes rows as the values of Kafka messages."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.workloads.row_shape import RECORD_KEY
from lakemark.codec.avro_rows import encode_rows
from lakemark.schema.avro import to_avro, to_json

#: Marks deletes, for lakemark and Apache Hudi.
DELETED = "_hoodie_is_deleted"


def json_messages(rows: pa.RecordBatch, is_deleted: pa.BooleanArray) -> pa.RecordBatch:
    """Encode rows as JSON objects. Their texts contain nothing that JSON must escape."""
    parts: list[pa.Array | str] = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        quote = "" if _is_bare(column.type) else '"'
        lead = "," if parts else "{"
        parts += [f'{lead}"{name}":{quote}', pc.cast(column, pa.string()), quote]
    parts += [f',"{DELETED}":', pc.cast(is_deleted, pa.string()), "}"]
    return _messages(rows, pc.cast(pc.binary_join_element_wise(*parts, ""), pa.binary()))


def avro_messages(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Encode rows as Avro records without a prefix."""
    data, offsets = encode_rows(pa.Table.from_batches([rows]), _avro(rows.schema))
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return _messages(rows, pa.Array.from_buffers(pa.binary(), rows.num_rows, buffers))


def avro_schema(schema: pa.Schema) -> str:
    """Return the schema of the records of ``avro_messages``, as JSON."""
    return to_json(_avro(schema))


def _avro(schema: pa.Schema) -> dict[str, object]:
    return to_avro(schema, "orders")


def _messages(rows: pa.RecordBatch, values: pa.BinaryArray) -> pa.RecordBatch:
    keys = pc.cast(rows[RECORD_KEY], pa.binary())
    return pa.RecordBatch.from_arrays([keys, values], names=["key", "value"])


def _is_bare(kind: pa.DataType) -> bool:
    """Whether JSON writes values of this type without quotes; decimals are texts."""
    checks = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
    return any(check(kind) for check in checks)
