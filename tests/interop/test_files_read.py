"""Apache Hudi opens only those files of lakemark's tables that an index leaves.

All other files are overwritten with zeros. So a query or a write that opens one of them fails, and
without the index, it does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

import lakemark
from tests.depth import sample
from tests.interop.oracle import ApacheTable, Oracle, OracleError
from tests.interop.test_lookup_index import RECORD_INDEX
from tests.interop.test_partitioned_record_index import RECORD_LEVEL_INDEX
from tests.interop.test_secondary_index import SKIPPING

pytestmark = pytest.mark.oracle

TableTypeName = Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("note", pa.string()),
        ("v", pa.int64()),
    ]
)
REGIONS = ("north", "south")
#: File groups of each partition.
GROUPS = 3
PLACES = GROUPS * len(REGIONS)
ROWS = 60
DAY_S = 86_400
NOON_S = DAY_S // 2

#: The row that is searched. Its file group has keys below and above those of all other groups.
NUMBER = 20
KEY = f"k{NUMBER}"
NOT_SKIPPING = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "false"}
#: Apache Hudi reports an index that it cannot read, instead of reading all files.
STRICT = {"hoodie.fileIndex.dataSkippingFailureMode": "strict"}
DAYS = "from_unixtime(ts, 'yyyy-MM-dd')"


def row(number: int) -> dict[str, object]:
    """Return a row. Its key says nothing about its file group, and its other values do."""
    place = number % PLACES
    return {
        "id": f"k{number:02d}",
        "region": REGIONS[place % len(REGIONS)],
        # Three days apart, because the statistics of a time cover its day in all time zones.
        "ts": place * 3 * DAY_S + NOON_S,
        "note": f"n{place}",
        "v": 100 * place + number,
    }


def rows(numbers: Iterable[int]) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in numbers], SCHEMA)


def make(path: Path, table_type: TableTypeName) -> lakemark.Table:
    """Create a table with several file groups in each partition, each with a log if it has logs."""
    table = lakemark.create(
        path,
        schema=SCHEMA,
        name="orders",
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type.lower(),
        index="lookup",
        statistics_columns=["id", "v"],
    )
    for place in range(PLACES):
        table.bulk_insert(rows(range(place, ROWS, PLACES)))
    table.upsert(rows(range(0, ROWS, PLACES - 1)))
    return table


def keys_of(place: int) -> list[str]:
    """Return the keys of a file group."""
    return [f"k{number:02d}" for number in range(place, ROWS, PLACES)]


def keep_only(path: Path, key: str) -> None:
    """Overwrite the files of all file groups but that of one key."""
    found = lakemark.open(path).snapshot(["id", "_hoodie_file_name"]).read_all().to_pylist()
    (kept,) = (one["_hoodie_file_name"].partition("_")[0] for one in found if one["id"] == key)
    files = [file for file in files_of(path, *REGIONS) if kept not in file.name]
    assert len(files) >= PLACES - 1
    overwrite(files)


def files_of(path: Path, *regions: str) -> list[Path]:
    named = (file for region in regions for file in (path / region).iterdir())
    return [file for file in named if file.suffix == ".parquet" or ".log." in file.name]


def overwrite(files: Iterable[Path]) -> None:
    for file in files:
        file.write_bytes(b"\0" * file.stat().st_size)


def query(
    oracle: Oracle, path: Path, condition: str, settings: Mapping[str, str] = SKIPPING
) -> list[str]:
    """Return the keys of the rows that Apache Hudi finds."""
    with oracle.named("skipped", path), oracle.settings(settings):
        found = oracle.query(f"SELECT id FROM skipped WHERE {condition}")
    return sorted(found["id"].to_pylist())


def fails(
    oracle: Oracle, path: Path, condition: str, settings: Mapping[str, str] = SKIPPING
) -> None:
    with pytest.raises(OracleError, match="Job aborted"):
        query(oracle, path, condition, settings)


@pytest.mark.parametrize("table_type", sample(["MERGE_ON_READ", "COPY_ON_WRITE"], one_in=2))
def test_a_query_opens_only_the_files_that_an_index_leaves(
    oracle: Oracle, tmp_path: Path, table_type: TableTypeName
) -> None:
    path, place = tmp_path / "orders", NUMBER % PLACES
    table = make(path, table_type)
    table.create_index("record_index")
    table.create_index("note", column="note")
    table.create_index("days", expression=DAYS)
    of_group = keys_of(place)
    queries = {
        f"id = '{KEY}'": [KEY],  # record index
        f"id IN ('{KEY}', 'k99')": [KEY],
        f"v = {row(NUMBER)['v']}": [KEY],  # column_stats
        f"note = 'n{place}'": of_group,  # secondary index
        f"{DAYS} = '1970-01-0{3 * place + 1}'": of_group,  # expression index of statistics
    }
    if table_type == "COPY_ON_WRITE":  # Apache Hudi 1.2.0 fails at logs in the other table
        table.create_index("ids", expression="upper(id)", kind="bloom_filters")
        queries[f"upper(id) = '{KEY.upper()}'"] = [KEY]
    half = tmp_path / "half"
    shutil.copytree(path, half)
    keep_only(path, KEY)
    assert {one: query(oracle, path, one) for one in queries} == queries
    # Column statistics leave more files than the record index: they hold keys on both sides.
    fails(oracle, path, f"id BETWEEN '{KEY}' AND '{KEY}'")
    fails(oracle, path, f"id = '{KEY}'", NOT_SKIPPING)
    overwrite(files_of(half, "south"))
    by_partition = {
        **SKIPPING,
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "true",
    }
    # Only north has such small values, in a file of its own.
    assert query(oracle, half, "v < 60", by_partition) == keys_of(0)
    fails(oracle, half, "v < 60", NOT_SKIPPING)


def test_a_partitioned_record_index_does_not_serve_queries_of_apache_hudi(
    oracle: Oracle, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    table = make(path, "COPY_ON_WRITE")
    table.create_index("record_index", partitioned=True)
    condition = f"id = '{KEY}' AND region = '{row(NUMBER)['region']}'"
    assert query(oracle, path, condition) == [KEY]
    with pytest.raises(OracleError, match="pruning with partitioned rli has not yet been impl"):
        query(oracle, path, condition, SKIPPING | STRICT)
    keep_only(path, KEY)
    fails(oracle, path, condition)
    found = lakemark.open(path).scan(columns=["id"], where=condition).to_table()
    assert found["id"].to_pylist() == [KEY], "lakemark searches the index of the partition"


#: By the index of Apache Hudi's writer: the settings with which it reads the indexes of lakemark.
WRITERS: Mapping[str, Mapping[str, str]] = {
    "bloom_filters": {
        "hoodie.index.type": "BLOOM",
        "hoodie.bloom.index.use.metadata": "true",
        "hoodie.metadata.index.bloom.filter.enable": "true",
    },
    "record_index": {"hoodie.index.type": "RECORD_INDEX", **RECORD_INDEX},
    "partitioned record_index": RECORD_LEVEL_INDEX,
}
#: The same writers, if they do not read an index in the metadata table.
BY_FILES: Mapping[str, Mapping[str, str]] = {
    "bloom_filters": {"hoodie.index.type": "BLOOM", "hoodie.bloom.index.use.metadata": "false"},
    "record_index": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "partitioned record_index": {"hoodie.index.type": "SIMPLE"},
}


@pytest.mark.parametrize("index", WRITERS)
def test_an_upsert_opens_only_the_file_that_the_index_names(
    oracle: Oracle, tmp_path: Path, index: str
) -> None:
    path, twin = tmp_path / "orders", tmp_path / "twin"
    table = make(path, "COPY_ON_WRITE")
    kind = index.rpartition(" ")[2]
    table.create_index(kind, partitioned=index != kind)
    keep_only(path, KEY)
    shutil.copytree(path, twin)
    newer = rows([NUMBER]).set_column(2, "ts", pa.array([99 * DAY_S]))
    with pytest.raises(OracleError, match="not a Parquet file"):
        oracle.write(twin, newer, apache_table(BY_FILES[index]))
    oracle.write(path, newer, apache_table(WRITERS[index]))
    scan = lakemark.open(path).scan(columns=["id", "ts"], record_keys=[KEY])
    assert scan.to_table().to_pylist() == [{"id": KEY, "ts": 99 * DAY_S}]


def apache_table(extra: Mapping[str, str]) -> ApacheTable:
    return ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        table_type="COPY_ON_WRITE",
        has_metadata=True,
        extra=extra,
    )
