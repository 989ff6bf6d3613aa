"""Files are sorted on local disk while commits continue, and then replace the files of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.config.table_properties import TableType
from lakemark.errors import CorruptData, Refused
from lakemark.execution.runner import Cancelled, LocalRunner
from lakemark.model.action import Action
from lakemark.model.changes import ChangeKind
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.clean import clean
from lakemark.operations.cluster import cluster_table, request_clustering
from lakemark.operations.group_replacement import execute_replacement
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable
from lakemark.operations.prepared_clustering import PreparedClustering, begin_preparation
from lakemark.operations.table_writer import TableWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.cluster_preparation import PreparedClusterRewriter
from lakemark.services.cluster_rewriter import ClusterRewriter
from lakemark.services.clustering_plan import ClusteringPolicy, order_of
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.transaction.rollback import roll_back_named
from tests.depth import examples
from tests.table_services import as_of, new_storage, since
from tests.tables import Row, commit, contents, lookup_writer, make, reopened
from tests.unit.operations.tables import SCHEMA, rows
from tests.unit.operations.test_cluster import (
    _INDEXES,
    BY_VALUE,
    SEVERAL,
    SORTED,
    check_index,
    each_type,
    each_version,
    groups_of,
    some,
    written,
)

RUNNER = LocalRunner(1)
NORTH, SOUTH = 2, 3
Done = list[tuple[Instant, CommitMetadata]]


def prepare(
    table: OpenTable, folder: Path, policy: ClusteringPolicy = SORTED
) -> PreparedClustering:
    preparation = begin_preparation(table, policy)
    assert preparation is not None
    return preparation.run(folder)


def publish(table: OpenTable, prepared: PreparedClustering) -> Done:
    return execute_replacement(table, lambda: prepared.request(table), RUNNER)


def values(changed: list[Row]) -> dict[str, tuple[int, int]]:
    return {row.id: (row.ts, row.v) for row in changed}


@each_type
@each_version
@pytest.mark.parametrize("indexes", [(), _INDEXES], ids=["plain", "indexed"])
def test_rows_in_new_file_groups_do_not_change_a_preparation(
    table_type: TableType, version: FormatVersion, indexes: Any, tmp_path: Path
) -> None:
    if version is FormatVersion.V6 and indexes:
        indexes = ("record_index",)
    to = written(table_type, version, indexes)
    storage, instants = to.table.storage, to.table.store.load().instants
    prepared = prepare(to.table, tmp_path, SEVERAL)
    assert to.table.store.load().instants == instants, "nothing is on the timeline"
    newest = commit(to, some(4, range(40, 50)))
    before, groups = contents(storage), groups_of(to.table)
    ((instant, metadata),) = publish(to.table, prepared)
    assert instant.action is Action.REPLACE_COMMIT
    assert metadata.operation == "CLUSTER"
    replaced = sum(map(len, metadata.replaced_file_ids.values()))
    assert groups_of(to.table) == groups - replaced + len(metadata.write_stats) < groups
    assert contents(storage) == before
    assert metadata_differences(to.table) == []
    assert as_of(to.table, newest.requested_at) == before
    assert since(to.table, newest.completed_at or newest.requested_at) == []
    commit(to, some(5, range(0, 60, 3)))
    assert contents(storage) == before | values(some(5, range(0, 60, 3)))
    if indexes:
        check_index(to.table)
    clean(to.table, CleaningPolicy(commits=1))
    assert contents(storage) == before | values(some(5, range(0, 60, 3)))
    assert metadata_differences(to.table) == []


@each_type
@each_version
def test_a_group_with_new_files_is_left_out_and_the_others_are_published(
    table_type: TableType, version: FormatVersion, tmp_path: Path
) -> None:
    to = written(table_type, version, ("record_index",))
    prepared = prepare(to.table, tmp_path)
    changed = some(4, (NORTH,))
    commit(to, changed)
    before, north = contents(to.table.storage), to.table.view().latest_slices("north")
    ((_, metadata),) = publish(to.table, prepared)
    assert {*metadata.replaced_file_ids} == {"south"}
    assert to.table.view().latest_slices("north") == north
    assert len(to.table.view().latest_slices("south")) == 1
    assert contents(to.table.storage) == before
    check_index(to.table)
    assert len(cluster_table(to.table, SORTED)) == 1
    assert contents(to.table.storage) == before


def _updated(to: TableWriter) -> None:
    commit(to, some(4, (NORTH, SOUTH)))


def _clustered_by_another(to: TableWriter) -> None:
    assert cluster_table(reopened(to).table, SORTED)
    to.table.refresh()


def _clustering_planned(to: TableWriter) -> None:
    planned = request_clustering(reopened(to).table, SORTED)
    assert planned is not None
    planned.stop_heartbeat()
    to.table.refresh()


def _compacted(to: TableWriter) -> None:
    assert to.compact_if_due(CompactionPolicy(1), RUNNER)


def _rolled_back(to: TableWriter) -> None:
    roll_back_named(to.table.context, commit(to, some(5, (90,))).requested_at)
    to.table.refresh()


def _with_another_column(to: TableWriter) -> None:
    to.evolve(to.schema.append(pa.field("extra", pa.string())))
    context = to.begin()
    assert "extra" in context.schema.names
    to.commit([], {})


@pytest.mark.parametrize(
    "change",
    [
        _updated,
        _clustered_by_another,
        _clustering_planned,
        _compacted,
        _rolled_back,
        _with_another_column,
    ],
)
def test_nothing_is_published_if_nothing_is_left_of_the_plan(
    change: Callable[[TableWriter], None], tmp_path: Path
) -> None:
    to = written()
    prepared = prepare(to.table, tmp_path)
    assert prepared.preparation.find_outdated(to.table) is None
    change(to)
    before, instants = contents(to.table.storage), to.table.store.load().instants
    assert prepared.preparation.find_outdated(to.table) is not None
    assert publish(to.table, prepared) == []
    assert to.table.store.load().instants == instants
    assert contents(to.table.storage) == before


def test_nothing_is_planned_or_published_while_a_write_is_pending(tmp_path: Path) -> None:
    to = written()
    prepared = prepare(to.table, tmp_path)
    other = reopened(to)
    other.begin()
    to.table.refresh()
    assert begin_preparation(to.table, SORTED) is None
    assert publish(to.table, prepared) == []
    assert prepared.preparation.find_outdated(to.table) is None
    other.cancel()
    assert publish(to.table, prepared)


@each_type
@each_version
@pytest.mark.parametrize("policy", [SEVERAL, ClusteringPolicy()], ids=["sorted", "in order"])
def test_prepared_files_equal_those_that_are_written_directly(
    table_type: TableType, version: FormatVersion, policy: ClusteringPolicy, tmp_path: Path
) -> None:
    check_same_files(written(table_type, version, ("record_index",)).table, policy, tmp_path)


@each_type
@pytest.mark.parametrize("settings", [{"meta_columns": False}, {"cdc": "data_before_after"}])
def test_tables_without_meta_columns_or_with_cdc_are_prepared_alike(
    table_type: TableType, settings: dict[str, Any], tmp_path: Path
) -> None:
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=str(table_type),
        index="lookup",
        **settings,
    )
    for ts in range(3):
        table.upsert(rows(*((f"k{ts}{n}", "north", ts, n * 7 % 5) for n in range(9))))
    before = table.snapshot(SCHEMA.names).read_all().sort_by("id")
    newest = table.timeline.completed()[-1]
    check_same_files(table._table, SORTED, tmp_path)
    table.refresh()
    assert table.snapshot(SCHEMA.names).read_all().sort_by("id") == before
    assert table.timeline.completed()[-1] != newest
    if "cdc" in settings:
        assert table.changes(newest.requested_at).to_table().num_rows == 0


def check_same_files(table: OpenTable, policy: ClusteringPolicy, folder: Path) -> None:
    """Check that one instant and one attempt have the same files and write stats both ways."""
    prepared = prepare(table, folder, policy)
    begun = prepared.request(table)
    assert begun is not None
    assert isinstance(begun.rewriter, PreparedClusterRewriter)
    copied = begun.rewrite(RUNNER)
    assert copied
    content = {stat.path: table.storage.read(stat.path or "") for stat in copied}
    table.storage.delete([path or "" for path in content])
    rewrite = ClusterRewriter(begun.rewriter.context, order_of(begun.execution.plan))
    stats = [stat for task in begun.checked.tasks for stat in rewrite(task)]
    assert stats == copied
    assert {stat.path: table.storage.read(stat.path or "") for stat in stats} == content
    begun.publish(stats)
    begun.stop_heartbeat()


def test_the_next_writer_removes_nothing_but_executes_a_plan_without_its_files(
    tmp_path: Path,
) -> None:
    """The prepared files of a process that died are lost; the plan is executed again."""
    to = written(indexes=("record_index",))
    prepared, before = prepare(to.table, tmp_path), contents(to.table.storage)
    begun = prepared.request(to.table)
    assert begun is not None
    written_before = begun.rewrite(RUNNER)
    begun.stop_heartbeat()
    other = reopened(to)
    other.recover()
    ((instant, metadata),) = cluster_table(other.table, SORTED)
    assert instant.requested_at == begun.execution.instant.requested_at
    assert [s.file_id for s in metadata.write_stats] == [s.file_id for s in written_before]
    assert contents(to.table.storage) == before
    check_index(other.table)


def test_files_that_a_clean_has_deleted_only_leave_out_their_group(tmp_path: Path) -> None:
    to = written(TableType.COPY_ON_WRITE)
    preparation = begin_preparation(to.table, SORTED)
    assert preparation is not None
    commit(to, some(4, range(0, 40, 4)))
    for ts in (5, 6):
        commit(to, some(ts, (NORTH,)))
    clean(to.table, CleaningPolicy(commits=1))
    before = contents(to.table.storage)
    ((_, metadata),) = publish(to.table, preparation.run(tmp_path))
    assert {*metadata.replaced_file_ids} == {"south"}
    assert contents(to.table.storage) == before


def test_an_unchanged_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    to = written(TableType.COPY_ON_WRITE)
    base = to.table.view().latest_slices("north")[0].base
    assert base is not None
    preparation = begin_preparation(to.table, SORTED)
    assert preparation is not None
    to.table.storage.delete([base.path])
    instants = to.table.store.load().instants
    with pytest.raises(CorruptData, match="no such file"):
        publish(to.table, preparation.run(tmp_path))
    assert to.table.store.load().instants == instants


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_nothing_is_published_if_a_prepared_file_is_lost(
    damage: Callable[[Path], object], tmp_path: Path
) -> None:
    to = written()
    prepared, instants = prepare(to.table, tmp_path), to.table.store.load().instants
    damage(next(tmp_path.rglob("*.parquet")))
    assert publish(to.table, prepared) == []
    assert to.table.store.load().instants == instants


def test_a_cancelled_preparation_ends_early(tmp_path: Path) -> None:
    preparation = begin_preparation(written().table, SORTED)
    assert preparation is not None
    with pytest.raises(Cancelled):
        preparation.run(tmp_path, lambda: True)


def test_rows_without_a_commit_time_are_not_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would get the time of a clustering that is not known yet."""
    monkeypatch.setattr(
        "lakemark.services.prepared_files.COMMIT_TIME", "v"
    )  # a column that may contain nulls
    to = written()
    commit(to, [replace(one, kind=ChangeKind.UPSERT, v=None) for one in some(4, (NORTH,))])  # type: ignore[arg-type]
    with pytest.raises(Refused, match=r"clustering\.mode: inline"):
        prepare(to.table, tmp_path)


_numbers = st.lists(st.integers(0, 20), min_size=1, max_size=8, unique=True)
_steps = st.one_of(
    st.tuples(
        st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.COMMIT_TIME_DELETE]),
        _numbers,
    ),
    st.sampled_from(["prepare", "prepare", "publish", "publish"]),
    st.sampled_from(["compact", "cluster", "clean", "restart", "roll back"]),
)


@dataclass
class _History:
    """A table, and the rows that it should have."""

    folder: Path
    table_type: TableType
    storage: Storage = field(default_factory=new_storage)
    rows: dict[str, tuple[int, int]] = field(default_factory=dict)
    prepared: PreparedClustering | None = None
    ts: int = 0

    def __post_init__(self) -> None:
        make(self.storage, self.table_type, ("record_index",))
        self.to = lookup_writer(self.storage)
        self._write(ChangeKind.UPSERT, [0])

    def do(self, step: Any) -> None:
        if not isinstance(step, str):
            self._write(*step)
        elif step == "prepare":
            self._prepare()
        elif step == "publish":
            self._publish()
        else:
            self._run(step)

    def _write(self, kind: ChangeKind, numbers: list[int]) -> Instant:
        self.ts += 1
        changed = [replace(row, kind=kind) for row in some(self.ts, numbers)]
        done = commit(self.to, changed)
        for row in changed:
            self.rows.pop(row.id, None)
        if kind is ChangeKind.UPSERT:
            self.rows |= values(changed)
        return done

    def _prepare(self) -> None:
        preparation = begin_preparation(self.to.table, ClusteringPolicy(order=BY_VALUE))
        if preparation is not None:
            folder = self.folder / str(len(list(self.folder.iterdir())))
            folder.mkdir()
            self.to.spare_groups(preparation.groups)
            self.prepared = preparation.run(folder)

    def _publish(self) -> None:
        prepared, self.prepared = self.prepared, None
        if prepared is not None:
            is_current = prepared.preparation.find_outdated(self.to.table) is None
            assert bool(publish(self.to.table, prepared)) == is_current

    def _run(self, step: str) -> None:
        to = self.to
        match step:
            case "compact":
                to.compact_if_due(CompactionPolicy(1), RUNNER)
            case "cluster":
                cluster_table(to.table, ClusteringPolicy())
            case "clean":
                clean(to.table, CleaningPolicy(commits=1))
            case "restart":
                self.to = reopened(to)
                self.to.recover()
            case "roll back":
                before = dict(self.rows)
                roll_back_named(to.table.context, self._write(ChangeKind.UPSERT, [1]).requested_at)
                to.table.refresh()
                self.rows = before


@settings(max_examples=examples(60), deadline=None)
@given(table_type=st.sampled_from(TableType), steps=st.lists(_steps, min_size=4, max_size=14))
def test_rows_are_those_of_the_changes(
    tmp_path_factory: pytest.TempPathFactory, table_type: TableType, steps: list[Any]
) -> None:
    history = _History(tmp_path_factory.mktemp("prepared"), table_type)
    for step in steps:
        history.do(step)
        assert contents(history.storage) == history.rows
    assert metadata_differences(history.to.table) == []
