"""Converts conditions in the language of ``lakemark.read.where`` to Spark columns.

The text of a condition cannot be passed to Spark, because Spark would interpret it differently.
Spark reads a time in the session's time zone, compares a float column with a double literal, and
treats NaN as the largest number. Before version 4, it also ignores doubled quotes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakemark.read.where import parse_condition
from lakemark.spark.types import spark_schema

#: What ends a literal of each integer type.
_SUFFIXES = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L"}
#: A text that is the same in any literal.
_PLAIN_TEXT = re.compile(r"[\w .,:;@/+-]*")


def spark_condition(where: str, schema: pa.Schema) -> Column:
    """Convert a condition to a Spark filter.

    Args:
        where: a condition in the language of ``lakemark.read.where``.
        schema: the columns that the condition may name, with their types.

    Raises:
        InvalidWhere: as for ``parse_where``.
    """
    return parse_condition(where, schema, _SparkConditions())


def column_named(*names: str) -> Column:
    """Return a column, or a struct field in it. The names may have any characters."""
    return F.col(_name_text(names))


def _name_text(names: Sequence[str]) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


class _SparkConditions:
    def compare(self, column: Sequence[str], comparison: str, literal: pa.Scalar) -> Column:
        left, right = _value(column, literal.type), _literal(literal)
        match comparison:
            case "=":
                return left == right
            case "<":
                return left < right
            case "<=":
                return left <= right
            case ">":
                return _exclude_nan(left > right, left, literal.type)
            case ">=":
                return _exclude_nan(left >= right, left, literal.type)
            case _:
                return left != right

    def is_in(self, column: Sequence[str], literals: pa.Array) -> Column:
        named = _name_text(column)
        if pa.types.is_floating(literals.type):
            named = f"{named} + {_literal_text('0.0', literals.type)}"
        listed = ", ".join(_literal_text(_text(one), literals.type) for one in literals)
        return F.expr(f"{named} IN ({listed})")

    def is_null(self, column: Sequence[str]) -> Column:
        return column_named(*column).isNull()

    def both(self, one: Column, other: Column) -> Column:
        return one & other

    def either(self, one: Column, other: Column) -> Column:
        return one | other

    def negate(self, condition: Column) -> Column:
        return ~condition


def _value(column: Sequence[str], data_type: pa.DataType) -> Column:
    """Return the value of a column. For a float column, 0 is added to the value.

    The addition makes -0 equal to 0, and Spark does not push such a condition down to Parquet. If
    it did, it could skip row groups with matching rows, because Parquet's statistics and
    dictionaries distinguish -0 from 0, and statistics ignore NaN.
    """
    named = column_named(*column)
    if pa.types.is_floating(data_type):
        return named + F.lit(0.0).cast(_spark_type(data_type))
    return named


def _exclude_nan(condition: Column, value: Column, data_type: pa.DataType) -> Column:
    """Exclude rows with NaN, because NaN is larger than all numbers in Spark."""
    return condition & ~F.isnan(value) if pa.types.is_floating(data_type) else condition


def _literal(literal: pa.Scalar) -> Column:
    """Return the value as a Spark literal of its type, which no setting of the session changes."""
    return F.expr(_literal_text(_text(literal), literal.type))


def _literal_text(text: str, data_type: pa.DataType) -> str:
    """Return an SQL expression of this value, which is given as text.

    One call of the JVM reads all of the SQL. The functions that build literals took 2 ms for each
    of them: 20 s for a list of 10,000 values. A setting of the session decides how Spark reads
    escapes, so a text that may contain one is given by its bytes; this takes three times as long.
    """
    kind = _spark_type(data_type).simpleString()
    if kind in _SUFFIXES and text.isdecimal():
        return text + _SUFFIXES[kind]
    has_escape = _PLAIN_TEXT.fullmatch(text) is None
    value = f"CAST(X'{text.encode().hex()}' AS STRING)" if has_escape else f"'{text}'"
    return value if kind == "string" else f"CAST({value} AS {kind})"


def _text(literal: pa.Scalar) -> str:
    """Return the text that Spark casts to the value.

    For a float, 0 is added as in ``_value``, because a long list distinguishes -0 from 0 in Spark.
    """
    value = literal.as_py()
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    return str(value + 0.0 if isinstance(value, float) else value)


def _spark_type(data_type: pa.DataType) -> DataType:
    return spark_schema(pa.schema([("literal", data_type)])).fields[0].dataType
