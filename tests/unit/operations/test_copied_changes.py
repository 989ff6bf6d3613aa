"""Commits continue while buckets are split or merged, and no row is lost or read twice."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.errors import CorruptData, InvalidConfig, Refused, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.compact_logs import compact_logs_if_due
from lakemark.operations.group_replacement import GroupReplacement
from lakemark.operations.metadata_table import (
    drop_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.operations.orphan_removal import SHORTEST_AGE, find_orphans, remove_orphans
from lakemark.operations.resize_buckets import pending_resizes, request_resize, resize_table
from lakemark.operations.restore import restore_table
from lakemark.operations.savepoint import create_savepoint
from lakemark.operations.table_writer import TableWriter
from lakemark.read.lost_changes import LostChanges
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.partition_lifetime import last_commits
from lakemark.services.resize_plan import ResizePolicy
from lakemark.storage import Storage
from lakemark.storage.storage import NotFound
from lakemark.transaction.conflicts import ClusteringExecuted, ResizePlanned
from lakemark.transaction.rollback import roll_back_named
from tests.depth import examples
from tests.rings import MERGE_ALL, SPLIT_ALL, assert_in_buckets, ring_writer
from tests.table_services import as_of, copy_of, make_plain, new_storage, since
from tests.tables import Row, commit, contents, data_files, make, write_files
from tests.unit.operations.tables import FAST, SCHEMA

RUNNER = LocalRunner(1)
REGIONS = ("north", "south")
WITH_COPIES = [version for version in WRITTEN if version is not FormatVersion.V6]

each_version = pytest.mark.parametrize("version", WITH_COPIES)


def some(ts: int, numbers: Iterable[int] = range(20)) -> list[Row]:
    return [Row(f"k{n}", ts, ts * 100 + n, REGIONS[n % 2]) for n in numbers]


def some_deletes(ts: int, numbers: Iterable[int]) -> list[Row]:
    return [replace(row, kind=ChangeKind.DELETE) for row in some(ts, numbers)]


def rows_of(*rows: Row) -> dict[str, tuple[int, int]]:
    return {row.id: (row.ts, row.v) for row in rows}


def written(version: FormatVersion = FormatVersion.V9) -> TableWriter:
    storage = new_storage()
    make(storage, version=version)
    to = ring_writer(storage)
    commit(to, some(1))
    return to


def requested(to: TableWriter, policy: ResizePolicy = SPLIT_ALL) -> GroupReplacement[Any]:
    resize = request_resize(to.table, policy)
    assert resize is not None
    return resize


def abandoned(to: TableWriter, policy: ResizePolicy = SPLIT_ALL) -> Instant:
    """Leave a resize whose executor has died."""
    resize = requested(to, policy)
    resize.stop_heartbeat()
    return resize.execution.instant


def check(to: TableWriter, expected: dict[str, tuple[int, int]]) -> None:
    assert contents(to.table.storage) == expected
    table = ring_writer(to.table.storage).table
    assert_in_buckets(table)
    assert metadata_differences(table) == []


@each_version
@pytest.mark.parametrize("when", ["requested", "rewritten"])
def test_a_commit_during_a_resize_is_kept(version: FormatVersion, when: str) -> None:
    to, expected = written(version), rows_of(*some(1))
    other = ring_writer(to.table.storage)
    resize = requested(to)
    stats = resize.rewrite(RUNNER) if when == "rewritten" else []
    first = commit(other, some(2, range(5, 30)))
    expected |= rows_of(*some(2, range(5, 30)))
    check(to, expected)
    commit(other, some_deletes(3, range(3)))
    expected = {key: row for key, row in expected.items() if key not in ("k0", "k1", "k2")}
    check(to, expected)
    assert other.table.view().unpublished.keys() & other.table.view().groups.keys()
    resize.publish(stats or resize.rewrite(RUNNER), dict)
    resize.stop_heartbeat()
    check(to, expected)
    assert contents(to.table.storage) == expected
    commit(other, some(4, range(25, 35)))
    check(to, expected | rows_of(*some(4, range(25, 35))))
    assert as_of(to.table, first.requested_at) == rows_of(*some(1), *some(2, range(5, 30)))


@each_version
def test_the_plan_of_a_dead_process_is_executed_after_commits(version: FormatVersion) -> None:
    to, expected = written(version), rows_of(*some(1))
    planned = abandoned(ring_writer(to.table.storage))
    commit(to, some(2, range(10, 40)))
    expected |= rows_of(*some(2, range(10, 40)))
    check(to, expected)
    ((done, _),) = to.resize_if_due(None, RUNNER)
    assert done.requested_at == planned.requested_at
    check(to, expected)


def test_a_commit_that_began_before_the_resize_completed_is_repeated() -> None:
    to = written()
    other = ring_writer(to.table.storage)
    resize = requested(to)
    stats = write_files(other, some(2, range(30)))
    resize.publish(resize.rewrite(RUNNER), dict)
    resize.stop_heartbeat()
    with pytest.raises(WriteConflict):
        other.commit(stats, {})
    other.abandon()
    check(to, rows_of(*some(1)))
    commit(other, some(2, range(30)))
    check(to, rows_of(*some(2, range(30))))


def test_a_commit_conflicts_if_its_plan_was_removed() -> None:
    """A process that lost the lock removes the plan; the check of pending writes saw none."""
    to = written()
    planned = abandoned(ring_writer(to.table.storage))
    stats = write_files(to, some(2, range(30)))
    with pytest.raises(Refused, match="may write rows"):
        roll_back_named(to.table.context, planned.requested_at)
    for instant in to.table.store.load().pending():
        if instant.requested_at == planned.requested_at:
            to.table.store.forget(instant)
    with pytest.raises(WriteConflict, match="was removed"):
        to.commit(stats, {})
    to.abandon()
    check(to, rows_of(*some(1)))


def test_a_commit_conflicts_unless_the_rows_of_all_its_buckets_were_copied() -> None:
    to = written()
    abandoned(ring_writer(to.table.storage))
    first, *others = write_files(to, some(2))
    assert first.copies
    with pytest.raises(ResizePlanned):
        to.commit([replace(first, copies=()), *others], {})
    to.abandon()
    commit(to, some(2))
    check(to, rows_of(*some(2)))


def test_no_row_is_read_twice_if_the_plan_is_rolled_back() -> None:
    to = written()
    planned = abandoned(ring_writer(to.table.storage))
    first = commit(to, some(2, range(10, 40)))
    expected = rows_of(*some(1), *some(2, range(10, 40)))
    roll_back_named(to.table.context, planned.requested_at)
    to.table.refresh()
    assert not to.table.timeline.pending()
    assert contents(to.table.storage) == expected
    to = ring_writer(to.table.storage)
    to.recover()
    check(to, expected)
    commit(to, some(3, range(5)))
    check(to, expected | rows_of(*some(3, range(5))))
    assert resize_table(to.table, SPLIT_ALL)
    check(to, expected | rows_of(*some(3, range(5))))
    assert first.requested_at in {i.requested_at for i in to.table.timeline.completed()}


def test_a_doubled_commit_can_be_rolled_back() -> None:
    to = written()
    abandoned(ring_writer(to.table.storage))
    later = commit(to, some(2, range(10, 40)))
    roll_back_named(to.table.context, later.requested_at)
    to = ring_writer(to.table.storage)
    to.recover()
    paths = [info.path for info in to.table.storage.list_tree("")]
    assert not [path for path in paths if later.requested_at in path and ".log." in path]
    check(to, rows_of(*some(1)))
    assert to.resize_if_due(None, RUNNER)
    check(to, rows_of(*some(1)))


@pytest.mark.parametrize("state", ["pending", "completed", "compacted and cleaned"])
@pytest.mark.parametrize("target", [0, 1, 2])
def test_no_row_is_read_twice_after_a_restore(state: str, target: int) -> None:
    """The table is restored to a commit before the plan, or to one with copies of its rows."""
    to = written()
    commits = [to.table.timeline.completed()[-1]]
    abandoned(ring_writer(to.table.storage))
    for ts in (2, 3):
        commits.append(commit(to, some(ts, range(ts * 5, ts * 5 + 15))))
    restored = commits[target].requested_at
    create_savepoint(to.table, restored, "test")
    if state != "pending":
        assert to.resize_if_due(None, RUNNER)
        commit(to, some(4))
    if state == "compacted and cleaned":
        to.compact_if_due(CompactionPolicy(1), RUNNER)
        commit(to, some(5))
        clean(to.table, CleaningPolicy(commits=1))
    restore_table(to.table, restored)
    to = ring_writer(to.table.storage)
    to.recover()
    expected = rows_of(*some(1))
    for ts in range(2, 2 + target):
        expected |= rows_of(*some(ts, range(ts * 5, ts * 5 + 15)))
    check(to, expected)
    assert not to.table.timeline.pending()
    commit(to, some(9, range(5)))
    check(to, expected | rows_of(*some(9, range(5))))


def test_an_outdated_plan_is_removed_with_the_copies() -> None:
    """A writer that does not know the plan has added rows to one of its buckets."""
    to = written()
    storage, store = to.table.storage, to.table.store
    planned = abandoned(ring_writer(storage))
    commit(to, some(2, range(5, 30)))
    states = [one for one in store.load().instants if one.requested_at == planned.requested_at]
    paths = [store.path_of(one) for one in states]
    paths += [path.replace(".inflight", ".requested") for path in paths]
    files = {path: storage.read(path) for path in paths}
    copies = {info.path: storage.read(info.path) for info in _logs_of_new_groups(to)}
    storage.delete([*files, *copies])
    commit(ring_writer(storage), some(3, range(2)))
    for path, content in {**files, **copies}.items():
        storage.create(path, content)
    third = ring_writer(storage)
    third.recover()
    assert third.resize_if_due(None, RUNNER) == []
    assert not third.table.store.load().pending()
    expected = rows_of(*some(1), *some(2, range(5, 30)), *some(3, range(2)))
    check(third, expected)
    commit(third, some(4, range(3)))
    check(third, expected | rows_of(*some(4, range(3))))


def _logs_of_new_groups(to: TableWriter) -> list[Any]:
    new = {group.file_id for group in to.table.view().unpublished}
    infos = to.table.storage.list_tree("")
    return [one for one in infos if any(file_id in one.path for file_id in new)]


def test_rows_of_a_merged_bucket_without_rows_conflict() -> None:
    storage = new_storage()
    make_plain(storage)
    to = ring_writer(storage)
    commit(to, some(1, [0, 2, 4, 6]))
    assert resize_table(to.table, replace(SPLIT_ALL, max_parts=16))
    to.table.refresh()
    abandoned(to, MERGE_ALL)
    other = ring_writer(storage)
    with pytest.raises(ResizePlanned):
        commit(other, some(2, range(0, 200, 2)))
    other.abandon()
    other.resize_if_due(None, RUNNER)
    commit(other, some(2, range(0, 200, 2)))
    assert contents(storage) == rows_of(*some(2, range(0, 200, 2)))
    assert_in_buckets(other.table)


@pytest.mark.parametrize("setting", ["version 6", "cdc"])
def test_commits_that_cannot_be_copied_conflict(tmp_path: Path, setting: str) -> None:
    given: dict[str, Any] = {"version": 6} if setting == "version 6" else {}
    if setting == "cdc":
        given["cdc"] = "data_before_after"
    table = _created(tmp_path / "t", **given)
    table.upsert(_table(range(20), 1))
    other = lakemark.open(tmp_path / "t", multi_writer=FAST)
    resize = request_resize(table._table, SPLIT_ALL)
    assert resize is not None
    with pytest.raises(ClusteringExecuted):
        other.upsert(_table(range(10, 30), 2))
    resize.publish(resize.rewrite(RUNNER), dict)
    resize.stop_heartbeat()
    other.upsert(_table(range(10, 30), 2))
    assert _values(other) == {f"k{n}": 1 + (n >= 10) for n in range(30)}


def test_every_write_operation_continues_during_a_resize(tmp_path: Path) -> None:
    table = _created(tmp_path / "t")
    table.upsert(_table(range(20), 1))
    other = lakemark.open(tmp_path / "t", multi_writer=FAST)
    resize = request_resize(table._table, SPLIT_ALL)
    assert resize is not None
    result = other.upsert(_table(range(10, 30), 2))
    assert result.upserts == 20
    assert result.files == len(other._table.store.read_commit(_newest(other)).write_stats)
    other.insert(_table(range(30, 35), 3))
    assert other.delete(["k0", "k1"]).deletes == 2
    assert other.delete(where="v = 3 and id < 'k32'").deletes == 2
    assert other.bulk_insert(_table(range(40, 45), 4).to_batches()).inserts == 5
    partial = pa.table({"id": ["k2", "k25"], "region": ["r", "r"], "v": pa.array([8, 9])})
    with suppress(lakemark.errors.HudiError):
        other.upsert(partial)
    expected = _values(other)
    assert expected["k40"] == 4
    resize.publish(resize.rewrite(RUNNER), dict)
    resize.stop_heartbeat()
    other.refresh()
    assert _values(other) == expected
    assert_in_buckets(other._table)
    assert other.metadata_differences() == []


def _newest(table: lakemark.Table) -> Instant:
    table.refresh()
    return table.timeline.completed()[-1]


def _created(path: Path, **options: Any) -> lakemark.Table:
    return lakemark.create(
        str(path),
        schema=SCHEMA,
        record_key=["id"],
        partition_by=["region"],
        ordering=["ts"],
        index="consistent_hashing",
        multi_writer=FAST,
        **{"buckets": 3, **options},
    )


def _table(numbers: Iterable[int], value: int) -> pa.Table:
    listed = [{"id": f"k{n}", "region": "r", "ts": value, "v": value} for n in numbers]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


def _values(table: lakemark.Table) -> dict[str, int]:
    rows = table.scan(columns=["id", "v"]).to_table().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["v"] for row in rows}


def _both_kinds(*, has_metadata_table: bool) -> TableWriter:
    storage = new_storage()
    make(storage) if has_metadata_table else make_plain(storage)
    to = ring_writer(storage)
    commit(to, some(1))
    return to


def check_read(to: TableWriter, expected: dict[str, tuple[int, int]]) -> None:
    """Check the rows, and also those that a listing of storage gives."""
    if to.table.properties.metadata_partitions:
        check(to, expected)
        plain = copy_of(to.table.storage)
        drop_metadata_table(ring_writer(plain).table)
        assert contents(plain) == expected
    else:
        assert contents(to.table.storage) == expected


each_listing = pytest.mark.parametrize("has_metadata_table", [True, False])


@each_listing
def test_the_copies_stay_if_an_attempt_to_execute_the_resize_died(
    has_metadata_table: bool,
) -> None:
    to = _both_kinds(has_metadata_table=has_metadata_table)
    resize = requested(ring_writer(to.table.storage))
    resize.rewrite(RUNNER)
    commit(to, some(2, range(10, 40)))
    resize.stop_heartbeat()
    copies = {one.path for one in _logs_of_new_groups(to) if ".log." in one.path}
    assert copies
    assert to.resize_if_due(None, RUNNER)
    assert copies <= {one.path for one in to.table.storage.list_tree("")}
    check_read(to, rows_of(*some(1), *some(2, range(10, 40))))


@each_listing
@pytest.mark.parametrize("is_archived", [False, True])
def test_copies_of_a_commit_that_died_are_not_read(
    has_metadata_table: bool, is_archived: bool
) -> None:
    """They are read neither after the resize, nor after a metadata table was built during it."""
    to = _both_kinds(has_metadata_table=has_metadata_table)
    dead = ring_writer(to.table.storage)
    resize = requested(ring_writer(to.table.storage))
    commit(to, some(2, range(5, 25)))
    expected = rows_of(*some(1), *some(2, range(5, 25)))
    paths = set(data_files(to.table.storage))
    write_files(dead, some(3, range(30)))
    paths = {*data_files(to.table.storage)} - paths
    check_read(to, expected)
    if has_metadata_table:
        rebuild_metadata_table(to.table)
    check_read(to, expected)
    resize.publish(resize.rewrite(RUNNER), dict)
    resize.stop_heartbeat()
    check_read(to, expected)
    if is_archived:
        for ts in (4, 5, 6):
            commit(to, some(ts, [1]))
            expected |= rows_of(*some(ts, [1]))
        archive(to.table, ArchivalPolicy(1, 2), CleaningPolicy(commits=1))
        check_read(to, expected)
    assert paths <= {*data_files(to.table.storage)}
    dead.abandon()
    assert paths.isdisjoint(data_files(to.table.storage))
    to = ring_writer(to.table.storage)
    to.recover()
    assert not to.table.store.load().pending()
    check_read(to, expected)
    commit(to, some(9, range(3)))
    check_read(to, expected | rows_of(*some(9, range(3))))


def test_a_metadata_table_that_is_built_during_a_resize_lists_the_copies() -> None:
    to = written()
    resize = requested(ring_writer(to.table.storage))
    commit(to, some(2, range(10, 40)))
    expected = rows_of(*some(1), *some(2, range(10, 40)))
    rebuild_metadata_table(to.table)
    check(to, expected)
    resize.publish(resize.rewrite(RUNNER), dict)
    resize.stop_heartbeat()
    check(to, expected)
    rebuild_metadata_table(to.table)
    check(to, expected)


@each_listing
@pytest.mark.parametrize("when", ["pending", "completed", "compacted", "archived"])
def test_copies_are_no_orphans(when: str, has_metadata_table: bool) -> None:
    to = _both_kinds(has_metadata_table=has_metadata_table)
    abandoned(ring_writer(to.table.storage))
    commit(to, some(2, range(10, 40)))
    if when != "pending":
        assert to.resize_if_due(None, RUNNER)
    if when == "compacted":
        to.compact_if_due(CompactionPolicy(1), RUNNER)
    if when == "archived":
        for ts in (4, 5, 6):
            commit(to, some(ts, [1]))
        archive(to.table, ArchivalPolicy(1, 2), CleaningPolicy(commits=1))
    before = contents(to.table.storage)
    later = datetime.now(UTC) + timedelta(days=30)
    assert find_orphans(to.table, SHORTEST_AGE, later) == []
    assert remove_orphans(to.table, SHORTEST_AGE, later) == []
    check_read(to, before)


@each_listing
@pytest.mark.parametrize("when", ["pending", "completed"])
def test_the_rollback_of_a_doubled_commit_removes_its_copies(
    when: str, has_metadata_table: bool
) -> None:
    to = _both_kinds(has_metadata_table=has_metadata_table)
    abandoned(ring_writer(to.table.storage))
    commit(to, some(2, range(5, 25)))
    expected = rows_of(*some(1), *some(2, range(5, 25)))
    later = commit(to, some(3, range(10, 40)))
    if when != "pending":
        assert to.resize_if_due(None, RUNNER)
    roll_back_named(to.table.context, later.requested_at)
    to = ring_writer(to.table.storage)
    to.recover()
    check_read(to, expected)
    to.resize_if_due(None, RUNNER)
    check_read(to, expected)


def test_a_truncated_copy_is_not_compacted() -> None:
    to = written()
    abandoned(ring_writer(to.table.storage))
    commit(to, some(2, range(10, 40)))
    copy = next(one for one in _logs_of_new_groups(to) if ".log." in one.path)
    assert to.resize_if_due(None, RUNNER)
    content = to.table.storage.read(copy.path)
    to.table.storage.put(copy.path, content[:-10])
    with pytest.raises(CorruptData, match="its commit wrote"):
        to.compact_if_due(CompactionPolicy(1), RUNNER)


def test_a_partition_lives_from_the_last_copied_commit() -> None:
    to = written()
    planned = abandoned(ring_writer(to.table.storage))
    done = commit(to, some(2, range(10, 40)))
    assert to.resize_if_due(None, RUNNER)
    assert planned.requested_at < done.requested_at
    times = last_commits(to.table.view())
    assert set(times) == set(REGIONS)
    assert all(time >= done.requested_at for time in times.values())


_numbers = st.lists(st.integers(0, 30), min_size=1, max_size=8, unique=True)
_steps = st.one_of(
    st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), _numbers),
    st.sampled_from(["split", "merge", "rewrite", "publish", "crash", "execute"]),
    st.sampled_from(["publish", "compact", "compact logs", "clean", "archive", "restart"]),
    st.sampled_from(["roll back", "remove plan", "restore", "savepoint"]),
    st.sampled_from(["rebuild metadata", "drop metadata", "validate", "remove orphans", "die"]),
)


@dataclass
class _History:
    """A table, and the rows that it should have. Later changes have greater ordering values."""

    storage: Storage = field(default_factory=new_storage)
    states: list[tuple[Instant, dict[str, tuple[int, int]], list[Row]]] = field(
        default_factory=list
    )
    ts: int = 0
    resize: GroupReplacement[Any] | None = None
    stats: list[Any] | None = None
    is_complete: bool = True

    def __post_init__(self) -> None:
        make(self.storage)
        self.to = ring_writer(self.storage)
        self.resizer = ring_writer(self.storage)

    @property
    def expected(self) -> dict[str, tuple[int, int]]:
        return self.states[-1][1] if self.states else {}

    def do(self, step: Any) -> None:
        if isinstance(step, str):
            self._run(step)
            return
        self.ts += 1
        deletes = step[0] == "delete"
        rows = (some_deletes if deletes else some)(self.ts, step[1])
        try:
            done = commit(self.to, rows)
        except (ClusteringExecuted, ResizePlanned):  # rows of a bucket that had none
            self.to.abandon()
            return
        after = {key: row for key, row in self.expected.items() if key not in rows_of(*rows)}
        after |= {} if deletes else rows_of(*rows)
        self.states.append((done, after, [] if deletes else rows))

    def _run(self, step: str) -> None:
        match step:
            case "split" | "merge" if self.resize is None:
                self.resizer.table.refresh()
                if not self.resizer.table.timeline.pending():
                    few = len(self.resizer.table.view().latest_slices()) < 16
                    policy = SPLIT_ALL if step == "split" and few else MERGE_ALL
                    self.resize = request_resize(self.resizer.table, policy)
            case "rewrite" if self.resize is not None:
                self.stats = self.resize.rewrite(RUNNER)
            case "publish" if self.resize is not None:
                self.resize.publish(self.stats or self.resize.rewrite(RUNNER), dict)
                self._crash()
            case "crash":
                self._crash()
            case "execute":
                self._crash()
                self.to.table.refresh()
                self.to.resize_if_due(None, RUNNER)
            case "compact":
                self.to.compact_if_due(CompactionPolicy(1), RUNNER)
            case "compact logs":
                compact_logs_if_due(self.to.table, RUNNER, 2)
            case "clean":
                self.is_complete = False
                clean(self.to.table, CleaningPolicy(commits=1))
            case "archive":
                self.is_complete = False
                archive(self.to.table, ArchivalPolicy(2, 3), CleaningPolicy(commits=1))
            case "restart":
                self.to = ring_writer(self.storage)
                self.to.recover()
            case "roll back" | "remove plan" | "restore" | "savepoint":
                self._undo(step)
            case "rebuild metadata":
                rebuild_metadata_table(ring_writer(self.storage).table)
            case "drop metadata":
                drop_metadata_table(ring_writer(self.storage).table)
            case "validate":
                self._check_metadata_table()
            case "remove orphans":
                later = datetime.now(UTC) + timedelta(days=30)
                remove_orphans(ring_writer(self.storage).table, SHORTEST_AGE, later)
            case "die":
                self._die()

    def _die(self) -> None:
        """Leave the files of a commit whose process has died."""
        dead = ring_writer(self.storage)
        with suppress(ClusteringExecuted, ResizePlanned):
            write_files(dead, some(self.ts + 1, range(8)))

    def _check_metadata_table(self) -> None:
        table = ring_writer(self.storage).table
        if table.properties.metadata_partitions:
            assert metadata_differences(table) == []

    def _undo(self, step: str) -> None:
        self._crash()
        table = self.to.table
        table.refresh()
        with suppress(Refused, InvalidConfig):  # an archived commit, or one with a savepoint
            if step == "roll back" and self.states:
                roll_back_named(table.context, self.states[-1][0].requested_at)
                self.states.pop()
            elif step == "remove plan":
                for instant, _ in pending_resizes(table):
                    roll_back_named(table.context, instant.requested_at)
                    self.is_complete = False
            elif step == "restore" and self.states:
                position = len(self.states) // 2
                restore_table(table, self.states[position][0].requested_at)
                del self.states[position + 1 :]
                self.is_complete = False
            elif step == "savepoint" and self.states:
                create_savepoint(table, self.states[-1][0].requested_at, "test")
        self._run("restart")

    def _crash(self) -> None:
        if self.resize is not None:
            self.resize.stop_heartbeat()
        self.resize, self.stats = None, None

    def check(self) -> None:
        if not self.states and not ring_writer(self.storage).table.timeline.completed(*COMMITS):
            return  # all commits were rolled back, so the table has no columns
        assert contents(self.storage) == self.expected
        table = ring_writer(self.storage).table
        for (before, _, _), (done, _, rows) in pairwise(self.states[-4:]):
            wanted = sorted((row.id, row.v) for row in rows)
            with suppress(LostChanges, NotFound):  # the copies were deleted, or it was archived
                found = table.rows_of(done).to_reader().read_all().to_pylist()
                assert sorted((row["id"], row["v"]) for row in found) == wanted
            returned = since(table, before.completed_at or "", done.completed_at)
            assert len({key for key, _ in returned}) == len(returned)
            assert returned == wanted or not self.is_complete

    def check_files(self) -> None:
        self._run("restart")
        table = self.to.table
        if self.states:
            assert_in_buckets(table)
        self._check_metadata_table()


@given(st.lists(_steps, max_size=10))
@settings(max_examples=examples(25), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_no_row_is_lost_or_doubled_whatever_happens_during_resizes(steps: list[Any]) -> None:
    history = _History()
    history.do(("upsert", [1, 2, 3, 4, 5]))
    for step in steps:
        history.do(step)
        history.check()
    history.check_files()
