"""A condition has the same meaning in Spark as in Arrow, for any session settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakemark.read.where import parse_where
from lakemark.spark.conditions import spark_condition
from lakemark.spark.types import spark_schema

pytestmark = pytest.mark.spark

NAN = float("nan")
_MAY = datetime(2026, 5, 1, tzinfo=UTC)
ROWS = pa.table(
    {
        "n": pa.array([1, 2, 3, 4, None], pa.int32()),
        "big": pa.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1, None], pa.int64()),
        "f": pa.array([0.1, NAN, -0.0, 3.5, None], pa.float32()),
        "d": pa.array([0.1, NAN, -0.0, 3.5, None], pa.float64()),
        "price": pa.array(
            [Decimal("1.10"), Decimal("0.00"), None, None, None], pa.decimal128(9, 2)
        ),
        "text": pa.array(["it's", "a\\nb", "", "Ö", None]),
        "day": pa.array([date(2026, 5, 1), date(1500, 1, 1), None, None, None]),
        "at": pa.array(
            [_MAY, _MAY.replace(microsecond=1), None, datetime(1500, 1, 1, tzinfo=UTC), None],
            pa.timestamp("us", "UTC"),
        ),
        "ok": pa.array([True, False, None, None, None]),
        "odd name.*": pa.array([1, 2, 3, 4, None], pa.int64()),
        "pos": pa.array([{"x.y": 1}, {"x.y": None}, None, {"x.y": 4}, {"x.y": 5}]),
    }
)
CONDITIONS = [
    "big = 9007199254740993",
    "big >= -9223372036854775808 and big < 9223372036854775807",
    "f = 0.1",
    "f in (0.1, 3.5)",
    "d = 0",
    "f in (0, 3.5)",
    "f not in (-0.0, 1)",
    f"d in (-0, {', '.join(map(str, range(1, 20)))})",
    f"not (d in ({', '.join(map(str, range(20)))}) or n = 1)",
    *(f"{name} {comparison} 1" for name in "fd" for comparison in ("<", "<=", ">", ">=", "!=")),
    "not d > 1",
    "not f <= 1",
    "not d <= 5",
    "not d > 0",
    "d >= 0",
    "price = 1.1 or price <= 0",
    "text = 'it''s'",
    "text = 'a\\nb'",
    "text in ('it''s', 'a\\nb', '')",
    "price in (1.1, 0)",
    "day not in ('1500-01-01', '1500-01-02')",
    "at in ('2026-05-01T02:00:00+02:00', '1500-01-01')",
    "not ok in (true)",
    "text > 'O'",
    "day = '1500-01-01'",
    "at = '2026-05-01 00:00:00'",
    "at > '2026-05-01T02:00:00+02:00'",
    "at < '1500-01-02'",
    "ok = true or ok is null",
    "not (ok = true)",
    "n not in (1, 2)",
    "`odd name.*` in (2, 3)",
    "n is not null",
    "pos.`x.y` > 1",
    "pos.`x.y` not in (1, 2)",
    "pos.`x.y` is null",
]


@pytest.fixture(scope="module")
def frame(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataFrame]:
    path: Path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(ROWS, path)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    reader = spark.read.schema(spark_schema(ROWS.schema)).option("datetimeRebaseMode", "CORRECTED")
    yield reader.parquet(str(path))
    spark.conf.set("spark.sql.session.timeZone", str(zone))


@pytest.mark.parametrize("where", CONDITIONS)
def test_spark_condition_selects_the_same_rows_as_arrow(frame: DataFrame, where: str) -> None:
    expected = ROWS.filter(parse_where(where, ROWS.schema))["big"].to_pylist()
    found = frame.where(spark_condition(where, ROWS.schema)).select("big").collect()
    assert {row["big"] for row in found} == set(expected)
    assert len(found) == len(expected)
