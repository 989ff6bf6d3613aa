"""A registered table is what Apache Hudi registers, and Spark lists and reads it by its names."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from lakemark.catalogs.catalog import CatalogTable
from lakemark.catalogs.open_catalog import open_catalog
from lakemark.catalogs.sync import execute_sync, plan_sync
from lakemark.catalogs.table_definition import Registration
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.fixtures.hive_metastore import HiveMetastore
from tests.interop.oracle import OracleUnavailable, oracle_python
from tests.short_lived import short_lived

pytestmark = [pytest.mark.oracle, pytest.mark.timeout(1200)]

_ROOT = Path(__file__).resolve().parents[2]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("Region", pa.string()),
        ("day", pa.date32()),
        ("v", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("price", pa.decimal128(9, 2)),
        ("tags", pa.list_(pa.string())),
        ("sizes", pa.map_(pa.string(), pa.int64())),
        ("place", pa.struct([("Street", pa.string()), ("no", pa.int32())])),
    ]
)

#: Parameters that the metastore adds, and the version of Apache Hudi, which lakemark does not have.
_OWN = {"transient_lastDdlTime", "hudi_writer_version"}


@dataclass(frozen=True)
class Registered:
    """A table in two databases: of lakemark and of Apache Hudi."""

    path: Path
    ours: str
    theirs: str
    uris: str
    answers: Mapping[str, list[dict[str, Any]]]

    def stored(self, database: str, name: str) -> CatalogTable:
        with open_catalog("hive", database, {"uris": self.uris}) as catalog:
            found = catalog.find_table(name)
        assert found is not None
        return found

    def partitions(self, database: str, name: str) -> dict[tuple[str, ...], str]:
        with open_catalog("hive", database, {"uris": self.uris}) as catalog:
            return {one.values: one.location for one in catalog.list_partitions(name)}


def _rows(version: int, *keys: tuple[str, str, int]) -> pa.Table:
    rows = [
        {
            "id": key,
            "Region": region,
            "day": date(2026, 1, day),
            "v": version,
            "at": datetime(2026, 1, day, tzinfo=UTC),
            "price": Decimal("1.50"),
            "tags": ["a", None],
            "sizes": [("m", 1)],
            "place": {"Street": "High", "no": 1},
        }
        for key, region, day in keys
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


@pytest.fixture(scope="module")
def registered(
    tmp_path_factory: pytest.TempPathFactory, hive_metastore: HiveMetastore
) -> Registered:
    folder = tmp_path_factory.mktemp("catalogs")
    path, uris = folder / "orders", hive_metastore.uris
    ours, theirs = hive_metastore.new_database(), hive_metastore.new_database()
    table = lakemark.create(
        str(path), schema=SCHEMA, record_key="id", partition_by=["Region", "day"], buckets=1
    )
    table.upsert(_rows(1, ("a", "north", 1), ("b", "south", 2)))
    table.compact()
    _sync(path, ours, uris)
    table.upsert(_rows(2, ("a", "north", 1), ("c", "east", 3)))
    _sync(path, ours, uris)
    queries = {
        "tables": f"show tables in {ours}",
        "partitions": f"show partitions {ours}.orders",
        "current": f"select id, Region, day, v, place.no from {ours}.orders order by id",
        "realtime": f"select id, v from {ours}.orders_rt order by id",
        "base_files": f"select id, v from {ours}.orders_ro order by id",
        "pruned": f"select id from {ours}.orders where Region = 'east' and day = '2026-01-03'",
        "types": f"describe {ours}.orders",
    }
    request = {"uris": uris, "syncs": [_properties(path, theirs, uris)]}
    answers = _ask(folder, {**request, "queries": [*queries.values()]})
    return Registered(path, ours, theirs, uris, dict(zip(queries, answers, strict=True)))


def _sync(path: Path, database: str, uris: str) -> None:
    table = open_table(StorageLocation(str(path)))
    with open_catalog("hive", database, {"uris": uris}) as catalog:
        execute_sync(catalog, plan_sync(table, catalog, Registration("orders", f"file://{path}")))


def _properties(path: Path, database: str, uris: str) -> dict[str, str]:
    sync = "hoodie.datasource.hive_sync"
    return {
        f"{sync}.mode": "hms",
        f"{sync}.metastore.uris": uris,
        f"{sync}.database": database,
        f"{sync}.table": "orders",
        f"{sync}.auto_create_database": "true",
        f"{sync}.support_timestamp": "true",
        f"{sync}.partition_fields": "Region,day",
        f"{sync}.partition_extractor_class": "org.apache.hudi.hive.MultiPartKeysValueExtractor",
        "hoodie.datasource.meta.sync.base.path": f"file://{path}",
    }


def _ask(folder: Path, request: Mapping[str, object]) -> list[list[dict[str, Any]]]:
    try:
        python = oracle_python()
    except OracleUnavailable as reason:
        pytest.skip(str(reason))
    asked, answered, log = folder / "request.json", folder / "answer.json", folder / "log"
    asked.write_text(json.dumps(request))
    with log.open("wb") as output:
        done = subprocess.run(
            [str(python), "-m", "tests.interop.catalog_session", str(asked), str(answered)],
            stdout=output,
            stderr=output,
            cwd=folder,
            env={**short_lived(), "PYTHONPATH": str(_ROOT)},
            check=False,
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-5000:]
    answers: list[list[dict[str, Any]]] = json.loads(answered.read_text())
    return answers


@pytest.mark.parametrize("name", ["orders", "orders_rt", "orders_ro"])
def test_metastore_has_what_apache_hudi_registers(registered: Registered, name: str) -> None:
    ours = registered.stored(registered.ours, name)
    theirs = registered.stored(registered.theirs, name)
    assert ours.columns == theirs.columns
    assert ours.partition_columns == theirs.partition_columns
    assert ours.location == theirs.location
    formats = ("input_format", "output_format", "serde", "serde_properties")
    assert [getattr(ours, one) for one in formats] == [getattr(theirs, one) for one in formats]
    of_ours, of_theirs = (_known(one.parameters) for one in (ours, theirs))
    schema = "spark.sql.sources.schema.part.0"
    assert json.loads(of_ours.pop(schema)) == json.loads(of_theirs.pop(schema))
    assert of_ours == of_theirs
    partitions = registered.partitions(registered.theirs, name)
    assert registered.partitions(registered.ours, name) == partitions


def _known(parameters: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in parameters.items() if name not in _OWN}


def test_spark_lists_the_names_and_partitions(registered: Registered) -> None:
    names = [row["tableName"] for row in registered.answers["tables"]]
    assert names == ["orders", "orders_ro", "orders_rt"]
    paths = [row["partition"] for row in registered.answers["partitions"]]
    assert sorted(paths) == ["east/2026-01-03", "north/2026-01-01", "south/2026-01-02"]


def test_spark_reads_current_rows_and_base_files(registered: Registered) -> None:
    current = [("a", 2), ("b", 1), ("c", 2)]
    answers = {name: registered.answers[name] for name in ("current", "realtime", "base_files")}
    found = {name: [(row["id"], row["v"]) for row in rows] for name, rows in answers.items()}
    assert found["current"] == found["realtime"] == current
    assert found["base_files"] == [("a", 1), ("b", 1), ("c", 2)], "a is updated in a log"
    assert registered.answers["current"][0] == {
        "id": "a",
        "Region": "north",
        "day": "2026-01-01",
        "v": 2,
        "no": 1,
    }
    assert registered.answers["pruned"] == [{"id": "c"}]
