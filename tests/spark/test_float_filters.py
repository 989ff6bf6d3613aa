"""Spark itself finds all rows by filters on floats, although it skips row groups by statistics.

Spark orders NaN above all other numbers, and Arrow's statistics omit NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import lakemark
from lakemark.spark.read import read_table

pytestmark = pytest.mark.spark

NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("p", pa.string()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("s", pa.struct([("z", pa.float64())])),
    ]
)
#: The values of each file.
FILES: dict[str, list[float | None]] = {
    "some": [1.0, NAN],
    "only": [NAN],
    "null": [NAN, None],
    "zeros": [0.0, -0.0],
    "positive": [0.0, 7.0],
    "numbers": [-3.0, 2.0],
}
CONDITIONS = [
    condition.format(column=column, NaN=nan)
    for column, nan in (("d", "double('NaN')"), ("f", "float('NaN')"), ("s.z", "double('NaN')"))
    for condition in (
        "{column} > 5",
        "{column} >= 7",
        "{column} = {NaN}",
        "{column} >= {NaN}",
        "{column} IN (7, {NaN})",
        "NOT {column} <= 5",
        "{column} != 1",
        "{column} = 0",
        "{column} < 0",
        "{column} >= 0 AND {column} < 1",
        "{column} IS NULL",
    )
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("floats") / "t"
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="p",
        name="t",
        table_type="copy_on_write",
        buckets=1,
    )
    rows = [
        {"id": f"{name}{n}", "p": name, "d": value, "f": value, "s": {"z": value}}
        for name, values in FILES.items()
        for n, value in enumerate(values)
    ]
    table.upsert(pa.Table.from_pylist(rows, SCHEMA))
    return path


@pytest.fixture(params=["parquet", "lakemark"])
def frame(request: pytest.FixtureRequest, spark: SparkSession, root: Path) -> Iterator[DataFrame]:
    if request.param == "lakemark":
        yield read_table(spark, root)
    else:
        yield spark.read.parquet(*(f"file://{path}" for path in sorted(root.glob("*/*.parquet"))))
    spark.conf.unset("spark.sql.parquet.filterPushdown")


def test_filters_on_floats_find_all_rows(spark: SparkSession, frame: DataFrame) -> None:
    found = {condition: _ids(frame, condition) for condition in CONDITIONS}
    spark.conf.set("spark.sql.parquet.filterPushdown", "false")
    assert found == {condition: _ids(frame, condition) for condition in CONDITIONS}
    assert found["d > 5"] == ["null0", "only0", "positive1", "some1"]


def _ids(frame: DataFrame, condition: str) -> list[str]:
    return sorted(row.id for row in frame.where(condition).select("id").collect())
