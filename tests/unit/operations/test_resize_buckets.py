"""Buckets of tables with consistent hashing are split and merged; no row is lost or doubled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.codec import avro_container
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, Refused, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.index.hash_ring import RINGS_FOLDER, HashRing
from lakemark.index.ring_files import load_ring
from lakemark.model.action import Action, State
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.resize_buckets import (
    pending_resizes,
    plan_buckets,
    request_resize,
    resize_table,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.resize_plan import ResizePolicy
from lakemark.storage import Storage, StorageLocation
from lakemark.transaction.conflicts import ClusteringPlanned, ResizePlanned
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.rollback import roll_back_named
from tests.depth import examples
from tests.rings import (
    FIRST_BUCKETS,
    MERGE_ALL,
    SPLIT_ALL,
    assert_in_buckets,
    ring_writer,
)
from tests.table_services import as_of, make_plain, new_storage, since
from tests.tables import Row, commit, contents, make, writer
from tests.unit.operations.tables import FAST, SCHEMA

RUNNER = LocalRunner(1)
REGIONS = ("north", "south")
_PENDING = (State.REQUESTED, State.INFLIGHT)

each_version = pytest.mark.parametrize("version", WRITTEN)


def some(ts: int, numbers: Iterable[int] = range(40)) -> list[Row]:
    return [Row(f"k{n}", ts, ts * 100 + n, REGIONS[n % 2]) for n in numbers]


def written(version: FormatVersion = FormatVersion.V9, *, metadata: bool = True) -> TableWriter:
    """Return a table with base files and logs, some of whose rows are deleted."""
    storage = new_storage()
    make(storage, version=version) if metadata else make_plain(storage, version=version)
    to = ring_writer(storage)
    commit(to, some(1))
    commit(to, some(2, range(0, 60, 3)))
    deletes = [replace(row, kind=ChangeKind.COMMIT_TIME_DELETE) for row in some(3, range(5))]
    commit(to, deletes)
    return to


def buckets_of(to: TableWriter, region: str = "north") -> int:
    to.table.refresh()
    ring = load_ring(to.table.storage, region, to.table.timeline)
    assert ring is not None
    return len(ring.file_ids)


@each_version
def test_rows_are_the_same_after_buckets_were_split_and_merged(version: FormatVersion) -> None:
    to = written(version)
    storage, before = to.table.storage, contents(to.table.storage)
    newest = to.table.timeline.completed()[-1]
    for policy, buckets in ((SPLIT_ALL, 4), (SPLIT_ALL, 8), (MERGE_ALL, FIRST_BUCKETS)):
        (done,) = to.resize_if_due(policy, RUNNER)
        instant, metadata = done
        assert instant.action is Action.REPLACE_COMMIT
        assert metadata.operation == "CLUSTER"
        assert contents(storage) == before
        assert buckets_of(to) == buckets
        assert_in_buckets(to.table)
        assert metadata_differences(to.table) == []
        assert_in_buckets(ring_writer(storage).table)
    commit(to, some(4, range(50, 70)))
    expected = before | {row.id: (row.ts, row.v) for row in some(4, range(50, 70))}
    assert contents(storage) == expected
    assert_in_buckets(to.table)
    assert as_of(to.table, newest.requested_at) == before
    changed = since(to.table, newest.completed_at or "")
    assert {key for key, _ in changed} == {row.id for row in some(4, range(50, 70))}


def test_statistics_lose_the_values_of_merged_buckets_without_rows() -> None:
    """Such buckets are merged into one that has no file."""
    storage = new_storage()
    make(storage)
    to = ring_writer(storage)
    rows = [Row(f"k{number}", 1, number) for number in range(40)]
    commit(to, rows)
    to.resize_if_due(replace(SPLIT_ALL, max_bytes=1), RUNNER)
    ring = load_ring(storage, "north", to.table.timeline)
    assert ring is not None
    numbers = ring.buckets_of_keys(pa.array([row.id for row in rows]), ("id",)).tolist()
    gone = [row for row, number in zip(rows, numbers, strict=True) if number < 2]
    assert max(numbers) == 2
    south = Row("s", 2, 2, "south")
    commit(to, [south, *(replace(row, ts=2, v=row.v + 1000) for row in gone)])
    commit(to, [replace(row, ts=3, kind=ChangeKind.COMMIT_TIME_DELETE) for row in gone])
    ((_, merged),) = to.resize_if_due(MERGE_ALL, RUNNER)
    assert not any(stat.path for stat in merged.write_stats)
    assert metadata_differences(to.table) == []
    left = {row.id: (row.ts, row.v) for row in (south, *rows) if row not in gone}
    assert contents(storage) == left
    commit(to, [Row("new", 4, 4)])
    assert metadata_differences(to.table) == []


def test_a_plan_is_limited_and_the_next_one_continues() -> None:
    to = written()
    one_bucket = replace(SPLIT_ALL, max_bytes=1)
    counts = []
    for _ in range(4):
        (done,) = to.resize_if_due(one_bucket, RUNNER)
        counts.append(sum(map(len, done[1].replaced_file_ids.values())))
    assert counts == [1, 1, 1, 1]
    assert_in_buckets(to.table)


def test_nothing_is_written_if_no_bucket_needs_it() -> None:
    to = written()
    instants = to.table.timeline.instants
    assert to.resize_if_due(ResizePolicy(), RUNNER) == []
    assert to.resize_if_due(None, RUNNER) == []
    assert resize_table(to.table, ResizePolicy()) == []
    assert to.table.store.load().instants == instants


def abandoned(to: TableWriter, policy: ResizePolicy = SPLIT_ALL) -> Instant:
    """Leave a resize whose executor has died before it wrote a file."""
    resize = request_resize(to.table, policy)
    assert resize is not None
    resize.stop_heartbeat()
    return resize.execution.instant


@each_version
def test_the_next_writer_executes_the_plan_of_a_dead_one(version: FormatVersion) -> None:
    to = written(version)
    before, planned = contents(to.table.storage), abandoned(to)
    other = ring_writer(to.table.storage)
    assert other.recover() == [], "plans are kept"
    (done,) = other.resize_if_due(None, RUNNER)
    assert done[0].requested_at == planned.requested_at
    assert contents(to.table.storage) == before
    assert buckets_of(other) == 4
    assert_in_buckets(other.table)


def test_a_program_executes_the_plan_of_a_dead_writer_before_it_writes(tmp_path: Path) -> None:
    table = _created(str(tmp_path / "t"))
    table.upsert(_rows(range(20), 1))
    planned = request_resize(table._table, SPLIT_ALL)
    assert planned is not None
    planned.stop_heartbeat()
    other = lakemark.open(tmp_path / "t", multi_writer=FAST)
    other.upsert(_rows(range(10, 30), 2))
    assert not other.timeline.pending()
    assert other.timeline.completed(Action.REPLACE_COMMIT)
    assert _values(other) == {f"k{n}": 1 + (n >= 10) for n in range(30)}


@each_version
def test_commit_conflicts_with_the_plan_of_a_dead_process_until_it_is_executed(
    version: FormatVersion,
) -> None:
    to = written(version)
    planned = abandoned(ring_writer(to.table.storage))
    with pytest.raises(ResizePlanned, match=planned.requested_at):
        commit(to, some(4))
    to.abandon()
    (done,) = to.resize_if_due(None, RUNNER)
    assert done[0].requested_at == planned.requested_at
    commit(to, some(4))
    assert contents(to.table.storage) == contents(to.table.storage) | {
        row.id: (row.ts, row.v) for row in some(4)
    }
    assert_in_buckets(to.table)


def test_a_writer_waits_while_another_one_resizes(tmp_path: Path) -> None:
    table = _created(str(tmp_path / "t"))
    table.upsert(_rows(range(20), 1))
    other = lakemark.open(tmp_path / "t", multi_writer=FAST)
    resize = request_resize(table._table, SPLIT_ALL)
    assert resize is not None
    with pytest.raises(WriteConflict) as conflict:
        other.upsert(_rows(range(10, 30), 2))
    assert not isinstance(conflict.value, ClusteringPlanned)
    resize.publish(resize.rewrite(RUNNER), dict)
    resize.stop_heartbeat()
    other.upsert(_rows(range(10, 30), 2))
    assert _values(other) == {f"k{n}": 1 + (n >= 10) for n in range(30)}
    assert_in_buckets(other._table)


def test_no_resize_begins_while_a_write_is_pending() -> None:
    to = written()
    other = ring_writer(to.table.storage)
    other.begin()
    assert request_resize(to.table, SPLIT_ALL) is None
    other.cancel()
    assert request_resize(to.table, SPLIT_ALL) is not None


def test_a_resize_that_conflicts_at_its_publication_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A writer that does not know the plan adds rows to one of its buckets meanwhile."""
    to = written()
    storage = to.table.storage

    class Interrupted:
        def map(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
            stats = RUNNER.map(function, tasks)
            (planned,) = to.table.store.load().pending()
            paths = [to.table.store.path_of(replace(planned, state=state)) for state in _PENDING]
            files = {path: storage.read(path) for path in paths}
            storage.delete(paths)
            commit(ring_writer(storage), some(7, range(3)))
            for path, content in files.items():
                storage.create(path, content)
            return stats

    assert to.resize_if_due(SPLIT_ALL, Interrupted()) == []
    (planned,) = to.table.store.load().pending()
    assert f"{planned} was not executed: " in caplog.text


@each_version
def test_an_outdated_plan_is_removed(version: FormatVersion) -> None:
    """A writer that does not know the plan has added rows to one of its buckets."""
    to = written(version)
    planned = abandoned(to)
    store, storage = to.table.store, to.table.storage
    paths = [store.path_of(replace(planned, state=state)) for state in _PENDING]
    files = {path: storage.read(path) for path in paths}
    storage.delete(paths)
    other = ring_writer(storage)
    commit(other, some(7, range(3)))
    before = contents(storage)
    for path, content in files.items():
        storage.create(path, content)
    third = ring_writer(storage)
    third.recover()
    assert third.resize_if_due(None, RUNNER) == []
    assert not third.table.store.load().pending()
    assert contents(storage) == before
    assert buckets_of(third) == FIRST_BUCKETS
    commit(third, some(8, range(3)))
    assert_in_buckets(third.table)


def _changed_plan(to: TableWriter, planned: Instant, change: Any) -> None:
    """Replace the plan of a pending resize by a changed one."""
    store, storage = to.table.store, to.table.storage
    path = store.path_of(replace(planned, state=State.REQUESTED))
    record = dict(avro_container.decode(storage.read(path), path))
    change(record["clusteringPlan"])
    storage.put(path, avro_container.encode("HoodieRequestedReplaceMetadata", record))


def _without_children(plan: dict[str, Any]) -> None:
    plan["inputGroups"][0]["extraMetadata"] = {}


def _with_unknown_tag(plan: dict[str, Any]) -> None:
    extra = plan["inputGroups"][0]["extraMetadata"]
    extra["clustering.group.child.node"] = extra["clustering.group.child.node"].replace("REPL", "X")


def _with_another_slice(plan: dict[str, Any]) -> None:
    first, second, *_ = plan["inputGroups"]
    first["slices"] += second["slices"]
    plan["inputGroups"] = [first]


@pytest.mark.parametrize("change", [_without_children, _with_unknown_tag, _with_another_slice])
def test_a_plan_that_is_not_understood_is_refused_by_name(change: Any) -> None:
    to = written()
    planned = abandoned(to)
    _changed_plan(to, planned, change)
    before = contents(to.table.storage)
    other = ring_writer(to.table.storage)
    other.recover()
    with pytest.raises(Refused, match=rf"does not understand the plan of {planned.requested_at}"):
        other.resize_if_due(None, RUNNER)
    other.table.refresh()
    roll_back_named(other.table.context, planned.requested_at)
    assert contents(to.table.storage) == before


def test_rows_in_other_buckets_than_their_keys_are_not_moved() -> None:
    """Apache Hudi may hash only some fields of the record key."""
    to = written()
    storage = to.table.storage
    for one in storage.list_tree(RINGS_FOLDER):
        ring = HashRing.parse(storage.read(one.path), one.path)
        turned = replace(ring, file_id_prefixes=ring.file_id_prefixes[::-1])
        storage.put(one.path, turned.to_json())
    with pytest.raises(Refused, match="belong to"):
        to.resize_if_due(SPLIT_ALL, RUNNER)
    assert not storage.list_folder(HEARTBEAT_FOLDER)[1]


@pytest.mark.parametrize("when", ["newest", "before the next commit"])
def test_a_resize_can_be_rolled_back(when: str) -> None:
    to = written()
    storage, before = to.table.storage, contents(to.table.storage)
    ((resized, _),) = to.resize_if_due(SPLIT_ALL, RUNNER)
    if when != "newest":
        later = commit(to, some(9, range(3)))
        roll_back_named(to.table.context, later.requested_at)
    roll_back_named(to.table.context, resized.requested_at)
    to.table.refresh()
    assert contents(storage) == before
    assert buckets_of(to) == FIRST_BUCKETS
    assert not [one for one in storage.list_tree(RINGS_FOLDER) if resized.requested_at in one.path]
    commit(to, some(9, range(3)))
    assert_in_buckets(to.table)
    assert metadata_differences(to.table) == []


def test_a_ring_whose_file_groups_were_never_written_is_skipped() -> None:
    """A paused executor wrote the ring after another writer had removed the resize."""
    to = written()
    ring = load_ring(to.table.storage, "north", to.table.timeline)
    assert ring is not None
    prefixes = tuple(f"{n:08x}-0000-4000-8000-000000000000" for n in range(len(ring.file_ids)))
    late = replace(ring, instant="20991231235959999", file_id_prefixes=prefixes)
    path = f"{RINGS_FOLDER}/north/{late.instant}.hashing_meta"
    to.table.storage.create(path, late.to_json())
    assert load_ring(to.table.storage, "north", to.table.timeline) == ring
    marker = path.replace(".hashing_meta", ".commit")
    to.table.storage.create(marker, b"")
    with pytest.raises(Refused, match="rolled back"):
        load_ring(to.table.storage, "north", to.table.timeline)


def test_a_worker_of_another_process_can_rewrite_buckets(tmp_path: Path) -> None:
    table = _created(str(tmp_path / "t"))
    table.upsert(_rows(range(20), 1))
    resize = request_resize(table._table, SPLIT_ALL)
    assert resize is not None
    rewriter = pickle.loads(pickle.dumps(resize.rewriter))
    stats = replace(resize, rewriter=rewriter).rewrite(RUNNER)
    resize.publish(stats, dict)
    resize.stop_heartbeat()
    assert _values(lakemark.open(tmp_path / "t")) == {f"k{n}": 1 for n in range(20)}


def test_bulk_insert_writes_to_the_buckets_that_a_resize_made(tmp_path: Path) -> None:
    table = _created(str(tmp_path / "t"))
    assert table.bulk_insert(_rows(range(40), 1).to_batches(max_chunksize=7)).inserts == 40
    other = lakemark.open(tmp_path / "t", multi_writer=FAST)
    split = other.resize_buckets(split_above_bytes=1, merge_below_bytes=0)
    assert split.files

    def batches() -> Iterator[pa.RecordBatch]:
        """Merge the buckets while the rows of the bulk insert arrive."""
        yield from _rows(range(30, 60), 2).to_batches()
        assert other.resize_buckets(split_above_bytes=10**9, merge_below_bytes=10**8).files

    assert table.bulk_insert(batches(), sort="global").inserts == 30
    assert _values(table) == {f"k{n}": 1 + (n >= 30) for n in range(60)}
    assert_in_buckets(open_table(StorageLocation(str(tmp_path / "t"))))
    assert table.metadata_differences() == []


def _created(path: str, **settings: Any) -> lakemark.Table:
    return lakemark.create(
        path,
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["region"],
        ordering=["ts"],
        index="consistent_hashing",
        multi_writer=FAST,
        **{"buckets": 3, **settings},
    )


def _rows(numbers: Iterable[int], value: int) -> pa.Table:
    listed = [{"id": f"k{n}", "region": "r", "ts": value, "v": value} for n in numbers]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


def _values(table: lakemark.Table) -> dict[str, int]:
    rows = table.scan(columns=["id", "v"]).to_table().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}


@pytest.mark.parametrize("version", [9, 6])
def test_a_new_table_needs_no_guess_of_its_buckets(tmp_path: Path, version: int) -> None:
    path = tmp_path / "t"
    _created(str(path), version=version)
    table = lakemark.open(path, multi_writer=FAST)
    assert table._table.first_ring_count == 3
    table.upsert(_rows(range(100), 1))
    assert len(table._table.view().latest_slices()) == 3
    limits = {"split_above_bytes": 2_000, "merge_below_bytes": 0}
    done = table.resize_buckets(**limits)
    assert len(done.instants) == 1
    assert len(done.files) == len(table._table.view().latest_slices()) > 3
    table.upsert(_rows(range(50, 120), 2))
    assert _values(table) == {f"k{n}": 1 + (n >= 50) for n in range(120)}
    assert_in_buckets(table._table)
    assert table.metadata_differences() == []
    other = lakemark.open(path, multi_writer=FAST)
    other.delete([f"k{n}" for n in range(100)])
    other.compact()
    merged = other.resize_buckets(split_above_bytes=1 << 30, merge_below_bytes=1 << 20)
    assert len(merged.instants) == 1
    assert len(other._table.view().latest_slices()) <= 3
    assert _values(other) == {f"k{n}": 2 for n in range(100, 120)}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"buckets": 0}, "bucket count 0"),
        ({"buckets": "4"}, "positive integer"),
        ({"table_type": "copy_on_write"}, "copy-on-write"),
        ({"meta_columns": False}, "meta columns"),
    ],
)
def test_impossible_settings_of_a_new_table_are_refused(
    tmp_path: Path, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises((InvalidConfig, Unsupported), match=reason):
        _created(str(tmp_path / "t"), **settings)
    assert not (tmp_path / "t").exists()


def test_tables_with_other_indexes_are_refused(tmp_path: Path) -> None:
    for index in ("bucket", "lookup"):
        table = lakemark.create(
            str(tmp_path / index), schema=SCHEMA, record_key=["id"], ordering=["ts"], index=index
        )
        with pytest.raises(Unsupported, match="has no hash rings"):
            table.resize_buckets()
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE)
    commit(ring_writer(storage), some(1))
    with pytest.raises(Unsupported, match="copy-on-write"):
        plan_buckets(ring_writer(storage).table, SPLIT_ALL)


def test_limits_that_undo_each_other_are_refused(tmp_path: Path) -> None:
    table = _created(str(tmp_path / "t"))
    with pytest.raises(InvalidConfig, match="split again"):
        table.resize_buckets(split_above_bytes=100, merge_below_bytes=50)


_steps = st.one_of(
    st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True),
    st.tuples(st.just("delete"), st.lists(st.integers(0, 30), min_size=1, max_size=4, unique=True)),
    st.sampled_from(["split", "split one", "merge", "compact", "clean", "archive", "restart"]),
    st.sampled_from(["split", "merge", "abandon"]),
)


@dataclass
class _History:
    """A table, and the rows that it should have. Later changes have greater ordering values."""

    storage: Storage = field(default_factory=new_storage)
    expected: dict[str, tuple[int, int]] = field(default_factory=dict)
    ts: int = 0

    def __post_init__(self) -> None:
        make(self.storage)
        self.to = ring_writer(self.storage)

    def do(self, step: Any) -> None:
        if isinstance(step, str):
            self._run(step)
            return
        self.ts += 1
        deletes = isinstance(step, tuple)
        rows = some(self.ts, step[1] if deletes else step)
        if deletes:
            rows = [replace(row, kind=ChangeKind.DELETE) for row in rows]
        self.to.resize_if_due(None, RUNNER)
        commit(self.to, rows)
        for row in rows:
            self.expected.pop(row.id, None)
            if not deletes:
                self.expected[row.id] = (row.ts, row.v)

    def _run(self, step: str) -> None:
        to, table = self.to, self.to.table
        match step:
            case "split":
                to.resize_if_due(SPLIT_ALL if self._buckets() < 16 else None, RUNNER)
            case "split one":
                to.resize_if_due(replace(SPLIT_ALL, max_bytes=1), RUNNER)
            case "merge":
                to.resize_if_due(MERGE_ALL, RUNNER)
            case "abandon":
                to.resize_if_due(None, RUNNER)
                request_resize(table, SPLIT_ALL if self._buckets() < 16 else MERGE_ALL)
            case "compact":
                to.compact_if_due(CompactionPolicy(1), RUNNER)
            case "clean":
                clean(table, CleaningPolicy(commits=1))
            case "archive":
                archive(table, ArchivalPolicy(2, 3), CleaningPolicy(commits=1))
            case _:
                self.to = ring_writer(self.storage)
                self.to.recover()

    def _buckets(self) -> int:
        return len(self.to.table.view().latest_slices())

    def check(self) -> None:
        table: OpenTable = writer(self.storage).table
        assert_in_buckets(table)
        assert len(pending_resizes(table)) <= 1
        assert metadata_differences(table) == []


@given(st.lists(_steps, max_size=10))
@settings(max_examples=examples(12), deadline=None)
def test_every_key_is_in_exactly_one_bucket_of_the_newest_ring(steps: list[Any]) -> None:
    history = _History()
    history.do([1, 2, 3, 4, 5])
    for step in steps:
        history.do(step)
        assert contents(history.storage) == history.expected
    history.check()
