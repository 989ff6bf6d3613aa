"""Small files are clustered: no row is lost, doubled or shown as changed, and files are sorted."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.config.parquet_settings import PARQUET_DEFAULTS
from lakemark.config.table_properties import (
    EXPRESSION_INDEX_PREFIX,
    MAINTAINED_INDEXES,
    SECONDARY_INDEX_PREFIX,
    TableType,
)
from lakemark.errors import InvalidConfig, Refused, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.log.parquet_format import repetitive_texts
from lakemark.model.action import Action, State
from lakemark.model.changes import ChangeKind
from lakemark.model.clustering_plan import ClusteringPlan
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import FILE_NAME, META_COLUMNS, RECORD_KEY
from lakemark.model.row_order import Curve, RowOrder
from lakemark.operations.clean import clean
from lakemark.operations.cluster import (
    cluster_table,
    pending_clusterings,
    plan_clusters,
    request_clustering,
    schedule_clustering,
)
from lakemark.operations.compact import request_compaction
from lakemark.operations.create_index import create_index
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.partition_deletion import match_partitions
from lakemark.operations.table_writer import TableWriter
from lakemark.read import base_file
from lakemark.services import cluster_rewriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.cluster_rewriter import ClusterRewriter, ClusterTask
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.storage import StorageLocation
from lakemark.timeline.content import encode_clustering_plan
from lakemark.transaction.conflicts import ClusteringPlanned
from lakemark.transaction.rollback import roll_back_named
from lakemark.write.file_group_write import FileGroupWrite, write_file_group
from lakemark.write.partitioner import Bucket
from tests.rings import ring_writer
from tests.table_services import as_of, make_plain, new_storage, since
from tests.tables import (
    Row,
    changes,
    commit,
    contents,
    lookup_writer,
    make,
    reopened,
    write_files,
    writer,
)
from tests.unit.operations.tables import FAST, SCHEMA, reopen, rows

RUNNER = LocalRunner(1)
BY_VALUE = RowOrder(("v",))
SORTED = ClusteringPolicy(order=BY_VALUE)
#: A file group of the north partition gets two new file groups.
SEVERAL = replace(SORTED, target_file_bytes=9_000)
_INDEXES = (
    *MAINTAINED_INDEXES,
    f"{SECONDARY_INDEX_PREFIX}v",
    f"{EXPRESSION_INDEX_PREFIX}of_v",
    f"{EXPRESSION_INDEX_PREFIX}filters_of_v",
)

each_type = pytest.mark.parametrize("table_type", TableType)
each_version = pytest.mark.parametrize("version", WRITTEN)


def some(ts: int, numbers: Iterable[int]) -> list[Row]:
    return [Row(f"k{n:02d}", ts, (n * 7) % 40, "south" if n % 4 == 3 else "north") for n in numbers]


def written(
    table_type: TableType = TableType.MERGE_ON_READ,
    version: FormatVersion = FormatVersion.V9,
    indexes: Sequence[str] = (),
    *,
    metadata: bool = True,
) -> TableWriter:
    """Return a table with several small file groups, some of whose rows are deleted."""
    storage = new_storage()
    if metadata:
        make(storage, table_type, indexes, version)
    else:
        make_plain(storage, table_type, version)
    to = lookup_writer(storage, replace(PARQUET_DEFAULTS, small_file_bytes=0))
    for first in (0, 10, 20, 30):
        commit(to, some(1, range(first, first + 10)))
    commit(to, some(2, range(0, 40, 6)))
    deletes = [
        replace(row, kind=ChangeKind.COMMIT_TIME_DELETE) for row in some(3, range(0, 40, 15))
    ]
    commit(to, deletes)
    return to


def groups_of(table: OpenTable) -> int:
    table.refresh()
    return len(table.view().latest_slices())


def values_of_files(table: OpenTable) -> dict[str, list[list[int]]]:
    """Return the stored values of each base file, by partition, in the order of the file."""
    found: dict[str, list[list[int]]] = {}
    for one in table.view().latest_slices():
        assert one.base is not None and not one.logs
        with table.storage.open(one.base.path) as file:
            values = pq.read_table(file, columns=["v"]).column("v").to_pylist()
        found.setdefault(one.group.partition_path, []).append(values)
    return found


def check_index(table: OpenTable) -> None:
    """Check that the record index finds exactly the rows of the table."""
    assert metadata_differences(table) == []
    keys = sorted(contents(table.storage))
    found = table.scan(columns=["id"], record_keys=[*keys, "nobody"]).to_reader().read_all()
    assert sorted(found.column("id").to_pylist()) == keys


@each_type
@each_version
@pytest.mark.parametrize("indexes", [(), _INDEXES], ids=["plain", "indexed"])
def test_rows_are_the_same_after_files_were_clustered(
    table_type: TableType, version: FormatVersion, indexes: Sequence[str]
) -> None:
    if version is FormatVersion.V6 and indexes:
        indexes = ("record_index",)
    to = written(table_type, version, indexes)
    table, before, groups = to.table, contents(to.table.storage), groups_of(to.table)
    newest = table.timeline.completed()[-1]
    ((instant, metadata),) = cluster_table(table, SEVERAL)
    assert instant.action is Action.REPLACE_COMMIT
    assert metadata.operation == "CLUSTER"
    assert sum(map(len, metadata.replaced_file_ids.values())) == groups
    assert 2 < groups_of(table) < groups
    for files in values_of_files(table).values():
        files.sort()
        values = [value for file in files for value in file]
        assert values == sorted(values), "files have distinct ranges"
        assert max(map(len, files)) - min(map(len, files)) <= 1, "files have the same size"
    assert contents(table.storage) == before
    if indexes:
        check_index(table)
    assert metadata_differences(table) == []
    assert as_of(table, newest.requested_at) == before
    assert since(table, newest.completed_at or newest.requested_at) == []
    commit(to, some(4, range(30, 50)))
    assert contents(table.storage) == before | {
        row.id: (row.ts, row.v) for row in some(4, range(30, 50))
    }
    if indexes:
        check_index(table)


def test_meta_columns_stay_except_for_the_name_of_the_file() -> None:
    to = written()
    kept = [name for name in META_COLUMNS if name != FILE_NAME]

    def stored() -> dict[str, dict[str, Any]]:
        read = to.table.scan(columns=[*META_COLUMNS]).to_reader().read_all().to_pylist()
        return {row[RECORD_KEY]: row for row in read}

    before = stored()
    cluster_table(to.table, SORTED)
    after = stored()
    assert [{n: row[n] for n in kept} for row in before.values()] == [
        {n: after[key][n] for n in kept} for key, row in before.items()
    ]
    names = {str(one.base and one.base.name) for one in to.table.view().latest_slices()}
    assert {row[FILE_NAME] for row in after.values()} == names


@each_type
@pytest.mark.parametrize("sort_by", [(), "v"], ids=["in order", "sorted"])
def test_rows_are_kept_whose_stored_partition_is_not_that_of_their_folder(
    tmp_path: Path, table_type: TableType, sort_by: str | tuple[str, ...]
) -> None:
    """Queries return them, so they must not be lost; a folder may have been renamed."""
    path = tmp_path / "orders"
    table = lakemark.create(
        path,
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=str(table_type),
        index="lookup",
        metadata_table=False,
        base_files=replace(PARQUET_DEFAULTS, small_file_bytes=0),
    )
    for ts in range(3):
        table.upsert(rows(*((f"k{ts}{n}", "north", ts, n * 7 % 5) for n in range(9))))
    (path / "north").rename(path / "moved")
    table = reopen(str(path))
    before = table.scan(columns=SCHEMA.names).to_table().sort_by("id")
    assert before.num_rows == 27
    size_bytes = sum(file.stat().st_size for file in (path / "moved").glob("*.parquet"))
    assert table.cluster(sort_by, target_file_bytes=size_bytes // 2 + 1).instants
    assert table.scan(columns=SCHEMA.names).to_table().sort_by("id") == before


@each_type
def test_incremental_and_cdc_queries_do_not_return_rewritten_rows(table_type: TableType) -> None:
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=str(table_type),
        index="lookup",
        cdc="data_before_after",
    )
    table.upsert(rows(("a", "north", 1, 1), ("b", "north", 1, 2)))
    middle = table.timeline.completed()[-1].completed_at
    table.upsert(rows(("c", "north", 2, 3), ("a", "north", 2, 4)))
    (clustered,) = table.cluster("v").instants
    end = table.timeline.completed()[-1].completed_at
    table.upsert(rows(("d", "north", 3, 5)))
    assert middle is not None
    query = lakemark.Incremental(middle, end)
    found = table.scan(query, ["id"]).to_reader().read_all().column("id").to_pylist()
    assert sorted(found) == ["a", "c"], "the rows that commits of the range wrote"
    changed = table.changes(clustered).to_table()
    assert changed.num_rows == 1, changed


@pytest.mark.parametrize("curve", Curve)
def test_rows_are_sorted_on_disk_if_they_exceed_the_memory(curve: Curve) -> None:
    to = written()
    plan = plan_clusters(to.table, ClusteringPolicy(order=RowOrder(("v", "id"), curve)))
    assert plan is not None
    found = []
    for memory_bytes in (1, 1 << 30):
        clustering = request_clustering(
            to.table, ClusteringPolicy(order=RowOrder(("v", "id"), curve))
        )
        assert clustering is not None
        assert isinstance(clustering.rewriter, ClusterRewriter)
        rewriter = replace(clustering.rewriter, memory_bytes=memory_bytes)
        stats = [stat for task in clustering.checked.tasks for stat in rewriter(task)]
        clustering.publish(stats)
        clustering.stop_heartbeat()
        found.append(values_of_files(to.table))
        roll_back_named(to.table.context, clustering.execution.instant.requested_at)
        to.table.refresh()
    assert found[0] == found[1]
    sorts = [values == sorted(values) for files in found[0].values() for values in files]
    assert all(sorts) is (curve is Curve.LINEAR)


_TEXTS = pa.schema(
    [
        ("status", pa.string()),
        ("city", pa.string()),
        ("note", pa.string()),
        ("nothing", pa.string()),
        ("data", pa.binary()),
        ("tags", pa.list_(pa.string())),
    ]
)


def orders(first: int, last: int, ts: int = 1) -> pa.Table:
    """Create rows with texts, some of which lakemark stores with a dictionary."""
    numbers = range(first, last)
    listed = rows(*((f"{n:05d}", "north", ts, n % 50) for n in numbers))
    texts = {
        "status": [f"status {n % 3} of {n // 2_000}" if n % 4 else None for n in numbers],
        "city": [f"city {n if n < 2_000 else n % 5}" for n in numbers],
        "note": ["long " * 500 if n % 2 else "" for n in numbers],
        "nothing": [None for _ in numbers],
        "data": [b"x" for _ in numbers],
        "tags": [["a", f"{n % 2}"] for n in numbers],
    }
    for field in _TEXTS:
        listed = listed.append_column(field, pa.array(texts[field.name], field.type))
    return listed


def table_of_texts() -> lakemark.Table:
    """Return a table of four slices, one of which has a log."""
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=pa.schema([*SCHEMA, *_TEXTS]),
        record_key="id",
        partition_by="region",
        ordering="ts",
        index="lookup",
    )
    for first in range(0, 8_000, 2_000):
        table.bulk_insert(orders(first, first + 2_000))
    table.upsert(orders(3_000, 3_010, ts=2))
    return table


@pytest.mark.parametrize("memory_bytes", [1, 1 << 30])
def test_texts_that_are_stored_with_a_dictionary_are_the_same_afterwards(
    memory_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_rewriter, "_memory_share_bytes", lambda: memory_bytes)
    table = table_of_texts()

    def stored() -> list[dict[str, Any]]:
        read: list[dict[str, Any]] = table.snapshot().read_all().drop([FILE_NAME]).to_pylist()
        return read

    before = stored()
    table.cluster(["status", "v"])
    after = stored()
    assert sorted(after, key=itemgetter("id")) == sorted(before, key=itemgetter("id"))
    keys = [(row["status"] is not None, row["status"], row["v"]) for row in after]
    assert keys == sorted(keys)


@pytest.mark.parametrize("columns", [("status", "v"), ()], ids=["sorted", "combined"])
def test_files_are_like_those_of_texts_without_a_dictionary(
    columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_table(StorageLocation(table_of_texts().location))
    create_index(opened, "record_index")
    create_index(opened, "of_status", "status")
    opened.refresh()
    clustering = request_clustering(opened, ClusteringPolicy(order=RowOrder(columns)))
    assert clustering is not None
    (task,) = clustering.checked.tasks
    encoded_slices = []

    def found(file: pq.ParquetFile) -> list[str]:
        names = repetitive_texts(file)
        encoded_slices.append({*names} & {*_TEXTS.names})
        return names if is_encoding else []

    monkeypatch.setattr(base_file, "repetitive_texts", found)
    written_by = {}
    for is_encoding in (True, False):
        stats = clustering.rewriter(task)
        written_by[is_encoding] = [described(opened, stat) for stat in stats]
        opened.storage.delete([str(stat.path) for stat in stats])
    clustering.stop_heartbeat()
    assert encoded_slices[0] == {"status", "note", "nothing"}
    assert {"city"} in [names - {"status", "note", "nothing"} for names in encoded_slices]
    assert written_by[True] == written_by[False], "with the same bounds, filters and indexed keys"


def described(table: OpenTable, stat: WriteStat) -> list[object]:
    """Return the rows of a file, the entries of its footer, its bounds, and its indexed keys."""
    assert stat.path is not None and stat.column_ranges is not None
    with table.storage.open(stat.path) as file:
        found = pq.ParquetFile(file)
        rows_and_entries = [found.read(), found.metadata.metadata]
    ranges = stat.column_ranges
    return [
        stat.path,
        *rows_and_entries,
        *(ranges.bounds, ranges.null_counts, ranges.value_counts),
        *(stat.key_changes, stat.secondary_changes),
    ]


def test_a_rewriter_can_be_sent_to_a_worker() -> None:
    to = written()
    clustering = request_clustering(to.table, SORTED)
    assert clustering is not None
    rewriter: ClusterRewriter = pickle.loads(pickle.dumps(clustering.rewriter))
    rewriter.context.use_storage(to.table.storage)
    tasks: list[ClusterTask] = pickle.loads(pickle.dumps(list(clustering.checked.tasks)))
    before = contents(to.table.storage)
    clustering.publish([stat for task in tasks for stat in rewriter(task)])
    clustering.stop_heartbeat()
    assert contents(to.table.storage) == before


def test_without_columns_only_files_that_can_be_combined_are_rewritten() -> None:
    to = written()
    before = contents(to.table.storage)
    assert len(cluster_table(to.table, ClusteringPolicy())) == 1
    assert groups_of(to.table) == 2, "one in each partition"
    assert contents(to.table.storage) == before
    instants_before = to.table.timeline.instants
    assert cluster_table(to.table, ClusteringPolicy()) == []
    assert to.table.timeline.instants == instants_before


def test_a_group_without_live_rows_gets_no_file() -> None:
    to = lookup_writer(new_storage_with_table(), replace(PARQUET_DEFAULTS, small_file_bytes=0))
    commit(to, some(1, range(3)))
    deletes = [replace(row, kind=ChangeKind.COMMIT_TIME_DELETE) for row in some(2, range(3))]
    commit(to, deletes)
    ((_, metadata),) = cluster_table(to.table, SORTED)
    assert metadata.write_stats == ()
    assert groups_of(to.table) == 0
    commit(to, some(3, range(5)))
    assert sorted(contents(to.table.storage)) == ["k00", "k01", "k02", "k03", "k04"]


def new_storage_with_table() -> Any:
    storage = new_storage()
    make(storage, indexes=_INDEXES)
    return storage


def test_only_the_chosen_partitions_are_clustered() -> None:
    to = written()
    north = len(to.table.view().latest_slices("north"))
    choose = match_partitions(to.table, ["sou*"])
    ((_, metadata),) = cluster_table(to.table, SORTED, choose)
    assert {*metadata.replaced_file_ids} == {"south"}
    assert len(to.table.view().latest_slices("north")) == north
    with pytest.raises(InvalidConfig, match="no partition 'west'"):
        cluster_table(to.table, SORTED, match_partitions(to.table, ["west"]))


def abandoned(to: TableWriter, policy: ClusteringPolicy = SORTED) -> str:
    """Leave a clustering whose executor has died after it wrote its files."""
    clustering = request_clustering(to.table, policy)
    assert clustering is not None
    clustering.rewrite(RUNNER)
    clustering.stop_heartbeat()
    return clustering.execution.instant.requested_at


@each_version
def test_the_plan_of_a_dead_writer_is_executed_by_the_next_clustering(
    version: FormatVersion,
) -> None:
    to = written(version=version)
    before, planned = contents(to.table.storage), abandoned(to)
    other = reopened(to)
    assert other.recover() == [], "plans are kept"
    done = cluster_table(other.table, ClusteringPolicy())
    assert [instant.requested_at for instant, _ in done] == [planned]
    assert contents(to.table.storage) == before
    assert groups_of(other.table) == 2
    assert metadata_differences(other.table) == []


def test_a_scheduled_plan_is_executed_later_in_its_own_order() -> None:
    to = written()
    scheduled = schedule_clustering(to.table, SORTED)
    assert scheduled is not None
    assert schedule_clustering(to.table, SORTED) is None, "all slices are in the plan"
    ((instant, _),) = cluster_table(reopened(to).table, ClusteringPolicy())
    assert instant.requested_at == scheduled[0].requested_at
    to.table.refresh()
    for files in values_of_files(to.table).values():
        assert all(values == sorted(values) for values in files)


def test_a_write_to_a_planned_group_is_refused_and_names_the_command() -> None:
    to = written()
    assert schedule_clustering(to.table, SORTED)
    with pytest.raises(ClusteringPlanned, match=r"lakemark table cluster TABLE --run"):
        commit(to, some(5, range(1)))
    to.abandon()
    commit(to, some(5, range(90, 95)))
    before = contents(to.table.storage)
    assert len(cluster_table(to.table, ClusteringPolicy())) == 1, "the plan"
    assert len(cluster_table(to.table, ClusteringPolicy())) == 1, "with the new files"
    assert contents(to.table.storage) == before


def test_nothing_is_planned_while_a_write_is_pending() -> None:
    to = written()
    other = reopened(to, multi_writer=FAST)
    other.recover()
    stats = write_files(other, some(5, range(8)))
    mine = reopened(to, multi_writer=FAST)
    with pytest.raises(WriteConflict, match="another writer is writing"):
        cluster_table(mine.table, SORTED)
    with pytest.raises(WriteConflict, match="another writer is writing"):
        schedule_clustering(mine.table, SORTED)
    other.commit(stats, {}, None)
    mine.table.refresh()
    assert len(cluster_table(mine.table, SORTED)) == 1
    assert contents(to.table.storage)["k05"] == (5, 35)


def test_a_write_that_began_before_the_clustering_completed_is_repeated() -> None:
    to = written()
    mine = reopened(to, multi_writer=FAST)
    clustering = request_clustering(mine.table, SORTED)
    assert clustering is not None
    other = reopened(to, multi_writer=FAST)
    other.recover()
    stats = write_files(other, some(5, range(8)))
    clustering.publish(clustering.rewrite(RUNNER))
    clustering.stop_heartbeat()
    with pytest.raises(WriteConflict, match="both write file group"):
        other.commit(stats, {}, None)
    other.abandon()
    commit(other, some(5, range(8)))
    assert contents(to.table.storage)["k05"] == (5, 35)


def plan_of_others(to: TableWriter, plan: ClusteringPlan) -> str:
    """Write a plan to the timeline, as another writer would."""
    store = to.table.store
    name = to.table.context.generate_time(store.load().newest_time)
    requested = Instant(name, store.version.clustering_action, State.REQUESTED)
    store.create(requested, encode_clustering_plan(plan, to.table.location.url))
    to.table.refresh()
    return name


def test_an_outdated_plan_is_removed() -> None:
    to = written()
    plan = plan_clusters(to.table, SORTED)
    assert plan is not None
    commit(to, some(5, range(8)))
    name = plan_of_others(to, plan)
    before = contents(to.table.storage)
    done = cluster_table(to.table, SORTED)
    assert name not in [instant.requested_at for instant, _ in done]
    assert len(done) == 1, "a new plan is made"
    assert pending_clusterings(to.table) == []
    assert contents(to.table.storage) == before


def test_rows_that_were_added_after_the_plan_are_not_lost() -> None:
    to = written()
    clustering = request_clustering(to.table, SORTED)
    assert clustering is not None
    stats = clustering.rewrite(RUNNER)
    # A writer that ignores plans, such as one of Apache Hudi: it adds a log to a planned slice.
    one = next(one for one in to.table.view().latest_slices() if one.base)
    assert one.base is not None
    reader = reopened(to)
    context = reader.begin()
    task = FileGroupWrite(Bucket(one.group.partition_path, 0), one, is_new_partition=False)
    (stat,) = write_file_group(context, task, [changes([Row("k01", 9, 9)])])
    publish_unchecked(reader, stat)
    with pytest.raises(WriteConflict, match="was added to"):
        clustering.publish(stats)
    clustering.stop_heartbeat()


def publish_unchecked(to: TableWriter, stat: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lakemark.transaction.transaction.check_conflicts", lambda *_, **__: None)
        to.commit([stat], {}, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"strategy": "com.example.Own"}, r"com\.example\.Own"),
        (
            {"strategy_params": {"hoodie.clustering.plan.strategy.sort.columns": "nothing"}},
            "no column 'nothing'",
        ),
        (
            {
                "strategy_params": {
                    "hoodie.clustering.plan.strategy.sort.columns": "v",
                    "hoodie.layout.optimize.strategy": "snake",
                }
            },
            "snake",
        ),
    ],
)
def test_a_plan_that_is_not_understood_is_refused_until_it_is_removed(
    change: dict[str, Any], reason: str
) -> None:
    to = written()
    plan = plan_clusters(to.table, SORTED)
    assert plan is not None
    name = plan_of_others(to, replace(plan, **change))
    with pytest.raises(Refused, match=reason) as refused:
        cluster_table(to.table, SORTED)
    assert f"lakemark table rollback TABLE {name} --run" in str(refused.value)
    roll_back_named(to.table.context, name)
    to.table.refresh()
    assert len(cluster_table(to.table, SORTED)) == 1


def test_groups_in_a_pending_compaction_are_kept() -> None:
    to = written()
    planned = request_compaction(to.table)
    assert planned is not None
    busy = {operation.group for operation in planned[1].operations}
    ((_, metadata),) = cluster_table(to.table, SORTED)
    replaced = {(p, i) for p, ids in metadata.replaced_file_ids.items() for i in ids}
    assert replaced.isdisjoint({(g.partition_path, g.file_id) for g in busy})


@each_type
def test_replaced_files_are_cleaned_and_a_clustering_is_rolled_back(
    table_type: TableType,
) -> None:
    to = written(table_type, indexes=_INDEXES)
    before = contents(to.table.storage)
    ((instant, _),) = cluster_table(to.table, SORTED)
    roll_back_named(to.table.context, instant.requested_at)
    to.table.refresh()
    assert contents(to.table.storage) == before
    check_index(to.table)
    cluster_table(to.table, SORTED)
    commit(to, some(7, range(1)))
    commit(to, some(8, range(1)))
    assert clean(to.table, CleaningPolicy(commits=1))
    assert contents(to.table.storage) == before | {"k00": (8, 0)}
    assert metadata_differences(to.table) == []


def test_tables_with_buckets_are_refused() -> None:
    storage = new_storage()
    make(storage)
    commit(writer(storage), some(1, range(9)))
    with pytest.raises(Unsupported, match="table compact"):
        cluster_table(writer(storage).table, SORTED)
    storage = new_storage()
    make(storage)
    commit(ring_writer(storage), some(1, range(9)))
    with pytest.raises(Unsupported, match="resize-buckets"):
        cluster_table(ring_writer(storage).table, SORTED)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_program_clusters_a_table_without_meta_columns(table_type: str) -> None:
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        index="lookup",
        meta_columns=False,
    )
    for ts in range(3):
        made = [(f"k{n}", "north", ts, (n * 7) % 20) for n in range(ts * 10, ts * 10 + 15)]
        table.bulk_insert(rows(*made)) if ts else table.upsert(rows(*made))
    before = sorted(table.snapshot(SCHEMA.names).read_all().to_pylist(), key=str)
    result = table.cluster(["v", "id"], curve="z-order", target_file_bytes=1 << 20)
    assert len(result.files) == 1
    after = reopen(table.location).snapshot(SCHEMA.names).read_all().to_pylist()
    assert sorted(after, key=str) == before
    assert table.metadata_differences() == []


def test_a_program_is_told_which_columns_it_can_sort_by(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    table = lakemark.create(
        str(tmp_path / "t"), schema=schema, record_key="id", partition_by="region", index="lookup"
    )
    made = [{"id": "a", "region": "x", "ts": 1, "v": 1, "tags": ["b"]}]
    table.upsert(pa.Table.from_pylist(made, schema=schema))
    with pytest.raises(InvalidConfig, match="no column 'w'"):
        table.cluster("w")
    with pytest.raises(Unsupported, match="column 'tags'"):
        table.cluster("tags")
    with pytest.raises(InvalidConfig, match="snake"):
        table.cluster("v", curve="snake")
    assert len(table.cluster("v").files) == 1
    assert table.snapshot(["tags"]).read_all().column("tags").to_pylist() == [["b"]]
