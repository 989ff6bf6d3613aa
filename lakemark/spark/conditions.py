"""Converts conditions in the language of ``lakemark.read.where`` to Spark columns.

The text of a condition cannot be passed to Spark, because Spark would interpret it differently.
Spark reads a time in the session's time zone, compares a float column with a double literal, and
treats NaN as the largest number. Before version 4, it also ignores doubled quotes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakemark.read.where import parse_condition
from lakemark.spark.types import spark_schema


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
    return F.col(".".join("`" + name.replace("`", "``") + "`" for name in names))


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
    """Return the value as a Spark literal of its type.

    Dates, times and decimals are cast from text, because this does not depend on session settings.
    """
    value, data_type = literal.as_py(), literal.type
    if pa.types.is_timestamp(data_type) or pa.types.is_decimal(data_type):
        value = _isoformat(value) if isinstance(value, datetime) else str(value)
    elif pa.types.is_date(data_type):
        value = value.isoformat()
    return F.lit(value).cast(_spark_type(data_type))


def _isoformat(time: datetime) -> str:
    return time.isoformat(" ", "microseconds")


def _spark_type(data_type: pa.DataType) -> DataType:
    return spark_schema(pa.schema([("literal", data_type)])).fields[0].dataType
