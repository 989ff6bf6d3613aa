"""Types of columns in the language of Hive, and as Spark stores a schema in a catalog.

Arrow            Hive              Spark
bool             boolean           boolean
int32, int64     int, bigint       integer, long
float, double    float, double     float, double
string           string            string
binary, fixed    binary            binary
decimal(p, s)    decimal(p,s)      decimal(p,s)
date             date              date
time             int or bigint     integer or long
timestamp        timestamp         timestamp; timestamp_ntz without a time zone
nanoseconds      bigint            long

Sources: ``HiveSchemaUtil`` with ``hoodie.datasource.hive_sync.support_timestamp=true``, the default
of Apache Hudi's writers on Spark; ``Parquet2SparkSchemaUtils`` and ``AvroToSparkJson`` of Apache
Hudi. For a timestamp without a time zone, they write ``timestamp`` or ``long``; a table of Spark
has ``timestamp_ntz``, which is also how Spark reads the files.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import types

from lakemark.catalogs.catalog import CatalogRefused


def hive_type(kind: pa.DataType) -> str:
    """Return a type in the language of Hive, in lower case and without blanks.

    Raises:
        CatalogRefused: Hive has no such type.
    """
    if types.is_struct(kind):
        fields = (f"{_struct_name(field.name)}:{hive_type(field.type)}" for field in kind)
        return f"struct<{','.join(fields)}>"
    if types.is_map(kind):
        return f"map<{hive_type(kind.key_type)},{hive_type(kind.item_type)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{hive_type(kind.value_type)}>"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _plain(kind)[0]


def spark_type(kind: pa.DataType) -> str | dict[str, Any]:
    """Return a type as Spark's ``DataType.json`` represents it.

    Raises:
        CatalogRefused: Spark has no such type.
    """
    if types.is_struct(kind):
        return {"type": "struct", "fields": [spark_field(field) for field in kind]}
    if types.is_map(kind):
        return {
            "type": "map",
            "keyType": spark_type(kind.key_type),
            "valueType": spark_type(kind.item_type),
            "valueContainsNull": kind.item_field.nullable,
        }
    if types.is_list(kind) or types.is_large_list(kind):
        return {
            "type": "array",
            "elementType": spark_type(kind.value_type),
            "containsNull": kind.value_field.nullable,
        }
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _plain(kind)[1]


def spark_field(field: pa.Field) -> dict[str, Any]:
    """Return a column, or a field of a struct, as Spark's ``StructField.json`` represents it."""
    return {
        "name": field.name,
        "type": spark_type(field.type),
        "nullable": field.nullable,
        "metadata": {},
    }


def _struct_name(name: str) -> str:
    """Return the name of a field of a struct, in which Hive allows no ``-``."""
    return name.lower().replace("-", "_")


def _plain(kind: pa.DataType) -> tuple[str, str]:
    """Return the names of a type without inner types, in Hive and in Spark."""
    for is_kind, hive, spark in _PLAIN:
        if is_kind(kind):
            return hive, spark
    if types.is_timestamp(kind):
        if kind.unit == "ns":
            return "bigint", "long"
        return "timestamp", "timestamp" if kind.tz else "timestamp_ntz"
    message = f"catalogs have no type for {kind}; drop the column, or cast it to another type"
    raise CatalogRefused(message)


#: A predicate of Arrow types, the name in Hive, and the name in Spark.
_PLAIN = (
    (types.is_boolean, "boolean", "boolean"),
    (types.is_int8, "int", "integer"),
    (types.is_int16, "int", "integer"),
    (types.is_int32, "int", "integer"),
    (types.is_int64, "bigint", "long"),
    (types.is_float32, "float", "float"),
    (types.is_float64, "double", "double"),
    (types.is_string, "string", "string"),
    (types.is_large_string, "string", "string"),
    (types.is_binary, "binary", "binary"),
    (types.is_large_binary, "binary", "binary"),
    (types.is_fixed_size_binary, "binary", "binary"),
    (types.is_date, "date", "date"),
    (types.is_time32, "int", "integer"),
    (types.is_time64, "bigint", "long"),
)
