"""Apache Hudi reads and continues tables that lakemark partitions by expressions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.config import keys
from tests.interop import hudi_rs
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("born", pa.date32()),
        ("n", pa.int64()),
        ("ts", pa.int64()),
    ]
)
BY = ["day(at)", "bucket(id, 3) as b", "truncate(n, 10)"]
EXPRESSIONS = '{"at_day": "day(at)", "b": "bucket(id, 3)", "n_truncate": "truncate(n, 10)"}'

#: How a program in Spark SQL computes the columns; docs/partition_expressions.md shows it.
COMPUTED = {
    "at_day": "date_format(at, 'yyyy-MM-dd')",
    "b": "cast(crc32(encode(id, 'UTF-8')) % 3 as int)",
    "n_truncate": "n - pmod(n, 10)",
}
#: A double cannot represent most numbers beside it.
LARGE = 1 << 60
FIRST = datetime(2026, 2, 27, 22, tzinfo=UTC)


def _rows(random: Random, ts: int) -> pa.Table:
    """Return rows of thirty keys; each key keeps its partition."""
    numbers = random.sample(range(30), 20)
    columns = {
        "id": [f"k{n}" for n in numbers],
        "at": [None if n == 3 else FIRST + timedelta(hours=n) for n in numbers],
        "born": [date(1969, 12, 20) + timedelta(days=n) for n in numbers],
        "n": [n - 15 + (LARGE if n % 4 == 0 else 0) for n in numbers],
        "ts": [ts] * len(numbers),
    }
    return pa.table(columns, schema=SCHEMA)


def _twin(table_type: str, version: int, fields: list[str], hive_style: bool) -> ApacheTable:
    style = {
        "hoodie.datasource.write.hive_style_partitioning": str(hive_style).lower(),
        # Before version 9, Apache Hudi asks for it if there are several partition columns.
        "hoodie.write.complex.keygen.validation.enable": "false",
    }
    # lakemark keeps a metadata table, so Apache Hudi must continue it.
    twin = ApacheTable("t", ["id"], fields, ["ts"], version=version, has_metadata=True, extra=style)
    is_logged = table_type == "merge_on_read"
    return replace(twin, table_type="MERGE_ON_READ" if is_logged else "COPY_ON_WRITE")


def _computed_by_spark(oracle: Oracle, path: Path, rows: pa.Table) -> pa.Table:
    """Return the rows with the columns that Spark SQL computes."""
    pq.write_table(rows, path, coerce_timestamps="us")
    added = ", ".join(f"{sql} AS {name}" for name, sql in COMPUTED.items())
    found = oracle.query(f"SELECT *, {added} FROM parquet.`{path}`")
    columns = [found[field.name].cast(field.type) for field in SCHEMA]
    kinds = {"at_day": pa.string(), "b": pa.int32(), "n_truncate": pa.int64()}
    return pa.table(
        [*columns, *(found[name].cast(kind) for name, kind in kinds.items())],
        names=[*SCHEMA.names, *kinds],
    )


@pytest.mark.parametrize(
    ("table_type", "version", "hive_style"),
    [
        ("merge_on_read", 9, False),
        ("copy_on_write", 9, True),
        ("merge_on_read", 8, True),
        ("copy_on_write", 6, False),
        ("merge_on_read", 6, False),
    ],
)
def test_apache_hudi_reads_prunes_and_continues_the_table(
    oracle: Oracle, tmp_path: Path, table_type: str, version: int, hive_style: bool
) -> None:
    path, random = tmp_path / "t", Random(1)
    ours = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by=BY,
        ordering="ts",
        buckets=2,
        table_type=table_type,
        version=version,
        hive_style=hive_style,
        lock_provider="file_system",
    )
    twin = _twin(table_type, version, ["at_day", "b", "n_truncate"], hive_style)
    newest: dict[str, int] = {}
    for ts in (1, 3):
        rows = _rows(random, ts)
        ours.upsert(rows)
        newest |= dict.fromkeys(rows["id"].to_pylist(), ts)
        theirs = _computed_by_spark(oracle, tmp_path / f"{ts}.parquet", _rows(random, ts + 1))
        oracle.write(path, theirs, twin)
        newest |= dict.fromkeys(theirs["id"].to_pylist(), ts + 1)
        _assert_both_read(oracle, path, newest)
        ours = lakemark.open(path, lock_provider="file_system")
    assert oracle.table_config(path)[keys.PARTITION_EXPRESSIONS] == EXPRESSIONS
    assert [str(field) for field in ours.properties.partition_by] == BY
    if table_type == "copy_on_write" and version == 9:
        assert_same_rows(ours.snapshot().read_all(), hudi_rs.read_snapshot(path))


def _assert_both_read(oracle: Oracle, path: Path, newest: dict[str, int]) -> None:
    """Check all rows, and the rows of filters on the columns and on the partition columns."""
    table = lakemark.open(path)
    rows = table.snapshot().read_all()
    found = dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "an update became a second row"
    assert found == newest
    assert_same_rows(rows, oracle.read(path))
    half = FIRST + timedelta(hours=14, minutes=30)
    with oracle.named("t", path):
        for text, condition in (
            (f"at >= TIMESTAMP '{half.isoformat()}'", pc.field("at") >= half),
            (f"at < TIMESTAMP '{half.isoformat()}'", pc.field("at") < half),
            ("at IS NULL", pc.field("at").is_null()),
            ("at_day = '2026-02-28'", pc.field("at_day") == "2026-02-28"),
            ("at_day > '2026-02-28'", pc.field("at_day") > "2026-02-28"),
            ("b = 1", pc.field("b") == 1),
            ("n_truncate = -10 AND n < -5", (pc.field("n_truncate") == -10) & (pc.field("n") < -5)),
            (f"n > {LARGE}", pc.field("n") > LARGE),
            ("n BETWEEN -3 AND 2", (pc.field("n") >= -3) & (pc.field("n") <= 2)),
        ):
            theirs = oracle.query(f"SELECT id FROM t WHERE {text}")["id"].to_pylist()
            ours = table.scan(where=condition).to_table()["id"].to_pylist()
            wanted = rows.filter(condition)["id"].to_pylist()
            assert sorted(ours) == sorted(theirs) == sorted(wanted), text


def test_rows_of_apache_hudi_with_another_value_are_never_missed(
    oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    table = lakemark.create(
        path, schema=SCHEMA, record_key="id", partition_by="day(at)", ordering="ts", buckets=1
    )
    table.upsert(_rows(Random(1), 1))
    wrong = _rows(Random(2), 2).slice(0, 1).append_column("at_day", pa.array(["1999-01-01"]))
    twin = _twin("merge_on_read", 9, ["at_day"], hive_style=False)
    oracle.write(path, wrong, replace(twin, bucket_count=1))
    expected = wrong["id"].to_pylist()[0]
    at = wrong["at"].to_pylist()[0]
    found = lakemark.open(path).scan(where=pc.field("at") == at).to_table()
    assert (expected, "1999-01-01") in zip(
        found["id"].to_pylist(), found["at_day"].to_pylist(), strict=True
    )
    with pytest.raises(lakemark.InvalidConfig, match=r"at_day = day\(at\) '1999-01-01'"):
        lakemark.open(path).upsert(_rows(Random(3), 3))


def test_expressions_survive_an_upgrade_by_apache_hudi(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by=BY,
        ordering="ts",
        buckets=2,
        version=6,
    )
    table.upsert(_rows(Random(1), 1))
    theirs = _computed_by_spark(oracle, tmp_path / "rows.parquet", _rows(Random(2), 2))
    twin = _twin("merge_on_read", 9, ["at_day", "b", "n_truncate"], hive_style=False)
    oracle.write(path, theirs, twin, options={"hoodie.write.auto.upgrade": "true"})
    upgraded = lakemark.open(path)
    assert upgraded.version == 9
    assert [str(field) for field in upgraded.properties.partition_by] == BY
    upgraded.upsert(_rows(Random(3), 3))
    rows = upgraded.snapshot().read_all()
    assert len(set(rows["id"].to_pylist())) == rows.num_rows
    assert_same_rows(rows, oracle.read(path))
