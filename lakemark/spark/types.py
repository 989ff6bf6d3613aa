"""Converts the types of a table's columns to Spark types, as Apache Hudi does.

Timestamps in UTC become ``TimestampType``, and local timestamps ``TimestampNTZType``. Spark has no
type for a time of day, which becomes the stored number. Binary values of fixed size become
``BinaryType``. All columns are nullable.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the columns with their Spark types."""
    return from_arrow_schema(arrow_for_spark(schema), prefer_timestamp_ntz=True)


def arrow_for_spark(schema: pa.Schema) -> pa.Schema:
    """Return the columns with Arrow types that Spark accepts, and to which rows can be cast."""
    return pa.schema([_field(field) for field in schema])


def is_read_alike(data_type: pa.DataType) -> bool:
    """Return whether Spark's Parquet reader always returns the type of ``spark_schema``.

    Times of day and fixed-size binary values have no Spark type. Local timestamps are annotated
    differently by different writers of Parquet, and Spark refuses annotations that it does not
    expect.
    """
    if pa.types.is_nested(data_type):
        return all(is_read_alike(part.type) for part in _parts(data_type))
    is_local = pa.types.is_timestamp(data_type) and data_type.tz is None
    return not (is_local or pa.types.is_time(data_type) or pa.types.is_fixed_size_binary(data_type))


def _parts(data_type: pa.DataType) -> list[pa.Field]:
    return [data_type.field(number) for number in range(data_type.num_fields)]


def _field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, _type(field.type), nullable=True)


def _type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct([_field(part) for part in _parts(data_type)])
    if pa.types.is_list(data_type):
        return pa.list_(_field(data_type.value_field))
    if pa.types.is_map(data_type):
        return pa.map_(_type(data_type.key_type), _field(data_type.item_field))
    if pa.types.is_timestamp(data_type):
        return pa.timestamp("us", data_type.tz)
    if pa.types.is_time(data_type):
        return pa.int32() if pa.types.is_time32(data_type) else pa.int64()
    return pa.binary() if pa.types.is_fixed_size_binary(data_type) else data_type
