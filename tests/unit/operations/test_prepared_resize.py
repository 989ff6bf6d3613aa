"""Buckets are prepared on local disk while commits continue, and then split or merged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.config.merge_settings import PartialUpdateMode
from lakemark.config.table_properties import PROPERTIES_PATH, LoggingMode, MergeMode
from lakemark.errors import Unsupported
from lakemark.execution.runner import Cancelled, LocalRunner
from lakemark.model.changes import WRITTEN_COLUMNS, ChangeKind
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.written_columns import own_columns, pack
from lakemark.operations.clean import clean
from lakemark.operations.compact_logs import compact_logs
from lakemark.operations.group_replacement import GroupReplacement
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.prepared_resize import (
    PreparedResize,
    begin_preparation,
    publish_prepared,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.services.bucket_preparation import PreparedRewriter
from lakemark.services.bucket_rewriter import BucketRewriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.clustering import PlanOutdated
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.resize_plan import ResizePolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.transaction.rollback import roll_back_named
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import divide
from tests.depth import examples
from tests.rings import FIRST_BUCKETS, MERGE_ALL, SPLIT_ALL, assert_in_buckets, ring_writer
from tests.table_services import as_of, make_plain, new_storage, since
from tests.tables import Row, changes, commit, contents, make, spec, writer

RUNNER = LocalRunner(1)
REGIONS = ("north", "south")

#: The versions in which the name of a log contains its commit.
VERSIONS = [one for one in WRITTEN if not one.logs_name_their_slice]

each_version = pytest.mark.parametrize("version", VERSIONS)


def some(ts: int, numbers: Iterable[int], kind: ChangeKind = ChangeKind.UPSERT) -> list[Row]:
    return [Row(f"k{n}", ts, ts * 100 + n, REGIONS[n % 2], kind) for n in numbers]


def written(version: FormatVersion = FormatVersion.V9, *, metadata: bool = True) -> TableWriter:
    """Return a table with base files and logs, some of whose rows are deleted."""
    storage = new_storage()
    make(storage, version=version) if metadata else make_plain(storage, version=version)
    to = ring_writer(storage)
    commit(to, some(5, range(40)))
    commit(to, some(6, range(0, 60, 3)))
    commit(to, some(7, range(5), ChangeKind.DELETE))
    return to


def prepare(to: TableWriter, folder: Path, policy: ResizePolicy = SPLIT_ALL) -> PreparedResize:
    preparation = begin_preparation(to.table, policy)
    assert preparation is not None
    return preparation.run(folder)


def published(to: TableWriter, prepared: PreparedResize) -> Instant:
    ((instant, _),) = publish_prepared(to.table, prepared)
    return instant


def values(rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
    return {row.id: (row.ts, row.v) for row in rows}


@each_version
def test_changes_after_the_preparation_are_in_the_new_buckets(
    version: FormatVersion, tmp_path: Path
) -> None:
    to = written(version)
    storage = to.table.storage
    before = set(to.table.timeline.instants)
    prepared = prepare(to, tmp_path)
    assert set(to.table.store.load().instants) == before, "nothing is on the timeline"
    newest = commit(to, some(8, range(20, 70)))
    commit(to, some(9, (30, 31), ChangeKind.DELETE))
    expected = contents(storage)
    resized = published(to, prepared)
    assert contents(storage) == expected
    assert len(to.table.view().latest_slices()) == 8
    assert any(one.base and one.logs for one in to.table.view().latest_slices())
    assert_in_buckets(to.table)
    assert metadata_differences(to.table) == []
    assert as_of(to.table, newest.requested_at) == expected | values(some(8, (30, 31)))
    changed = since(to.table, newest.completed_at or newest.requested_at)
    assert changed == [], "a resize changes no row"
    assert as_of(to.table, resized.requested_at) == expected
    commit(to, some(8, (30, 31, 32)))
    assert contents(storage) == expected | values(some(8, (32,))), "deletes still win"
    assert to.compact_if_due(CompactionPolicy(1), RUNNER)
    assert contents(storage) == expected | values(some(8, (32,)))
    clean(to.table, CleaningPolicy(commits=1))
    assert contents(ring_writer(storage).table.storage) == expected | values(some(8, (32,)))
    assert metadata_differences(to.table) == []


@each_version
def test_a_delete_before_the_preparation_wins_against_a_late_row_after_it(
    version: FormatVersion, tmp_path: Path
) -> None:
    to = written(version)
    storage, before = to.table.storage, contents(to.table.storage)
    assert "k0" not in before
    prepared = prepare(to, tmp_path)
    commit(to, some(6, range(3)))
    assert contents(storage) == before, "the delete has the ordering value 7"
    published(to, prepared)
    assert contents(storage) == before
    commit(to, some(6, range(3)))
    assert contents(storage) == before


@each_version
def test_rounds_prepare_the_changes_of_keys_that_change_again(
    version: FormatVersion, tmp_path: Path
) -> None:
    """In each round, the change of a key is decided by all earlier ones."""
    to = written(version)
    storage = to.table.storage
    prepared = prepare(to, tmp_path)
    rounds = [
        some(9, range(20), ChangeKind.DELETE),
        some(9, range(10)),  # a later row with the same ordering value
        [*some(8, range(20)), *some(10, range(30, 50))],
        some(10, (0, 30, 31), ChangeKind.DELETE),
    ]
    for number, rows in enumerate(rounds):
        commit(to, rows)
        assert prepared.preparation.added_log_bytes(to.table) > 0
        if number < 3:
            folder = tmp_path / str(number)
            folder.mkdir()
            prepared = prepared.begin_round(to.table).run(folder)
            assert prepared.preparation.added_log_bytes(to.table) == 0
    expected = contents(storage)
    published(to, prepared)
    assert contents(storage) == expected
    assert_in_buckets(to.table)
    assert metadata_differences(to.table) == []
    commit(to, some(8, range(20)))
    assert contents(storage) == expected
    assert all(len(one.logs) <= 2 for one in to.table.view().latest_slices())


@each_version
def test_the_latest_change_wins_in_a_table_without_event_times(
    version: FormatVersion, tmp_path: Path
) -> None:
    storage = new_storage()
    by_commit = replace(spec(version=version), merge_mode=MergeMode.COMMIT_TIME)
    storage.create(PROPERTIES_PATH, by_commit.to_properties().to_bytes())
    to = ring_writer(storage)
    commit(to, some(9, range(20)))
    commit(to, some(8, range(5), ChangeKind.COMMIT_TIME_DELETE))
    prepared = prepare(to, tmp_path)
    for number, rows in enumerate(
        [
            some(7, range(10)),
            some(6, range(8), ChangeKind.COMMIT_TIME_DELETE),
            [*some(5, range(6)), *some(5, range(6, 9), ChangeKind.COMMIT_TIME_DELETE)],
            some(4, (0, 19)),
        ]
    ):
        commit(to, rows)
        if number % 2:
            folder = tmp_path / str(number)
            folder.mkdir()
            prepared = prepared.begin_round(to.table).run(folder)
    expected = contents(storage)
    assert expected == values(
        [*some(9, range(9, 19)), *some(5, range(1, 6)), *some(4, (0, 19))]
    ) | (values(some(7, (9,))))
    published(to, prepared)
    assert contents(storage) == expected
    assert_in_buckets(to.table)


@each_version
def test_prepared_files_equal_those_that_are_written_directly(
    version: FormatVersion, tmp_path: Path
) -> None:
    to = written(version)
    folders = [tmp_path / name for name in ("prepared", "direct")]
    for folder in folders:
        folder.mkdir()
    prepared = prepare(to, folders[0])
    plan = prepared.preparation.plan_now
    resize = GroupReplacement.request(to.table, lambda: plan(to.table), prepared.check)
    assert resize is not None
    stats = {stat.path: stat for stat in resize.rewrite(RUNNER)}
    rewriter = resize.rewriter
    assert isinstance(rewriter, PreparedRewriter)
    local = open_storage(StorageLocation(str(folders[1])))
    target = replace(rewriter.context).use_storage(local)
    write = BucketRewriter(rewriter.context, rewriter.key_fields, rewriter.log_sizes, target)
    expected = {one.path: one for task in resize.checked.tasks for one in write(task)}
    assert stats == expected
    assert len(stats) == 8
    for path, stat in expected.items():
        assert path is not None
        assert to.table.storage.read(path) == local.read(path)
        assert stat.column_ranges is not None
        ranges = stats[path].column_ranges
        assert ranges is not None
        assert ranges.sizes == stat.column_ranges.sizes
        assert ranges.bounds == stat.column_ranges.bounds
    resize.stop_heartbeat()


def _compacted(to: TableWriter) -> None:
    assert to.compact_if_due(CompactionPolicy(1), RUNNER)


def _compaction_planned(to: TableWriter) -> None:
    assert to.compactions_to_do(CompactionPolicy(1))


def _rolled_back(to: TableWriter) -> None:
    roll_back_named(to.table.context, to.table.timeline.completed()[-1].requested_at)
    to.table.refresh()


def _resized_by_another(to: TableWriter) -> None:
    assert ring_writer(to.table.storage).resize_if_due(SPLIT_ALL, RUNNER)
    to.table.refresh()


def _with_another_column(to: TableWriter) -> None:
    import pyarrow as pa

    other = ring_writer(to.table.storage)
    other.evolve(other.schema.append(pa.field("w", pa.int64())))
    commit(other, some(8, range(3)))
    to.table.refresh()


@each_version
@pytest.mark.parametrize(
    "change",
    [
        _compacted,
        _compaction_planned,
        _rolled_back,
        _resized_by_another,
        _with_another_column,
    ],
)
def test_an_outdated_preparation_is_not_published(
    version: FormatVersion, change: Any, tmp_path: Path
) -> None:
    to = written(version)
    prepared = prepare(to, tmp_path)
    assert prepared.preparation.find_outdated(to.table) is None
    change(to)
    before, instants = contents(to.table.storage), to.table.store.load().instants
    assert prepared.preparation.find_outdated(to.table)
    assert publish_prepared(to.table, prepared) == []
    assert to.table.store.load().instants == instants
    assert contents(to.table.storage) == before


def test_nothing_is_published_while_a_write_is_pending(tmp_path: Path) -> None:
    to = written()
    prepared = prepare(to, tmp_path)
    other = ring_writer(to.table.storage)
    other.begin()
    to.table.refresh()
    assert begin_preparation(to.table, SPLIT_ALL) is None
    assert publish_prepared(to.table, prepared) == []
    assert prepared.preparation.find_outdated(to.table) is None
    other.cancel()
    assert publish_prepared(to.table, prepared)


def test_a_log_compaction_does_not_outdate_a_preparation(tmp_path: Path) -> None:
    to = written(metadata=False)
    prepared = prepare(to, tmp_path)
    commit(to, some(8, range(50)))
    expected = contents(to.table.storage)
    assert compact_logs(to.table, RUNNER, 2)
    published(to, prepared)
    assert contents(to.table.storage) == expected
    assert_in_buckets(to.table)


@each_version
def test_the_next_writer_executes_a_plan_whose_prepared_files_are_lost(
    version: FormatVersion, tmp_path: Path
) -> None:
    to = written(version)
    prepared = prepare(to, tmp_path)
    commit(to, some(8, range(20, 70)))
    before, plan = contents(to.table.storage), prepared.preparation.plan_now
    resize = GroupReplacement.request(to.table, lambda: plan(to.table), prepared.check)
    assert resize is not None
    assert any(not stat.is_base_file for stat in resize.rewrite(RUNNER)), "a log was written"
    resize.stop_heartbeat()
    other = ring_writer(to.table.storage)
    other.recover()
    assert contents(to.table.storage) == before
    ((instant, metadata),) = other.resize_if_due(None, RUNNER)
    assert instant.requested_at == resize.execution.instant.requested_at
    assert all(stat.is_base_file for stat in metadata.write_stats)
    assert contents(to.table.storage) == before
    assert not any(one.logs for one in other.table.view().latest_slices())
    assert metadata_differences(other.table) == []


@each_version
@pytest.mark.parametrize("in_round", [False, True])
@pytest.mark.parametrize(
    ("before", "later"),
    [
        ([(ChangeKind.COMMIT_TIME_DELETE, 9)], [(ChangeKind.UPSERT, 3)]),
        (
            [(ChangeKind.UPSERT, 9)],
            [(ChangeKind.COMMIT_TIME_DELETE, 9), (ChangeKind.UPSERT, 7)],
        ),
    ],
)
def test_a_late_row_after_a_delete_without_ordering_value_is_not_prepared(
    version: FormatVersion, before: Any, later: Any, *, in_round: bool, tmp_path: Path
) -> None:
    """Whether such a row is visible depends on the old base file."""
    to = written(version)
    storage = to.table.storage
    for kind, ts in before:
        commit(to, some(ts, (10,), kind))
    prepared = prepare(to, tmp_path)
    for number, (kind, ts) in enumerate(later):
        commit(to, some(ts, (10,), kind))
        if in_round and number < len(later) - 1:
            folder = tmp_path / str(number)
            folder.mkdir()
            prepared = prepared.begin_round(to.table).run(folder)
    expected = contents(storage)
    assert publish_prepared(to.table, prepared) == []
    assert contents(storage) == expected
    assert to.resize_if_due(None, RUNNER), "the plan is executed without the prepared files"
    assert contents(storage) == expected
    assert_in_buckets(to.table)
    assert metadata_differences(to.table) == []


@each_version
def test_a_published_resize_can_be_rolled_back(version: FormatVersion, tmp_path: Path) -> None:
    to = written(version)
    prepared = prepare(to, tmp_path)
    commit(to, some(8, range(20, 70)))
    before = contents(to.table.storage)
    resized = published(to, prepared)
    roll_back_named(to.table.context, resized.requested_at)
    to.table.refresh()
    assert contents(to.table.storage) == before
    assert len(to.table.view().latest_slices()) == 2 * FIRST_BUCKETS
    commit(to, some(9, range(3)))
    assert_in_buckets(to.table)
    assert metadata_differences(to.table) == []


def test_a_cancelled_preparation_ends_early(tmp_path: Path) -> None:
    preparation = begin_preparation(written().table, SPLIT_ALL)
    assert preparation is not None
    with pytest.raises(Cancelled):
        preparation.run(tmp_path, lambda: True)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
@pytest.mark.parametrize("suffix", [".parquet", ".log.1_*"])
def test_nothing_is_published_if_a_prepared_file_is_lost(
    damage: Callable[[Path], object], suffix: str, tmp_path: Path
) -> None:
    to = written()
    prepared = prepare(to, tmp_path)
    commit(to, some(8, range(50)))
    prepared = prepared.begin_round(to.table).run(tmp_path)
    before, instants = contents(to.table.storage), to.table.store.load().instants
    damage(next(path for path in tmp_path.rglob(f"*{suffix}") if path.stat().st_size))
    assert publish_prepared(to.table, prepared) == []
    assert to.table.store.load().instants == instants
    assert contents(to.table.storage) == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("in_round", [False, True])
def test_nothing_is_published_if_the_kept_deletes_are_lost(
    damage: Callable[[Path], object], *, in_round: bool, tmp_path: Path
) -> None:
    """Without the deletes, older rows would be visible again."""
    to = written()
    prepared = prepare(to, tmp_path)
    for path in [*tmp_path.rglob("*.arrows")]:
        damage(path)
    commit(to, some(6, range(5)))
    before, instants = contents(to.table.storage), to.table.store.load().instants
    assert "k0" not in before, "the delete has the ordering value 7"
    if in_round:
        with pytest.raises(PlanOutdated, match="was removed or changed by another program"):
            prepared.begin_round(to.table).run(tmp_path)
    assert prepared.find_outdated(to.table) is not None
    assert publish_prepared(to.table, prepared) == []
    assert to.table.store.load().instants == instants
    assert contents(to.table.storage) == before


@pytest.mark.parametrize("suffix", [".parquet", ".log.1_*"])
def test_a_plan_is_executed_without_prepared_files_that_are_lost_while_they_are_copied(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = written()
    prepared = prepare(to, tmp_path)
    commit(to, some(8, range(50)))
    prepared = prepared.begin_round(to.table).run(tmp_path)
    before, check = contents(to.table.storage), PreparedResize.check

    def lose(self: PreparedResize, *arguments: Any) -> Any:
        for path in [*tmp_path.rglob(f"*{suffix}")]:
            path.unlink()
        return check(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(PreparedResize, "check", lose)
        assert publish_prepared(to.table, prepared) == []
    assert prepared.find_outdated(to.table) is not None
    assert contents(to.table.storage) == before
    assert to.resize_if_due(None, RUNNER), "the plan is executed by encoding all rows"
    assert contents(to.table.storage) == before
    assert_in_buckets(to.table)
    assert metadata_differences(to.table) == []


def test_partial_rows_are_not_prepared(tmp_path: Path) -> None:
    """Columns of a late partial row may be visible or not, depending on the base file."""
    to = written()
    prepared = prepare(to, tmp_path)
    _commit_without_v(to, some(9, (10,)))
    before = contents(to.table.storage)
    assert publish_prepared(to.table, prepared) == []
    assert to.resize_if_due(None, RUNNER), "the plan is executed without the prepared files"
    assert contents(to.table.storage) == before
    assert before["k10"] == (9, 510)


def _commit_without_v(to: TableWriter, rows: list[Row]) -> None:
    made, context = changes(rows), to.begin()
    flags = np.array([[name != "v" for name in own_columns(made)]] * len(rows), np.bool_)
    made = made.append_column(WRITTEN_COLUMNS, pack(flags))
    placed = to.assigner.assign(context, made)
    parts = divide(made, placed.numbers)
    stats = [write_file_group(context, placed.assignment.task(at), [part]) for at, part in parts]
    to.commit([stat for of_bucket in stats for stat in of_bucket], {})


def test_tables_that_merge_columns_one_by_one_are_refused() -> None:
    storage = new_storage()
    merged = replace(spec(), partial_update=PartialUpdateMode.IGNORE_DEFAULTS)
    storage.create(PROPERTIES_PATH, merged.to_properties().to_bytes())
    to = ring_writer(storage)
    commit(to, some(1, range(10)))
    with pytest.raises(Unsupported, match="columns one by one"):
        begin_preparation(to.table, SPLIT_ALL)


def test_tables_whose_logs_cannot_be_merged_are_refused() -> None:
    storage = new_storage()
    logged = replace(spec(), cdc=LoggingMode.DATA_BEFORE_AFTER)
    storage.create(PROPERTIES_PATH, logged.to_properties().to_bytes())
    to = ring_writer(storage)
    commit(to, some(1, range(10)))
    with pytest.raises(Unsupported, match="CDC"):
        begin_preparation(to.table, SPLIT_ALL)
    with pytest.raises(Unsupported, match="old version"):
        begin_preparation(written(FormatVersion.V6).table, SPLIT_ALL)


_numbers = st.lists(st.integers(0, 20), min_size=1, max_size=8, unique=True)
_steps = st.one_of(
    st.tuples(
        st.sampled_from([ChangeKind.UPSERT, ChangeKind.UPSERT, ChangeKind.DELETE]),
        st.integers(1, 9),
        _numbers,
    ),
    st.sampled_from(["prepare split", "prepare merge", "round", "publish", "publish"]),
    st.sampled_from(["compact", "compact logs", "roll back", "clean", "restart", "split"]),
)


@dataclass
class _History:
    """A table, and the changes that decide about its rows.

    Attributes:
        newest: the change of each key that has won; a delete until its bucket gets a base file.
        changed: the keys that were changed since the preparation.
        before: for each commit, what ``newest`` was before it.
    """

    folder: Path
    version: FormatVersion
    storage: Storage = field(default_factory=new_storage)
    newest: dict[str, Row] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    prepared: PreparedResize | None = None
    before: dict[str, dict[str, Row]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make(self.storage, version=self.version)
        self.to = ring_writer(self.storage)

    @property
    def rows(self) -> dict[str, tuple[int, int]]:
        return values(one for one in self.newest.values() if one.kind is ChangeKind.UPSERT)

    def do(self, step: Any) -> None:
        if not isinstance(step, str):
            kind, ts, numbers = step
            self._write(some(ts, numbers, kind))
        elif step.startswith("prepare"):
            self._prepare(SPLIT_ALL if step == "prepare split" else MERGE_ALL)
        elif step == "publish":
            self._publish()
        elif step == "round":
            self._round()
        else:
            self._run(step)

    def _write(self, rows: list[Row]) -> None:
        before = dict(self.newest)
        self.before[commit(self.to, rows).requested_at] = before
        for row in rows:
            self.changed.add(row.id)
            known = self.newest.get(row.id)
            if known is None or row.ts >= known.ts:
                self.newest[row.id] = row

    def _prepare(self, policy: ResizePolicy) -> None:
        if len(self.to.table.view().latest_slices()) > 8:
            policy = MERGE_ALL
        preparation = begin_preparation(self.to.table, policy)
        if preparation is not None:
            folder = self.folder / str(len(list(self.folder.iterdir())))
            folder.mkdir()
            self.prepared, self.changed = preparation.run(folder), set()

    def _is_current(self, prepared: PreparedResize) -> bool:
        return prepared.preparation.find_outdated(self.to.table) is None

    def _round(self) -> None:
        if self.prepared is not None and self._is_current(self.prepared):
            folder = self.folder / str(len(list(self.folder.iterdir())))
            folder.mkdir()
            self.prepared = self.prepared.begin_round(self.to.table).run(folder)
            assert self.prepared.preparation.added_log_bytes(self.to.table) == 0

    def _publish(self) -> None:
        prepared, self.prepared = self.prepared, None
        if prepared is None:
            return
        is_current = self._is_current(prepared)
        done = publish_prepared(self.to.table, prepared)
        assert bool(done) == is_current
        if done:
            replaced = prepared.preparation.plan.groups
            self._forget_deletes({one.partition_path for one in replaced}, self.changed)

    def _forget_deletes(self, regions: Iterable[str], kept: Iterable[str] = ()) -> None:
        """Forget the deletes that are in no log any more."""
        gone = [
            key
            for key, row in self.newest.items()
            if row.kind is not ChangeKind.UPSERT and row.region in regions and key not in kept
        ]
        for key in gone:
            del self.newest[key]

    def _run(self, step: str) -> None:
        to = self.to
        match step:
            case "compact":
                if to.compact_if_due(CompactionPolicy(1), RUNNER):
                    self._forget_deletes(REGIONS)
            case "compact logs":
                compact_logs(to.table, RUNNER, 2)
            case "clean":
                clean(to.table, CleaningPolicy(commits=1))
            case "split":
                if len(to.table.view().latest_slices()) <= 8 and to.resize_if_due(
                    SPLIT_ALL, RUNNER
                ):
                    self._forget_deletes(REGIONS)
            case "roll back":
                self._roll_back()
            case _:
                self.to = ring_writer(self.storage)
                self.to.recover()

    def _roll_back(self) -> None:
        """Roll back the newest commit if it wrote rows and is not the first one."""
        newest = self.to.table.timeline.completed()[-1].requested_at
        if self.before.get(newest):
            roll_back_named(self.to.table.context, newest)
            self.to.table.refresh()
            self.newest = self.before.pop(newest)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ExitStack():
        yield lambda: tmp_path_factory.mktemp("prepared")


@given(st.sampled_from(VERSIONS), st.lists(_steps, max_size=14))
@settings(max_examples=examples(40), deadline=None)
def test_rows_are_those_of_the_changes(
    folders: Any, version: FormatVersion, steps: list[Any]
) -> None:
    history = _History(folders(), version)
    history.do((ChangeKind.UPSERT, 5, [*range(10)]))
    for step in steps:
        history.do(step)
        assert contents(history.storage) == history.rows
    table = writer(history.storage).table
    assert_in_buckets(table)
    assert metadata_differences(table) == []
