"""Each catalog stores a table as Apache Hudi would register it, and follows its commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import lakemark
from lakemark.catalogs.catalog import (
    Catalog,
    CatalogChanged,
    CatalogColumn,
    CatalogPartition,
    CatalogRefused,
    CatalogTable,
    CatalogUnavailable,
)
from lakemark.catalogs.open_catalog import CatalogKind, open_catalog
from lakemark.catalogs.sync import SyncPlan, execute_sync, plan_sync
from lakemark.catalogs.table_definition import (
    LAST_COMMIT,
    LAST_COMPLETION,
    MergeOnReadTables,
    Registration,
)
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.table import Table
from tests.contract.lock_servers import aws_credentials
from tests.fixtures.hive_metastore import HiveMetastore
from tests.fixtures.s3 import S3Server
from tests.tables import make

SCHEMA = pa.schema(
    [("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("v", pa.int32())]
)


@dataclass
class Shop:
    """A table, and a database of a catalog that does not exist yet."""

    path: Path
    kind: str
    database: str
    options: dict[str, str]
    registration: Registration = field(init=False)

    def __post_init__(self) -> None:
        self.registration = Registration("orders", f"file://{self.path}")

    def create(self, **settings: Any) -> Table:
        given = {"partition_by": "region", "ordering": "ts", "buckets": 1, **settings}
        schema = given.pop("schema", SCHEMA)
        return lakemark.create(str(self.path), schema=schema, record_key="id", **given)

    @contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with open_catalog(self.kind, self.database, self.options) as catalog:
            yield catalog

    def plan(self, catalog: Catalog, *, compares_all: bool = False) -> SyncPlan:
        table = open_table(StorageLocation(str(self.path)))
        return plan_sync(table, catalog, self.registration, compares_all=compares_all)

    def sync(self, *, compares_all: bool = False) -> list[str]:
        """Sync, and return the changes."""
        with self.catalog() as catalog:
            plan = self.plan(catalog, compares_all=compares_all)
            execute_sync(catalog, plan)
        return [f"{one.table.name}: {text}" for one in plan.tables for text in one.describe()]

    def stored(self, name: str = "orders") -> CatalogTable:
        with self.catalog() as catalog:
            found = catalog.find_table(name)
        assert found is not None
        return found

    def partitions(self, name: str = "orders") -> dict[tuple[str, ...], str]:
        with self.catalog() as catalog:
            return {one.values: one.location for one in catalog.list_partitions(name)}

    def regions(self) -> set[str]:
        return {region for (region,) in self.partitions()}


#: The kinds of catalogs on which each test runs.
CATALOG_KINDS = (CatalogKind.HIVE, CatalogKind.GLUE)


@pytest.fixture(params=CATALOG_KINDS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    database = f"shop_{uuid4().hex[:12]}"
    if request.param is CatalogKind.HIVE:
        metastore: HiveMetastore = request.getfixturevalue("hive_metastore")
        yield Shop(tmp_path / "orders", "hive", database, {"uris": metastore.uris})
        return
    server: S3Server = request.getfixturevalue("s3_server")
    options = {"region": "us-east-1", "endpoint_url": server.endpoint}
    with aws_credentials():
        yield Shop(tmp_path / "orders", "glue", database, options)


def rows(*regions: str, ts: int = 1) -> pa.Table:
    listed = [
        {"id": f"{number}-{region}", "region": region, "ts": ts, "v": 1}
        for number, region in enumerate(regions)
    ]
    return pa.Table.from_pylist(listed, SCHEMA)


def test_merge_on_read_table_is_registered_under_three_names(shop: Shop) -> None:
    shop.create().upsert(rows("north", "south"))
    shop.sync()
    for name, input_format, is_ro in (
        ("orders", "realtime.HoodieParquetRealtimeInputFormat", "false"),
        ("orders_rt", "realtime.HoodieParquetRealtimeInputFormat", "false"),
        ("orders_ro", "HoodieParquetInputFormat", "true"),
    ):
        stored = shop.stored(name)
        assert stored.input_format == f"org.apache.hudi.hadoop.{input_format}"
        assert stored.serde_properties["hoodie.query.as.ro.table"] == is_ro
        assert stored.serde_properties["path"] == f"file://{shop.path}"
        assert stored.parameters["EXTERNAL"] == "TRUE"
        assert stored.parameters["spark.sql.sources.provider"] == "hudi"
        assert stored.partition_columns == (CatalogColumn("region", "string"),)
        assert [one.name for one in stored.columns][-3:] == ["id", "ts", "v"]
        assert {one.name: one.type for one in stored.columns}["v"] == "int"
        places = {
            values: path.removeprefix("file:") for values, path in shop.partitions(name).items()
        }
        assert {values: "/" + path.strip("/") for values, path in places.items()} == {
            ("north",): f"{shop.path}/north",
            ("south",): f"{shop.path}/south",
        }


def test_copy_on_write_table_has_one_name(shop: Shop) -> None:
    shop.create(table_type="copy_on_write", partition_by=()).upsert(rows("north"))
    shop.sync()
    stored = shop.stored()
    assert stored.input_format == "org.apache.hudi.hadoop.HoodieParquetInputFormat"
    assert stored.partition_columns == ()
    assert "region" in [one.name for one in stored.columns]
    with shop.catalog() as catalog:
        assert catalog.find_table("orders_ro") is None


def test_one_name_of_a_merge_on_read_table_can_be_chosen(shop: Shop) -> None:
    shop.create().upsert(rows("north"))
    only = MergeOnReadTables.READ_OPTIMIZED
    shop.registration = replace(shop.registration, merge_on_read=only)
    shop.sync()
    assert shop.stored().serde_properties["hoodie.query.as.ro.table"] == "true"
    with shop.catalog() as catalog:
        assert catalog.find_table("orders_rt") is None


def test_second_sync_changes_nothing(shop: Shop) -> None:
    shop.create().upsert(rows("north"))
    assert shop.sync()
    for compares_all in (False, True):
        with shop.catalog() as catalog:
            assert not shop.plan(catalog, compares_all=compares_all)


def test_empty_table_is_registered_with_its_columns(shop: Shop) -> None:
    shop.create()
    assert "orders: create the table with 9 columns" in shop.sync()
    assert shop.regions() == set()


def test_table_without_a_commit_is_not_registered(shop: Shop) -> None:
    make(open_storage(StorageLocation(str(shop.path))))
    assert shop.sync() == []
    with shop.catalog() as catalog:
        assert not catalog.has_database()


def test_later_commits_add_their_partitions_and_columns(shop: Shop) -> None:
    table = shop.create()
    table.upsert(rows("north", "south"))
    shop.sync()
    with shop.catalog() as catalog:
        catalog.drop_partitions(shop.stored(), [CatalogPartition(("south",), "")])
    table.upsert(rows("north", "east", ts=2))
    new = rows("west", ts=3).append_column("w", pa.array([1.5]))
    table.upsert(new, add_columns=True)
    changes = shop.sync()
    assert "orders: add the column w double" in changes
    assert "orders: add 2 partitions" in changes
    assert shop.stored().columns[-1] == CatalogColumn("w", "double")
    assert shop.regions() == {"north", "east", "west"}, "only those of the new commits"
    assert shop.sync(compares_all=True) == ["orders: add 1 partition"]
    assert shop.regions() == {"north", "south", "east", "west"}


def test_newest_commit_is_recorded_by_its_requested_and_completion_time(shop: Shop) -> None:
    table = shop.create()
    for region in ("north", "south"):
        table.upsert(rows(region))
        shop.sync()
        (*_, newest) = table.timeline.completed()
        parameters = shop.stored("orders_ro").parameters
        assert parameters[LAST_COMMIT] == newest.requested_at
        assert parameters[LAST_COMPLETION] == newest.completed_at


def test_deleted_partition_is_dropped_and_its_files_remain(shop: Shop) -> None:
    table = shop.create()
    table.upsert(rows("north", "south", "east"))
    shop.sync()
    table.delete_partitions(["south", "east"])
    table.upsert(rows("east", ts=5))
    assert "orders: drop 1 partition" in shop.sync()
    assert shop.regions() == {"north", "east"}
    assert [*(shop.path / "south").glob("*.parquet"), *(shop.path / "south").glob(".*log*")]


def test_partition_of_an_undone_commit_is_dropped(shop: Shop) -> None:
    table = shop.create()
    table.upsert(rows("north"))
    table.upsert(rows("south"))
    shop.sync()
    (*_, newest) = table.timeline.completed()
    table.rollback(newest.requested_at)
    shop.sync()
    assert shop.regions() == {"north"}


@pytest.mark.parametrize(
    ("settings", "regions"),
    [
        ({"hive_style": True}, ["north", "a b"]),
        ({"hive_style": True, "url_encode": True}, ["n:o/r=th", "50%", "ü"]),
        ({}, ["plus+minus", "ü"]),
    ],
)
def test_values_with_special_characters_are_found_again(
    shop: Shop, settings: dict[str, bool], regions: list[str]
) -> None:
    table = shop.create(**settings)
    table.upsert(rows(*regions))
    shop.sync()
    assert shop.regions() == set(regions)
    table.upsert(rows(*regions, ts=2))
    assert shop.sync() == []
    table.delete_partitions(["*"])
    shop.sync()
    assert shop.regions() == set()


class Failing:
    """A catalog that fails once, after some of the partitions were added."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def add_partitions(self, table: CatalogTable, partitions: Sequence[CatalogPartition]) -> None:
        self._catalog.add_partitions(table, partitions[:1])
        message = "the connection was lost"
        raise CatalogUnavailable(message)


def test_sync_that_failed_is_completed_by_the_next_one(shop: Shop) -> None:
    table = shop.create(table_type="copy_on_write")
    table.upsert(rows("north", "south"))
    for _ in range(2):  # when the table is new, and when it is not
        with shop.catalog() as catalog:
            failing: Any = Failing(catalog)
            with pytest.raises(CatalogUnavailable):
                execute_sync(failing, shop.plan(failing))
        shop.sync()
        assert shop.regions() == {one for (one,) in shop.partitions()}
        table.upsert(rows("east", "west", "middle", ts=2))
    shop.sync()
    assert shop.regions() == {"north", "south", "east", "west", "middle"}


def test_table_at_another_location_is_refused(shop: Shop, tmp_path: Path) -> None:
    shop.create().upsert(rows("north"))
    shop.sync()
    other = replace(shop, path=tmp_path / "returns")
    other.create(name="returns").upsert(rows("south"))
    other.registration = Registration("orders", f"file://{other.path}")
    with pytest.raises(CatalogRefused, match=r"orders_ro of .* is at .*/orders, but .*/returns;"):
        other.sync()
    assert shop.regions() == {"north"}


def test_missing_database_is_refused_unless_it_may_be_created(shop: Shop) -> None:
    shop.create().upsert(rows("north"))
    shop.registration = replace(shop.registration, creates_database=False)
    with pytest.raises(CatalogRefused, match="does not exist; create the database"):
        shop.sync()


def test_table_that_appears_during_the_sync_is_not_overwritten(shop: Shop, tmp_path: Path) -> None:
    shop.create().upsert(rows("north"))
    other = replace(shop, path=tmp_path / "returns")
    other.create(name="returns").upsert(rows("south"))
    other.registration = Registration("orders", f"file://{other.path}")
    with other.catalog() as catalog:
        plan = other.plan(catalog)
        shop.sync()
        with pytest.raises(CatalogChanged, match=r"orders_ro of .* was created during"):
            execute_sync(catalog, plan)
    assert shop.stored("orders_ro").serde_properties["path"] == f"file://{shop.path}"
    assert shop.sync(compares_all=True) == []


@pytest.mark.parametrize("compares_all", [False, True])
def test_partition_that_another_pipeline_has_just_registered_is_kept(
    shop: Shop, compares_all: bool
) -> None:
    table = shop.create()
    table.upsert(rows("north"))
    shop.sync()
    old = open_table(StorageLocation(str(shop.path)))
    assert old.timeline.completed()
    table.upsert(rows("south").append_column("w", pa.array([1.5])), add_columns=True)
    shop.sync()
    with shop.catalog() as catalog:
        plan = plan_sync(old, catalog, shop.registration, compares_all=compares_all)
        assert not plan
        execute_sync(catalog, plan)
    assert shop.regions() == {"north", "south"}


class Committing:
    """A catalog of a table to which another writer commits while it is compared."""

    def __init__(self, catalog: Catalog, table: Table) -> None:
        self._catalog, self._table, self._ts = catalog, table, 10

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def list_partitions(self, table: str) -> list[CatalogPartition]:
        found = self._catalog.list_partitions(table)
        self._ts += 1
        self._table.upsert(rows("north", ts=self._ts))
        return found


def test_no_partition_is_dropped_while_commits_do_not_cease(shop: Shop) -> None:
    table = shop.create(table_type="copy_on_write")
    table.upsert(rows("north", "south"))
    shop.sync()
    table.delete_partitions(["south"])
    with shop.catalog() as catalog:
        busy: Any = Committing(catalog, table)
        execute_sync(busy, shop.plan(busy, compares_all=True))
    assert shop.regions() == {"north", "south"}
    assert shop.sync() == ["orders: drop 1 partition"]
    assert shop.regions() == {"north"}


def test_comments_of_columns_are_kept(shop: Shop) -> None:
    table = shop.create(table_type="copy_on_write")
    table.upsert(rows("north"))
    shop.sync()
    _comment(shop, "v", "how many")
    table.upsert(rows("north", ts=2).append_column("w", pa.array([1.5])), add_columns=True)
    assert "orders: add the column w double" in shop.sync()
    assert _comments(shop)["v"] == "how many"


def _comment(shop: Shop, column: str, text: str) -> None:
    """Set the comment of a column, as a user of the catalog does."""
    with shop.catalog() as catalog:
        client: Any = catalog
        if shop.kind == "hive":
            stored = client._client.get_table(shop.database, "orders")
            for one in stored.sd.cols:
                one.comment = text if one.name == column else one.comment
            client._client.alter_table(shop.database, "orders", stored)
            return
        stored = client._client.get_table(DatabaseName=shop.database, Name="orders")["Table"]
        kept = ("Name", "TableType", "PartitionKeys", "StorageDescriptor", "Parameters")
        for one in stored["StorageDescriptor"]["Columns"]:
            one |= {"Comment": text} if one["Name"] == column else {}
        client._client.update_table(
            DatabaseName=shop.database, TableInput={name: stored[name] for name in kept}
        )


def _comments(shop: Shop) -> dict[str, str]:
    with shop.catalog() as catalog:
        client: Any = catalog
        if shop.kind == "hive":
            stored = client._client.get_table(shop.database, "orders")
            return {one.name: one.comment for one in stored.sd.cols}
        stored = client._client.get_table(DatabaseName=shop.database, Name="orders")["Table"]
        columns = stored["StorageDescriptor"]["Columns"]
        return {one["Name"]: one.get("Comment", "") for one in columns}


def test_partitions_get_the_format_that_their_table_gets(shop: Shop) -> None:
    shop.create().upsert(rows("north"))
    for only, input_format in (
        (MergeOnReadTables.CURRENT, "realtime.HoodieParquetRealtimeInputFormat"),
        (MergeOnReadTables.READ_OPTIMIZED, "HoodieParquetInputFormat"),
    ):
        shop.registration = replace(shop.registration, merge_on_read=only)
        shop.sync()
        assert _partition_format(shop) == f"org.apache.hudi.hadoop.{input_format}"


def _partition_format(shop: Shop) -> str:
    """Return the input format of the partition ``north``."""
    with shop.catalog() as catalog:
        client: Any = catalog
        if shop.kind == "hive":
            stored = client._client.get_partition(shop.database, "orders", ["north"])
            return str(stored.sd.inputFormat)
        stored = client._client.get_partition(
            DatabaseName=shop.database, TableName="orders", PartitionValues=["north"]
        )
        return str(stored["Partition"]["StorageDescriptor"]["InputFormat"])


def test_columns_that_a_metastore_does_not_change_are_named(
    hive_metastore: HiveMetastore, tmp_path: Path
) -> None:
    shop = Shop(tmp_path / "orders", "hive", hive_metastore.new_database(), {})
    shop.options["uris"] = hive_metastore.uris
    shop.create(table_type="copy_on_write", partition_by=()).upsert(rows("north"))
    shop.sync()
    with shop.catalog() as catalog:
        stored = shop.stored()
        kept = [one for one in stored.columns if one.name != "region"]
        with pytest.raises(CatalogRefused, match=r"refuses the change: .*position.* ts,v"):
            catalog.alter_table(replace(stored, columns=tuple(kept)))
