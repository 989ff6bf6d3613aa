"""The functions of expression indexes have the values of Spark, in any time zone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakemark.metadata.expressions.expression_text import parse_expression
from lakemark.metadata.expressions.functions import find_function
from lakemark.model.bounds import to_storage_type
from tests.depth import SEED, examples

pytestmark = pytest.mark.spark

#: Expressions whose values do not depend on the session, and how Spark writes them.
EXACT = [
    "t",
    "length(t)",
    "trim(t)",
    "ltrim(t)",
    "rtrim(t)",
    "trim(t, 'ab é')",
    "ltrim(t, 'ab é')",
    "rtrim(t, 'ab é')",
    *(f"substring(t, {p}, {n})" for p in (-9, -3, -1, 0, 1, 2, 9) for n in (-1, 0, 1, 3, 10)),
    "n",
    "s",
    "d",
    "year(d)",
    "month(d)",
    "day(d)",
    "date_add(d, 40)",
    "date_sub(d, -3)",
    "date_sub(d, 800)",
    "to_date(d)",
    "date_format(d, 'dd.MM.yyyy')",
    "date_format(d, 'd/M y')",
    "date_format(d, 'yyyy-MM-dd')",
    "at",
    "to_timestamp(at)",
    "unix_timestamp(at)",
]
#: Expressions of which lakemark knows bounds.
COVERED = [
    "upper(t)",
    "lower(t)",
    "from_unixtime(s)",
    "from_unixtime(s, yyyy-MM-dd)",
    "from_unixtime(n, 'yyyyMMdd HH')",
    "from_unixtime(s, 'yyyy')",
    "date_format(at, 'yyyy-MM-dd''T''HH:mm')",
    "year(at)",
    "month(at)",
    "day(at)",
    "hour(at)",
    "to_date(at)",
    "to_timestamp(d)",
    "unix_timestamp(d)",
]
ZONES = ["UTC", "America/St_Johns", "Pacific/Kiritimati", "+18:00", "-18:00", "America/Sao_Paulo"]

_ALPHABET = "abAB iIjJzZ  \t\n éÉßİıΣς😀漢\u0301ǅ"
_YEAR_S = 365 * 86_400
#: Days that Manila, Kwajalein, Kiritimati and Apia skipped.
_SKIPPED = (-45_656, 8_633, 9_130, 15_338)


def _rows() -> pa.Table:
    drawn = random.Random(f"{SEED} index functions")
    count = examples(400)

    def some(make: Any, *special: Any) -> list[Any]:
        made = [make() for _ in range(count - len(special) - 1)]
        return [*special, *made, None]

    texts = some(
        lambda: "".join(drawn.choices(_ALPHABET, k=drawn.randrange(8))), "", " ", "İ", "é", "ab"
    )
    seconds = some(
        lambda: drawn.randrange(-300 * _YEAR_S, 300 * _YEAR_S), 0, -1, 10**12, -(10**12), 10**17
    )
    days = some(lambda: drawn.randrange(-135_000, 2_900_000), 0, -1, -719_000, *_SKIPPED)
    micros = some(
        lambda: drawn.randrange(-300 * _YEAR_S * 10**6, 300 * _YEAR_S * 10**6), 0, -1, -1_000_001
    )
    return pa.table(
        {
            "t": pa.array(texts, pa.string()),
            "n": pa.array([s and s % 2**31 - 2**30 for s in seconds], pa.int32()),
            "s": pa.array(seconds, pa.int64()),
            "d": pa.array(days, pa.int32()).view(pa.date32()),
            "at": pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    return _rows()


@pytest.fixture(scope="module")
def frame(
    spark: SparkSession, rows: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DataFrame]:
    path: Path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    numbered = rows.append_column("i", pa.array(range(len(rows)), pa.int32()))
    pq.write_table(numbered, path, coerce_timestamps="us")
    changed = {
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        # so that an answer is read as the numbers that were computed
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    }
    before = {key: spark.conf.get(key) for key in changed}
    for key, value in changed.items():
        spark.conf.set(key, value)
    yield spark.read.parquet(str(path))
    for key, old in before.items():
        spark.conf.set(key, str(old))


@pytest.mark.parametrize("zone", ZONES)
def test_values_are_those_of_spark(
    frame: DataFrame, rows: pa.Table, zone: str, tmp_path: Path
) -> None:
    frame.sparkSession.conf.set("spark.sql.session.timeZone", zone)
    listed = [*EXACT, *COVERED]
    computed = [f"{_in_sql(text)} AS c{n}" for n, text in enumerate(listed)]
    frame.selectExpr("i", *computed).coalesce(1).write.parquet(str(tmp_path / "answer"))
    answer = pq.read_table(tmp_path / "answer").sort_by("i")
    for n, text in enumerate(listed):
        function, column, options = parse_expression(text)
        values = rows.column(column).combine_chunks()
        index = find_function(function, options, values.type)
        found = index.compute(values)
        expected = answer.column(f"c{n}").combine_chunks().cast(index.result_type)
        assert found.lows.type == index.result_type
        assert found.lows.is_null().equals(expected.is_null()), text
        assert found.highs.is_null().equals(expected.is_null()), text
        low, value, high = map(to_storage_type, (found.lows, expected, found.highs))
        is_covered = pc.and_(pc.less_equal(low, value), pc.less_equal(value, high))
        wrong = rows.column(column).filter(pc.invert(is_covered)).slice(0, 3)
        assert pc.all(is_covered).as_py(), (text, zone, wrong.to_pylist())
        if text in EXACT:
            _check_exact(text, column, values, low, value)
        if index.is_ordered:
            _check_ordered(text, values, value)


def _check_exact(text: str, column: str, values: pa.Array, low: pa.Array, value: pa.Array) -> None:
    """Check the values whose text or calendar does not depend on settings of Spark."""
    usual = pa.array([True] * len(values))
    if column == "d":
        days = values.view(pa.int32())
        usual = pc.and_(pc.greater_equal(days, -135_000), pc.less(days, 2_930_000))
        for day in _SKIPPED:
            usual = pc.and_(usual, pc.greater(pc.abs(pc.subtract(days, day)), 62))
    assert low.filter(usual).equals(value.filter(usual)), text


def _check_ordered(text: str, values: pa.Array, value: pa.Array) -> None:
    """Check that the smallest and the largest value of the column suffice for the bounds."""
    function, _, options = parse_expression(text)
    index = find_function(function, options, values.type)
    extremes = pc.min_max(values)
    bounds = index.compute(pa.array([extremes["min"], extremes["max"]], values.type))
    low, high = to_storage_type(bounds.lows)[0], to_storage_type(bounds.highs)[1]
    is_covered = pc.and_(pc.less_equal(low, value), pc.less_equal(value, high))
    assert pc.all(is_covered).as_py(), text


def _in_sql(text: str) -> str:
    """Write an expression in SQL, in which a trim of other characters has its own form."""
    function, column, options = parse_expression(text)
    arguments = [_literal(value) for name, value in options.items() if name != "expr"]
    if function == "identity":
        return column
    if function in ("trim", "ltrim", "rtrim") and arguments:
        side = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}[function]
        return f"TRIM({side} {arguments[0]} FROM {column})"
    return f"{function}({', '.join([column, *arguments])})"


def _literal(argument: str) -> str:
    return argument if argument.lstrip("-").isdigit() else f'"{argument}"'
