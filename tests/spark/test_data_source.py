"""The data source ``lakemark`` returns Apache Hudi's answers; Spark 3.5 gets a hint."""

from __future__ import annotations

import importlib
import pickle
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from lakemark.read.queries import Incremental, Query, ReadOptimized
from lakemark.spark.read import read_changes, read_slices
from tests.golden.golden_table import GoldenTable, unpack
from tests.spark.answers import apaches, queries_of, sorted_rows

pytestmark = pytest.mark.spark

_HAS_SOURCES = int(pyspark.__version__.split(".")[0]) >= 4
spark_4 = pytest.mark.skipif(not _HAS_SOURCES, reason="Spark 3.5 has no data sources in Python")


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    importlib.import_module("lakemark.spark.data_source").register(spark)
    return spark


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> GoldenTable:
    return unpack("v9_mor_compacted", tmp_path_factory.mktemp("golden"))


@pytest.mark.skipif(_HAS_SOURCES, reason="Spark 4 has data sources in Python")
def test_data_source_on_spark_35_names_the_alternative() -> None:
    with pytest.raises(ImportError, match="read_table"):
        importlib.import_module("lakemark.spark.data_source")


@spark_4
@pytest.mark.parametrize("name", ["v9_mor_compacted", "v9_mor_hive_complex_ts"])
def test_every_query_returns_the_rows_of_apache_hudi(
    registered: SparkSession, name: str, tmp_path: Path
) -> None:
    golden = unpack(name, tmp_path)
    for answer, query in queries_of(golden).items():
        found, expected = (
            _ours(registered, golden, _options(query)),
            apaches(registered, golden, answer),
        )
        assert found.schema == expected.schema, answer
        assert sorted_rows(found) == sorted_rows(expected), answer


@spark_4
def test_options_and_schemas_select_rows_and_columns(
    registered: SparkSession, compacted: GoldenTable
) -> None:
    where = "region = 'r1' and qty > 3"
    expected = compacted.table.scan(columns=["qty", "id"], where=where).to_table().to_pylist()
    assert expected
    by_option = _ours(registered, compacted, {"where": where, "columns": "qty, id"})
    reader = registered.read.format("lakemark").schema("qty INT, id STRING")
    by_schema = reader.option("where", where).load(str(compacted.root))
    for found in (by_option, by_schema):
        assert found.columns == ["qty", "id"]
        assert found.rdd.getNumPartitions() == 2, "two slices of one partition"
        assert sorted(map(tuple, found.collect())) == sorted(tuple(r.values()) for r in expected)
    assert _ours(registered, compacted, {"where": "region = 'nowhere'"}).count() == 0


@pytest.mark.parametrize("name", ["v9_cow_cdc_data_before", "v9_mor_cdc"])
def test_changes_are_those_of_a_query_without_spark(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    golden = unpack(name, tmp_path)
    begin = golden.table.timeline.completed()[0].requested_at
    expected = golden.table.changes(begin).to_table().to_pylist()
    assert expected
    found = read_changes(spark, golden.root, begin)
    assert _sorted_changes(found) == sorted(tuple(row.values()) for row in expected)
    assert read_changes(spark, golden.root, begin, begin).count() == 0


@spark_4
def test_changes_of_a_range_are_read_by_the_data_source(
    registered: SparkSession, tmp_path: Path
) -> None:
    golden = unpack("v9_cow_cdc", tmp_path)
    begin, *_, end = (one.requested_at for one in golden.table.timeline.completed()[:-1])
    expected = golden.table.changes(begin, end).to_table().to_pylist()
    found = _ours(registered, golden, {"query": "cdc", "begin": begin, "end": end})
    assert _sorted_changes(found) == sorted(tuple(row.values()) for row in expected)


@spark_4
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"colums": "id"}, "columns"),
        ({"query": "latest"}, "read_optimized"),
        ({"query": "incremental"}, "begin"),
        ({"query": "incremental", "begin": "earliest", "as_of": "2026-01-01"}, "as_of"),
        ({"begin": "earliest"}, "begin"),
        ({"where": "no_such = 1"}, "no_such"),
        ({"query": "cdc"}, "begin"),
        ({"query": "cdc", "begin": "earliest", "where": "qty > 1"}, "where"),
        ({"query": "cdc", "begin": "earliest"}, "keeps no change data"),
        ({"commits_per_batch": "3"}, "needs spark.readStream"),
    ],
)
def test_invalid_options_are_refused(
    registered: SparkSession, compacted: GoldenTable, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        _ours(registered, compacted, options).collect()


@spark_4
def test_schema_with_another_type_is_refused(
    registered: SparkSession, compacted: GoldenTable
) -> None:
    reader = registered.read.format("lakemark").schema("qty STRING")
    with pytest.raises(AnalysisException, match="qty is int"):
        reader.load(str(compacted.root)).collect()


@spark_4
def test_worker_receives_only_its_slices(compacted: GoldenTable) -> None:
    source = importlib.import_module("lakemark.spark.data_source")
    scan = compacted.table.scan(columns=["id"])
    reader = source.SliceReader(scan)
    partitions = [pickle.loads(pickle.dumps(one)) for one in reader.partitions()]
    assert [one.file_slice for one in partitions] == list(scan.slices)
    sent = pickle.loads(pickle.dumps(reader))
    assert sent.partitions() == []
    for one in partitions:
        assert list(sent.read(one)) == list(read_slices(scan, [one.file_slice]))


def _sorted_changes(frame: DataFrame) -> list[tuple[str, ...]]:
    return sorted(tuple(row) for row in frame.select("op", "ts_ms", "before", "after").collect())


def _ours(spark: SparkSession, golden: GoldenTable, options: dict[str, str]) -> DataFrame:
    return spark.read.format("lakemark").options(**options).load(str(golden.root))


def _options(query: Query) -> dict[str, str]:
    if isinstance(query, Incremental):
        return {"query": "incremental", "begin": str(query.begin)}
    kind = "read_optimized" if isinstance(query, ReadOptimized) else "snapshot"
    return {"query": kind, **({"as_of": str(query.as_of)} if query.as_of else {})}
