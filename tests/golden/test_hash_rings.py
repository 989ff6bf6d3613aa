"""Apache Hudi stored every row in the bucket that its hash ring and our hash give."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.errors import InvalidConfig, Refused
from lakemark.index.hash_ring import FIRST_INSTANT, RINGS_FOLDER, HashRing, ring_path
from lakemark.index.ring_files import load_ring
from lakemark.model.action import COMMITS, Action, State
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import FILE_NAME, PARTITION_PATH, RECORD_KEY
from lakemark.operations.open_table import OpenTable
from lakemark.operations.rollback import roll_back_instant
from lakemark.timeline.timeline import Timeline
from tests.depth import sample
from tests.golden.golden_table import GoldenTable, open_golden, unpack
from tests.golden.shared_tables import SharedTables
from tests.storages import WatchedStorage

_NAME = "v9_mor_consistent_hashing"


@pytest.fixture
def golden(shared_tables: SharedTables) -> GoldenTable:
    return shared_tables[_NAME]


def _ring(golden: GoldenTable, path: str, timeline: Timeline | None = None) -> HashRing:
    ring = load_ring(golden.storage, path, timeline or golden.table.timeline)
    assert ring is not None
    return ring


def own_columns(rows: pa.Table) -> pa.Table:
    return rows.select([name for name in rows.schema.names if not name.startswith("_hoodie_")])


def test_each_row_is_in_the_file_group_of_its_bucket(golden: GoldenTable) -> None:
    rows = golden.expected("snapshot").to_pylist()
    assert len(rows) > 20
    for row in rows:
        ring = _ring(golden, row[PARTITION_PATH])
        (bucket,) = ring.buckets_of_keys(pa.array([row[RECORD_KEY]]), ("id",)).tolist()
        assert row[FILE_NAME].startswith(ring.file_ids[bucket])


def test_the_first_ring_equals_that_of_apache_hudi(golden: GoldenTable) -> None:
    paths = {one.group.partition_path for one in golden.view.latest_slices()}
    assert len(paths) == 3
    for path in paths:
        stored = ring_path(path, FIRST_INSTANT)
        assert HashRing.parse(golden.storage.read(stored), stored) == HashRing.first(path, 2)


def test_a_ring_is_not_valid_before_its_clustering_completes(tmp_path: Path) -> None:
    golden, resize = _without_marker(tmp_path)
    others = [i for i in golden.table.timeline.instants if i != resize]
    pending = Instant(resize.requested_at, Action.CLUSTERING, State.INFLIGHT)
    assert _ring(golden, "r0").instant == resize.requested_at
    assert _ring(golden, "r0", Timeline.of([*others, pending])) == HashRing.first("r0", 2)


def test_a_ring_of_an_archived_clustering_is_valid(tmp_path: Path) -> None:
    golden, resize = _without_marker(tmp_path)
    table = lakemark.open(golden.root)
    resized = _ring(golden, "r0")
    for _ in range(3):
        table.upsert(own_columns(table.scan().to_table()))
    table.clean(retain_commits=1)
    table.archive(min_commits=1, max_commits=2, retain_commits=1)
    opened = open_golden(_NAME, tmp_path)
    assert opened.table.timeline.find(resize.requested_at) is None
    assert _ring(opened, "r0") == resized
    _check_upsert(table)


def test_a_ring_that_a_rollback_left_behind_is_refused(tmp_path: Path) -> None:
    golden, resize = _without_marker(tmp_path)
    others = Timeline.of([i for i in golden.table.timeline.instants if i != resize])
    with pytest.raises(Refused, match=rf"r0/{resize.requested_at}\.hashing_meta .* rolled back"):
        load_ring(golden.storage, "r0", others)
    marker = ring_path("r0", resize.requested_at).replace(".hashing_meta", ".commit")
    golden.storage.create(marker, b"")
    with pytest.raises(Refused, match=rf"delete the file {resize.requested_at}\.commit"):
        load_ring(golden.storage, "r0", others)


@pytest.mark.parametrize("undo", ["rollback", "restore"])
def test_undoing_a_resize_also_undoes_its_rings(undo: str, tmp_path: Path) -> None:
    golden = unpack(_NAME, tmp_path)
    was_open = lakemark.open(golden.root)
    was_open.upsert(own_columns(was_open.scan().to_table()).slice(0, 0))
    (resize,) = golden.table.timeline.completed(Action.REPLACE_COMMIT)
    completed = golden.table.timeline.completed(*COMMITS)
    before = [i for i in completed if (i.completed_at or "") < resize.requested_at]
    table = lakemark.open(golden.root)
    if undo == "restore":
        table.restore(before[-1].requested_at)
    else:
        for later in reversed(table.timeline.completed(*COMMITS)[len(before) :]):
            table.rollback(later.requested_at)
    stored = {one.path.rpartition("/")[2] for one in golden.storage.list_tree(RINGS_FOLDER)}
    assert not any(name.startswith(resize.requested_at) for name in stored)
    _check_upsert(was_open)
    _check_upsert(lakemark.open(golden.root))


def test_rollback_of_a_resize_is_completed_after_a_death_at_any_write(tmp_path: Path) -> None:
    golden = unpack(_NAME, tmp_path)
    (resize,) = golden.table.timeline.completed(Action.REPLACE_COMMIT)
    completed = golden.table.timeline.completed(*COMMITS)
    for later in reversed(completed[completed.index(resize) + 1 :]):
        lakemark.open(golden.root).rollback(later.requested_at)
    left: list[Path] = []

    def before_write(_: str, __: str) -> None:
        left.append(tmp_path / f"left{len(left)}")
        shutil.copytree(golden.root, left[-1])
        for expired in (".locks", ".heartbeat"):
            shutil.rmtree(left[-1] / ".hoodie" / expired, ignore_errors=True)

    watched = WatchedStorage(golden.storage, before_write)
    roll_back_instant(OpenTable(watched, golden.properties), resize.requested_at)
    rings = set[str]()
    for root in [left[0], *sample(left[1:], one_in=4)]:
        table = lakemark.open(root, only_writer=True)
        _check_upsert(table)
        rings.add(_ring(open_golden(_NAME, _moved(root)), "r0").instant)
    assert rings == {FIRST_INSTANT, resize.requested_at}, "deaths before and after the rollback"


def _moved(root: Path) -> Path:
    """Move a table to where ``open_golden`` looks for it, and return the folder."""
    folder = root.with_suffix(".of")
    (folder / _NAME).mkdir(parents=True)
    root.rename(folder / _NAME / "table")
    return folder


def _without_marker(folder: Path) -> tuple[GoldenTable, Instant]:
    """Unpack the table, and return its clustering, whose ring in partition r0 has no marker."""
    golden = unpack(_NAME, folder)
    (resize,) = golden.table.timeline.completed(Action.REPLACE_COMMIT)
    marker = ring_path("r0", resize.requested_at).replace(".hashing_meta", ".commit")
    golden.storage.delete([marker])
    return golden, resize


def _check_upsert(table: lakemark.Table) -> None:
    """Check that an upsert of all rows adds no row."""
    table.refresh()
    before = table.scan().to_table()
    table.upsert(own_columns(before))
    after = table.scan().to_table()[RECORD_KEY].to_pylist()
    assert sorted(after) == sorted(before[RECORD_KEY].to_pylist())
    assert len({*after}) == len(after) > 0


def test_changed_keys_replace_their_rows_and_new_partitions_get_rings(tmp_path: Path) -> None:
    golden = unpack(_NAME, tmp_path)
    table = lakemark.open(golden.root)
    before = table.scan().to_table()
    changed = own_columns(before)
    ts = changed.schema.get_field_index("ts")
    changed = changed.set_column(ts, changed.schema.field(ts), pc.add(changed["ts"], 1000))
    moved = changed.slice(0, 3)
    region = changed.schema.get_field_index("region")
    moved = moved.set_column(region, changed.schema.field(region), pa.array(["new"] * 3))
    identity = changed.schema.get_field_index("id")
    moved = moved.set_column(identity, changed.schema.field(identity), pa.array(["x", "y", "z"]))
    table.upsert(pa.concat_tables([changed, moved]))
    after = table.scan().to_table()
    keys = after[RECORD_KEY].to_pylist()
    assert sorted(keys) == sorted([*before[RECORD_KEY].to_pylist(), "x", "y", "z"])
    assert pc.min(after["ts"]).as_py() >= 1000
    assert _ring(GoldenTable(golden.root, table._table), "new") == HashRing.first("new", 2)
    for one in table._table.view().latest_slices():
        ring = _ring(GoldenTable(golden.root, table._table), one.group.partition_path)
        assert one.group.file_id in ring.file_ids


def test_a_table_that_hashes_other_fields_is_refused(tmp_path: Path) -> None:
    golden = unpack(_NAME, tmp_path)
    for one in golden.storage.list_tree(".hoodie/.bucket_index"):
        if one.path.endswith(".hashing_meta"):
            ring = HashRing.parse(golden.storage.read(one.path), one.path)
            prefixes = (*ring.file_id_prefixes[1:], ring.file_id_prefixes[0])
            turned = HashRing(
                ring.partition_path, ring.instant, ring.largest_hashes, prefixes, ring.first_count
            )
            golden.storage.put(one.path, turned.to_json())
    table = lakemark.open(golden.root)
    with pytest.raises(InvalidConfig, match="belong to other buckets"):
        table.upsert(pa.Table.from_pylist([], schema=table.schema))


def test_a_bucket_count_is_refused(tmp_path: Path) -> None:
    golden = unpack(_NAME, tmp_path)
    table = lakemark.open(golden.root, buckets=2)
    with pytest.raises(InvalidConfig, match="no fixed number of buckets"):
        table.upsert(pa.Table.from_pylist([], schema=table.schema))


def test_a_bucket_count_is_refused_before_there_are_rows(tmp_path: Path) -> None:
    golden = unpack(_NAME, tmp_path)
    for one in golden.view.latest_slices():
        golden.storage.delete([file.path for file in (one.base, *one.logs) if file is not None])
    table = lakemark.open(golden.root, buckets=4)
    with pytest.raises(InvalidConfig, match=r"no fixed number of buckets.*consistent_hashing"):
        table.upsert(pa.Table.from_pylist([], schema=table.schema))
