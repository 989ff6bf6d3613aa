"""Converts Arrow schemas to the types that a Hudi table can store.

Source: the types that ``HoodieSparkSchemaConverters`` of Apache Hudi 1.2.0 accepts, and Spark's
conversion of Arrow's types.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from lakemark.errors import InvalidConfig

#: Largest precision of a decimal in Spark, and in Arrow's decimal of 16 bytes.
MAX_DECIMAL_PRECISION = 38

_STORABLE = {
    pa.bool_(): pa.bool_(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.int32(): pa.int32(),
    pa.int64(): pa.int64(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.float32(): pa.float32(),
    pa.float64(): pa.float64(),
    pa.string(): pa.string(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.binary(): pa.binary(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
}
_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
)  # without list views: pyarrow 26.0.1 casts those with nulls to invalid lists
_UNION_MEMBER = re.compile(r"member\d+")


def canonical(schema: pa.Schema) -> pa.Schema:
    """Convert the schema of incoming columns to types that Hudi on Spark can store.

    Timestamps become microseconds, in UTC if they have a zone, else local. Large and
    dictionary-encoded values become plain values. Narrow integers become ``int32``, and unsigned
    integers become the next wider type that can store their values. Nullability and names do not
    change. Do not convert the schema of an existing table, because it may have types that this
    function changes.

    Raises:
        InvalidConfig: a table cannot store the name or the type of a column; the message names the
            column.
    """
    return pa.schema(_fields(schema, ()), metadata=schema.metadata)


def not_storable(arrow: pa.DataType, path: tuple[str, ...]) -> InvalidConfig:
    """Return the error for a column whose type a Hudi table cannot store."""
    return InvalidConfig(
        f"column {'.'.join(path)} has type {arrow}, which a Hudi table cannot store; "
        "cast it, for example to string, or drop it"
    )


def _fields(fields: Iterable[pa.Field], path: tuple[str, ...]) -> list[pa.Field]:
    kept = [_field(field, (*path, field.name)) for field in fields]
    names = [field.name for field in kept]
    for name in names:
        _check_name(name, (*path, name))
        if names.count(name) > 1:
            message = f"column {'.'.join((*path, name))} occurs twice; rename one of them"
            raise InvalidConfig(message)
    return kept


def _field(field: pa.Field, path: tuple[str, ...]) -> pa.Field:
    return field.with_type(_type(field.type, path))


def _check_name(name: str, path: tuple[str, ...]) -> None:
    """Check that a name has only letters, digits and ``_``, and does not begin with a digit.

    Avro for Java requires this.
    """
    plain = name.replace("_", "a")
    if not plain or not plain[0].isalpha() or not plain.isalnum():
        message = (
            f"column {'.'.join(path)}: {name!r} is not a valid name in Avro, which allows letters, "
            "digits and _, but no digit at the beginning; rename it"
        )
        raise InvalidConfig(message)


def _type(arrow: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
    if arrow in _STORABLE:
        return _STORABLE[arrow]
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", None if arrow.tz is None else "UTC")
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return _type(arrow.value_type, path)
    if pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    if isinstance(arrow, pa.BaseExtensionType):
        return _type(arrow.storage_type, path)
    if pa.types.is_decimal(arrow):
        return _decimal(arrow, path)
    if any(is_list(arrow) for is_list in _LISTS):
        return pa.list_(_field(arrow.value_field, path).with_name("element"))
    if pa.types.is_map(arrow) and _type(arrow.key_type, path) == pa.string():
        return pa.map_(pa.string(), _field(arrow.item_field, path))
    if pa.types.is_struct(arrow) and arrow.num_fields > 0 and not _looks_like_a_union(arrow):
        return pa.struct(_fields(arrow.fields, path))
    raise not_storable(arrow, path)


def _looks_like_a_union(arrow: pa.StructType) -> bool:
    """Return whether Hudi on Spark would write the struct as an Avro union.

    Spark reads a union as a struct of nullable fields ``member0``, ``member1``, and so on.
    """
    return all(field.nullable and _UNION_MEMBER.fullmatch(field.name) for field in arrow.fields)


def _decimal(arrow: pa.DataType, path: tuple[str, ...]) -> pa.DataType:
    if arrow.precision > MAX_DECIMAL_PRECISION or not 0 <= arrow.scale <= arrow.precision:
        raise not_storable(arrow, path)
    return pa.decimal128(arrow.precision, arrow.scale)
