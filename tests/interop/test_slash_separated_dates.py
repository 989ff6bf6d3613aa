"""lakemark and Apache Hudi write in turn to tables with slash-separated dates.

The dates of 2026-01-02 are in the folder ``2026/01/02``. Apache Hudi stores that a table has such
folders only if SQL creates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.config import keys
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [("id", pa.string()), ("ts", pa.int64()), ("v", pa.int32()), ("day", pa.string())]
)
COLUMNS = "id STRING, ts BIGINT, v INT, day STRING"
SLASHES: Mapping[str, str] = {keys.SLASH_SEPARATED_DATES: "true"}
CONDITIONS = {
    "day = '2026-01-02'": pc.field("day") == "2026-01-02",
    "day > '2026-01-03'": pc.field("day") > "2026-01-03",
    "day IS NULL": pc.field("day").is_null(),
    "day IN ('2026-01-04', '2027-01-01')": pc.field("day").isin(["2026-01-04", "2027-01-01"]),
}


def rows(first: int, last: int, ts: int) -> pa.Table:
    """Return rows of keys ``first`` to ``last``, each of which keeps its date."""
    numbers = range(first, last)
    columns = {
        "id": [f"k{n}" for n in numbers],
        "ts": [ts] * len(numbers),
        "v": [n + 100 * ts for n in numbers],
        "day": [None if n % 5 == 0 else f"2026-01-0{n % 5}" for n in numbers],
    }
    return pa.table(columns, SCHEMA)


def twin(table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"], version: int) -> ApacheTable:
    return ApacheTable(
        "t", ["id"], ["day"], ["ts"], table_type, version, has_metadata=True, extra=SLASHES
    )


CASES: list[tuple[str, Literal["MERGE_ON_READ", "COPY_ON_WRITE"], int]] = [
    ("apache", "COPY_ON_WRITE", 9),
    ("apache", "MERGE_ON_READ", 8),
    ("lakemark", "MERGE_ON_READ", 9),
    ("lakemark", "COPY_ON_WRITE", 6),
]


@pytest.mark.parametrize(("creator", "table_type", "version"), sample(CASES, one_in=2))
def test_both_write_in_turn(
    oracle: Oracle,
    tmp_path: Path,
    creator: str,
    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"],
    version: int,
) -> None:
    path, table = tmp_path / "t", twin(table_type, version)
    if creator == "apache":
        # The columns of SQL tables of Apache Hudi end with the partition columns.
        oracle.create_table(path, COLUMNS, table)
        with oracle.named("t", path), oracle.settings(table.write_options()):
            oracle.execute("INSERT INTO t VALUES " + ", ".join(_sql_values(rows(0, 12, 1))))
    else:
        ours = lakemark.create(
            path,
            schema=SCHEMA,
            record_key="id",
            partition_by="day",
            ordering="ts",
            table_type=table_type,
            version=version,
            buckets=2,
            slash_separated_dates=True,
        )
        ours.upsert(rows(0, 12, 1))
    newest = {f"k{n}": 1 for n in range(12)}
    ours = lakemark.open(path, buckets=2)
    ours.upsert(rows(3, 12, 2))
    ours.delete(where="id = 'k7'")
    newest |= {f"k{n}": 2 for n in range(3, 12)}
    newest.pop("k7")
    _assert_same(oracle, path, newest)
    # Without its option: the writer takes it from the table.
    unset = replace(table, extra={})
    oracle.write(path, rows(7, 16, 3), unset)
    oracle.write(path, rows(8, 9, 3), unset, "delete")
    with oracle.named("t", path), oracle.settings(table.version_options):
        oracle.execute("UPDATE t SET v = 0, ts = 9 WHERE day = '2026-01-01'")
    newest |= {f"k{n}": 3 for n in range(7, 16)}
    newest |= {key: 9 for key in newest if int(key[1:]) % 5 == 1}
    newest.pop("k8")
    _assert_same(oracle, path, newest)
    ours = lakemark.open(path, buckets=2)
    if table_type == "MERGE_ON_READ":
        ours.compact()
    ours.insert_overwrite(rows(2, 3, 10))
    newest = {key: ts for key, ts in newest.items() if int(key[1:]) % 5 != 2} | {"k2": 10}
    _assert_same(oracle, path, newest)


def _sql_values(values: pa.Table) -> list[str]:
    return [
        f"('{row['id']}', {row['ts']}, {row['v']}, "
        + ("NULL)" if row["day"] is None else f"'{row['day']}')")
        for row in values.to_pylist()
    ]


def _assert_same(oracle: Oracle, path: Path, newest: dict[str, int]) -> None:
    """Check all rows, those of filters by date, and the folders."""
    table = lakemark.open(path)
    found = table.snapshot().read_all()
    assert sorted(found["id"].to_pylist()) == sorted(newest), "a key is missing, or is there twice"
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == newest
    assert_same_rows(found, oracle.read(path))
    folders = pc.replace_substring(found["day"], "-", "/").fill_null("__HIVE_DEFAULT_PARTITION__")
    assert found["_hoodie_partition_path"].to_pylist() == folders.to_pylist()
    with oracle.named("t", path):
        scans = [f"SELECT {n} AS n, id FROM t WHERE {each}" for n, each in enumerate(CONDITIONS)]
        answers = oracle.query(" UNION ALL ".join(scans)).to_pylist()
        for number, condition in enumerate(CONDITIONS.values()):
            theirs = [row["id"] for row in answers if row["n"] == number]
            ours = table.scan(where=condition).to_table()["id"].to_pylist()
            assert (
                sorted(ours) == sorted(theirs) == sorted(found.filter(condition)["id"].to_pylist())
            )


def test_table_of_a_dataframe_is_continued_once_it_stores_the_property(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, table = tmp_path / "t", twin("COPY_ON_WRITE", 9)
    oracle.write(path, rows(0, 12, 1), table)
    with pytest.raises(lakemark.Unsupported, match=f"store {keys.SLASH_SEPARATED_DATES}=true"):
        lakemark.open(path, buckets=2).upsert(rows(3, 10, 2))
    stored = path / PROPERTIES_PATH
    values = TableProperties.parse(stored.read_bytes()).values
    stored.write_bytes(TableProperties({**values, keys.SLASH_SEPARATED_DATES: "true"}).to_bytes())
    stored.with_name(f".{stored.name}.crc").unlink()  # Hadoop's checksum of the former file
    lakemark.open(path, buckets=2).upsert(rows(3, 10, 2))
    oracle.write(path, rows(5, 14, 3), table)
    newest = {f"k{n}": 1 if n < 3 else 2 if n < 5 else 3 for n in range(14)}
    _assert_same(oracle, path, newest)
