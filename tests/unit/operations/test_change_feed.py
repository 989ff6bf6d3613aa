"""A feed returns each commit once, and its changes lead from one snapshot to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple, cast
from uuid import uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.config.table_properties import LoggingMode
from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.feed_position import FeedPosition
from lakemark.model.format_version import FormatVersion
from lakemark.model.meta_columns import (
    META_COLUMNS,
    PARTITION_PATH,
    RECORD_KEY,
    without_meta_columns,
)
from lakemark.operations.change_feed import (
    ChangeFeed,
    ChangesRemoved,
    CommitUndone,
    FeedType,
    OrderChanged,
)
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.read.cdc import deletes_first
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.clock import add_to_instant
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.table_context import TableContext
from tests.depth import examples
from tests.golden.shared_tables import SharedTables
from tests.tables import Row, keys_of_two_buckets, make, write_files, writer
from tests.tables import commit as commit_rows
from tests.unit.operations.tables import FAST, SCHEMA, contents, rows

#: The late delete of a key of this table changed nothing, but Apache Hudi reports it.
_LATE_DELETES = {"v9_mor_cdc_data_before": 1, "v9_mor_cdc_data_before_after_compacted": 1}

KEYS, REGIONS = "abcd", ("north", "south")

#: The values of region, ts and v.
Content = tuple[str, int, int]


class Step(NamedTuple):
    """One operation on the table, with the keys (or regions) that it concerns.

    An upsert that is late loses to newer rows and deletes.
    """

    operation: str
    keys: frozenset[str] = frozenset()
    region: str = "north"
    is_late: bool = False


_WRITES = ("upsert", "upsert", "delete", "overwrite", "rollback")
_SERVICES = ("compact", "cluster", "clean", "read")
steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([*_WRITES, *_SERVICES]),
        st.frozensets(st.sampled_from(KEYS), min_size=1),
        st.sampled_from(REGIONS),
        st.booleans(),
    ),
    min_size=2,
    max_size=8,
)


@dataclass
class Reader:
    """Applies the changes of a feed to the rows that it has, and checks each change.

    Attributes:
        feed: the feed, of type ``CDC``.
        state: the rows by key.
        position: the position after the last commit that was read.
        read: the requested times of the commits that were read.
    """

    feed: ChangeFeed
    state: dict[str, Content] = field(default_factory=dict)
    position: FeedPosition = field(default_factory=lambda: FeedPosition("", ""))
    read: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, table: lakemark.Table) -> Reader:
        return cls(ChangeFeed(opened(table), FeedType.CDC))

    def catch_up(self) -> None:
        self.feed.refresh()
        for commit in self.feed.commits_after(self.position):
            for batch in self.feed.changes(commit):
                self._apply(batch)
            self.position = self.feed.position_after(commit, self.position)
            self.read.append(commit.requested_at)

    def _apply(self, batch: pa.RecordBatch) -> None:
        for change in batch.to_pylist():
            key, before, after = change["key"], change["before"], change["after"]
            assert self.state.pop(key, None) == content(before), change
            assert change["op"] == {(True, False): "d", (False, True): "i"}.get(
                (before is not None, after is not None), "u"
            )
            assert {image["region"] for image in (before, after) if image} == {change["partition"]}
            if after is not None:
                self.state[key] = cast(Content, content(after))


def content(image: dict[str, Any] | None) -> Content | None:
    return None if image is None else (image["region"], image["ts"], image["v"])


def opened(table: lakemark.Table) -> OpenTable:
    return open_table(StorageLocation(table.location))


def create(table_type: str, mode: str, change: str | None = None, **more: Any) -> lakemark.Table:
    """Create a table; with the partition change ``move``, upserts move rows."""
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        record_key="id",
        partition_by="region",
        ordering="ts",
        table_type=table_type,
        cdc=mode,
        multi_writer=FAST,
        **({"index": "lookup", "schema": SCHEMA} | more),
    )
    return lakemark.open(table.location, multi_writer=FAST, partition_change=change)


def take(table: lakemark.Table, step: Step, ts: int) -> None:
    match step.operation:
        case "upsert":
            ordering = ts - 2 if step.is_late else ts
            table.upsert(rows(*((key, step.region, ordering, ts) for key in sorted(step.keys))))
        case "overwrite":
            # Only keys of this partition, so that no key is in two partitions.
            held = [k for k, row in contents(table).items() if row[0] == step.region]
            table.insert_overwrite(rows(*((k, step.region, ts, ts) for k in held[:1])))
        case "delete":
            table.delete(sorted(step.keys))
        case "compact" if table.properties.is_merge_on_read:
            table.compact()
        case "cluster":
            table.cluster(sort_by="v")
        case "clean":
            table.clean(retain_commits=20)


@pytest.mark.parametrize("mode", [mode.lower() for mode in LoggingMode])
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@settings(max_examples=examples(6), deadline=None)
@given(history=steps)
def test_changes_lead_from_snapshot_to_snapshot(
    table_type: str, mode: str, history: list[Step]
) -> None:
    table = create(table_type, mode, change="move")
    table.upsert(rows(*((key, "north", 0, 0) for key in KEYS)))
    reader, times = Reader.of(table), count(1)
    for step in history:
        if step.operation == "read":
            reader.catch_up()
        elif step.operation == "rollback":
            commits = table.timeline.completed(*COMMITS)
            if not commits:
                continue
            newest = commits[-1]
            table.rollback(newest.requested_at)
            if newest.requested_at in reader.read:
                with pytest.raises(CommitUndone, match=newest.requested_at):
                    reader.catch_up()
                return
        else:
            take(table, step, next(times))
    reader.catch_up()
    assert reader.state == contents(table)
    assert len(reader.read) == len(set(reader.read))


@pytest.mark.parametrize(
    "name",
    [
        "v6_cow_cdc_data_before",
        "v9_cow_cdc",
        "v9_cow_cdc_data_before",
        "v9_cow_cdc_op_key_only",
        "v9_cow_cdc_replaced",
        "v9_mor_cdc_data_before",
        "v9_mor_cdc_data_before_after_compacted",
    ],
)
def test_typed_changes_of_apache_hudi_lead_to_its_snapshot(
    shared_tables: SharedTables, name: str
) -> None:
    golden = shared_tables[name]
    feed = ChangeFeed(golden.table, FeedType.CDC)
    state: dict[tuple[str, str], dict[str, Any]] = {}
    ops: Counter[tuple[str, str]] = Counter()
    for commit in feed.commits_after(feed.find_start("earliest")):
        for change in chain.from_iterable(batch.to_pylist() for batch in feed.changes(commit)):
            ops[commit.requested_at, change["op"]] += 1
            key = change["partition"], change["key"]
            assert state.pop(key, None) == change["before"]
            if change["after"] is not None:
                state[key] = change["after"]
    text = golden.table.changes("earliest").to_table().to_pylist()
    reported = Counter((change["ts_ms"], change["op"]) for change in text)
    assert reported >= ops
    assert (reported - ops).total() == _LATE_DELETES.get(name, 0)
    snapshot = {
        (row[PARTITION_PATH], row[RECORD_KEY]): {
            column: value for column, value in row.items() if column not in META_COLUMNS
        }
        for row in golden.table.scan().to_table().to_pylist()
    }
    assert state == snapshot


@pytest.mark.parametrize("name", ["v6_mor_compacted", "v9_cow_clustered", "v9_mor_rollback"])
def test_incremental_feed_returns_the_newest_rows_of_apache_hudi(
    shared_tables: SharedTables, name: str
) -> None:
    golden = shared_tables[name]
    feed = ChangeFeed(golden.table, FeedType.INCREMENTAL)
    newest: dict[str, dict[str, Any]] = {}
    for commit in feed.commits_after(feed.find_start("earliest")):
        for change in chain.from_iterable(batch.to_pylist() for batch in feed.changes(commit)):
            assert (change["op"], change["before"]) == ("upsert", None)
            row, known = change["after"], newest.get(change["key"])
            if known is None or known["ts"] <= row["ts"]:  # late rows are returned, too
                newest[change["key"]] = row
    columns = [RECORD_KEY, *without_meta_columns(golden.table.scan().schema).names]
    snapshot = golden.table.scan(columns=columns).to_table().to_pylist()
    rows_by_key = {row.pop(RECORD_KEY): row for row in snapshot}
    # Deletes are not returned.
    assert {key: newest.get(key) for key in rows_by_key} == rows_by_key


def test_commits_of_version_6_wait_for_a_pending_commit_that_was_requested_earlier() -> None:
    location = StorageLocation(f"memory://{uuid4().hex}/orders")
    storage = open_storage(location)
    make(storage, version=FormatVersion.V6)
    first = commit_rows(writer(storage), [Row("a")])
    pending = writer(storage, multi_writer=FAST)
    pending.begin()
    late = commit_rows(writer(storage, multi_writer=FAST), [Row("b")])
    feed = ChangeFeed(open_table(location), FeedType.INCREMENTAL)
    start = feed.find_start("earliest")
    assert [one.requested_at for one in feed.commits_after(start)] == [first.requested_at]
    assert feed.find_start("latest") == FeedPosition.after(feed.commits_after(start)[0])
    assert pending.pending_instant is not None
    assert pending.pending_instant < late.requested_at


def test_snapshot_has_exactly_the_commits_up_to_its_position_although_writers_overlap() -> None:
    location = StorageLocation(f"memory://{uuid4().hex}/orders")
    storage = open_storage(location)
    make(storage)
    one, other = keys_of_two_buckets()
    base = commit_rows(writer(storage), [Row(one), Row(other)])
    slow, pending = (writer(storage, multi_writer=FAST) for _ in range(2))
    files = write_files(slow, [Row(one, ts=2)])
    pending.begin()
    quick = commit_rows(writer(storage, multi_writer=FAST), [Row(other, ts=2)])
    feed = ChangeFeed(open_table(location), FeedType.INCREMENTAL)

    def snapshot() -> tuple[str, list[str]]:
        feed.refresh()
        found = feed.find_snapshot()
        assert found is not None
        later = [each.requested_at for each in feed.commits_after(found.position)]
        return found.as_of, later

    assert snapshot() == (base.requested_at, [quick.requested_at])
    done = slow.commit(files, {})
    # Up to the slow commit, the quick one would be missing, although it completed earlier.
    assert snapshot() == (base.requested_at, [quick.requested_at, done.requested_at])
    pending.abandon()
    assert snapshot() == (quick.requested_at, [])
    rows_of = feed.scan_snapshot(base.requested_at).to_table()
    assert rows_of.column_names[0] == RECORD_KEY
    assert sorted(rows_of.column("ts").to_pylist()) == [Row(one).ts] * 2


def test_position_is_a_commit_a_time_or_the_newest_commit() -> None:
    table = create("merge_on_read", "data_before")
    for ts in range(3):
        table.upsert(rows(("a", "north", ts, ts)))
    feed = ChangeFeed(opened(table), FeedType.CDC)
    everything = feed.commits_after(feed.find_start("earliest"))
    second = everything[1].completed_at
    assert second is not None
    assert feed.commits_after(feed.find_start(second)) == everything[2:]
    just_before = add_to_instant(second, timedelta(milliseconds=-1))
    assert feed.commits_after(feed.find_start(just_before)) == everything[1:]
    assert feed.commits_after(feed.find_start("latest")) == []
    with pytest.raises(InvalidConfig, match="not a time"):
        feed.find_start("tomorrow")


def test_feed_does_not_continue_after_a_commit_that_was_undone() -> None:
    table = create("copy_on_write", "data_before")
    table.upsert(rows(("a", "north", 1, 1)))
    reader = Reader.of(table)
    reader.catch_up()
    table.rollback(reader.read[-1])
    with pytest.raises(CommitUndone, match=reader.read[-1]):
        reader.catch_up()


@pytest.mark.parametrize("version", [8, 9])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_feed_continues_after_a_compaction_that_was_undone(version: int, start: str) -> None:
    table = create("merge_on_read", "data_before", version=version)
    for ts in range(2):
        table.upsert(rows(("a", "north", ts, ts)))
    compaction = table.compact().instants[-1]
    reader = Reader.of(table)
    if start == "latest":
        reader.position, reader.state = reader.feed.find_start("latest"), contents(table)
    reader.catch_up()
    assert reader.position.requested_at == compaction
    table.rollback(compaction)
    reader.catch_up()
    table.upsert(rows(("b", "south", 3, 3)))
    reader.catch_up()
    assert reader.state == contents(table)


def test_feed_does_not_continue_if_the_change_before_a_compaction_was_undone_with_it() -> None:
    table = create("merge_on_read", "data_before")
    kept, undone = (table.upsert(rows(("a", "north", ts, ts))).instant for ts in range(2))
    table.compact()
    reader = Reader.of(table)
    reader.catch_up()
    assert kept is not None
    table.restore(kept)
    with pytest.raises(CommitUndone, match=f"commit {undone}, .* after those of commit {kept}"):
        reader.catch_up()


def test_message_of_a_restore_names_the_newest_commit_that_was_read_and_still_exists() -> None:
    table = create("copy_on_write", "data_before")
    for ts in range(4):
        table.upsert(rows(("a", "north", ts, ts)))
    reader = Reader.of(table)
    reader.catch_up()
    table.restore(reader.read[1])
    table.upsert(rows(("a", "north", 5, 5)))
    with pytest.raises(CommitUndone, match=f"read after those of commit {reader.read[1]}") as found:
        reader.catch_up()
    assert found.value.requested_at == reader.read[-1]


def test_message_of_a_restore_to_the_empty_table_names_no_commit() -> None:
    table = create("copy_on_write", "data_before")
    table.upsert(rows(("a", "north", 1, 1)))
    reader = Reader.of(table)
    reader.catch_up()
    table.restore(to_empty=True)
    with pytest.raises(CommitUndone, match="all changes that were read, except") as found:
        reader.catch_up()
    assert found.value.newest_kept is None


def test_archived_and_cleaned_commits_are_refused_with_the_time_to_continue_after() -> None:
    table = create("copy_on_write", "data_before", index="bucket", buckets=1)
    for ts in range(8):
        table.upsert(rows(("a", "north", ts, ts)))
    feed = ChangeFeed(opened(table), FeedType.CDC)
    start = feed.find_start("earliest")
    second = feed.commits_after(start)[2]
    table.clean(retain_commits=2)
    feed.refresh()
    with pytest.raises(ChangesRemoved, match=f"{second.requested_at}.* no longer be read") as lost:
        list(feed.changes(second))
    assert lost.value.begin >= str(second.completed_at)
    first, *_ = feed.commits_after(feed.find_start(lost.value.begin))
    assert list(feed.changes(first))
    table.archive(retain_commits=2, min_commits=3, max_commits=4)
    feed.refresh()
    with pytest.raises(ChangesRemoved, match="was archived") as archived:
        feed.commits_after(start)
    remaining = feed.commits_after(feed.find_start(archived.value.begin))
    assert [
        content(c["after"]) for one in remaining for b in feed.changes(one) for c in b.to_pylist()
    ]


def clustered_and_archived(version: int, change_at: int | None) -> tuple[str, FeedPosition]:
    """Return a table with many clusterings, most of them archived, and the position before them.

    Before one of them, a row may change. After them, a row is inserted.
    """
    table = create("copy_on_write", "data_before", version=version)
    table.upsert(rows(("a", "north", 1, 2), ("b", "north", 2, 1)))
    start = ChangeFeed(opened(table), FeedType.CDC).find_start("latest")
    for number in range(8):
        if number == change_at:
            table.upsert(rows(("a", "north", 3, 3)))
        table.cluster(sort_by=("ts", "v")[number % 2])
    table.clean(retain_commits=2)
    table.archive(retain_commits=2, min_commits=3, max_commits=4)
    table.upsert(rows(("c", "south", 4, 4)))
    assert table.timeline.is_archived(start.requested_at)
    assert len(table.timeline.completed(*COMMITS)) < 8
    return table.location, start


@pytest.mark.parametrize("version", [6, 9])
def test_archived_clusterings_are_no_lost_changes(version: int) -> None:
    location, start = clustered_and_archived(version, change_at=None)
    for feed_type in FeedType:
        feed = ChangeFeed(open_table(StorageLocation(location)), feed_type)
        commits = feed.commits_after(start)
        changes = chain.from_iterable(b.to_pylist() for one in commits for b in feed.changes(one))
        assert [change["key"] for change in changes] == ["c"]
        # A time does not show that the archive still has all commits after it.
        feed = ChangeFeed(open_table(StorageLocation(location)), feed_type)
        with pytest.raises(ChangesRemoved, match="was archived"):
            feed.commits_after(feed.find_start(start.completed_at))


@pytest.mark.parametrize("version", [6, 9])
def test_archived_change_between_clusterings_is_lost(version: int) -> None:
    location, start = clustered_and_archived(version, change_at=3)
    for feed_type in FeedType:
        feed = ChangeFeed(open_table(StorageLocation(location)), feed_type)
        with pytest.raises(ChangesRemoved, match="was archived"):
            feed.commits_after(start)


def test_deletes_come_first_although_other_changes_wait_on_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deletes_first, "_IN_MEMORY_BYTES", 1)
    table = create("copy_on_write", "data_before", change="move")
    table.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    table.upsert(rows(("a", "south", 2, 2), ("b", "north", 2, 2)))
    feed = ChangeFeed(opened(table), FeedType.CDC)
    moving = feed.commits_after(feed.find_start("earliest"))[-1]
    changes = [change for batch in feed.changes(moving) for change in batch.to_pylist()]
    assert [change["op"] for change in changes] == ["d", "d", "i", "i"]
    assert {(c["key"], c["partition"]) for c in changes[:2]} == {("a", "north"), ("b", "south")}


def test_table_without_change_data_is_refused_at_once() -> None:
    table = create("merge_on_read", "data_before")
    plain = lakemark.create(
        f"memory://{uuid4().hex}/plain", schema=SCHEMA, record_key="id", multi_writer=FAST
    )
    assert ChangeFeed(opened(table), FeedType.CDC)
    with pytest.raises(InvalidConfig, match="keeps no change data"):
        ChangeFeed(opened(plain), FeedType.CDC)


@pytest.mark.parametrize("mode", ["data_before_after", "data_before", "op_key_only"])
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
def test_feed_with_automatic_keys_is_refused_at_once_if_changes_lack_them(
    table_type: str, mode: str
) -> None:
    table = lakemark.create(
        f"memory://{uuid4().hex}/orders",
        schema=SCHEMA,
        record_key=(),
        index="lookup",
        table_type=table_type,
        cdc=mode,
        multi_writer=FAST,
    )
    for name in ("a", "b"):
        table.insert(rows((name, "north", 1, 1)))
    table.delete(where="id = 'b'")
    if (table_type, mode) == ("copy_on_write", "data_before_after"):
        with pytest.raises(InvalidConfig, match="type incremental"):
            ChangeFeed(opened(table), FeedType.CDC)
        return
    feed = ChangeFeed(opened(table), FeedType.CDC)
    batches = chain.from_iterable(map(feed.changes, feed.commits_after(FeedPosition("", ""))))
    changes = [change for batch in batches for change in batch.to_pylist()]
    assert [change["op"] for change in changes] == ["i", "i", "d"]
    assert changes[1]["key"] == changes[2]["key"] != changes[0]["key"]


def test_late_rows_and_deletes_are_no_changes_of_a_merge_on_read_table() -> None:
    marked = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    table = create("merge_on_read", "data_before", schema=marked, index="bucket", buckets=1)

    def write(ts: Sequence[int], v: int, *, deletes: bool) -> None:
        given = rows(("a", "north", ts[0], v), ("b", "north", ts[1], v))
        table.upsert(given.append_column(marked.field(4), pa.array([deletes] * 2)))

    write([1, 4], 1, deletes=False)
    reader = Reader.of(table)
    reader.catch_up()
    write([2, 2], 2, deletes=True)
    write([1, 3], 3, deletes=False)
    reader.catch_up()
    assert reader.state == contents(table) == {"b": ("north", 4, 1)}


def test_commit_that_was_undone_is_noticed_although_older_commits_were_archived() -> None:
    table = create("copy_on_write", "data_before", index="bucket", buckets=1)
    for ts in range(4):
        table.upsert(rows(("a", "north", ts, ts)))
    reader = Reader.of(table)
    reader.catch_up()
    table.rollback(reader.read[-1])
    for ts in range(4, 8):
        table.upsert(rows(("a", "north", ts, ts)))
    table.clean(retain_commits=3)
    table.archive(retain_commits=3, min_commits=3, max_commits=4)
    assert table.timeline.is_archived(reader.read[-1])
    with pytest.raises(CommitUndone, match=reader.read[-1]):
        reader.catch_up()


def test_commits_that_were_archived_after_a_savepoint_are_not_skipped() -> None:
    table = create("copy_on_write", "data_before", index="bucket", buckets=1)
    for ts in range(8):
        table.upsert(rows(("a", "north", ts, ts)))
    feed = ChangeFeed(opened(table), FeedType.CDC)
    saved = feed.commits_after(feed.find_start("earliest"))[1]
    table.savepoint(saved.requested_at)
    storage = open_storage(StorageLocation(table.location))
    files = storage.list_folder(".hoodie/timeline")[1]
    kept = {
        one.path: storage.read(one.path) for one in files if f"/{saved.requested_at}" in one.path
    }
    table.delete_savepoint(saved.requested_at)
    table.clean(retain_commits=2)
    table.archive(retain_commits=2, min_commits=3, max_commits=4)
    for path, content_of_file in kept.items():  # as with hoodie.archive.beyond.savepoint
        storage.put(path, content_of_file)
    feed.refresh()
    with pytest.raises(ChangesRemoved, match="was archived"):
        feed.commits_after(FeedPosition.after(saved))


def test_commit_that_a_listing_lacks_is_returned_later(monkeypatch: pytest.MonkeyPatch) -> None:
    table = create("copy_on_write", "data_before", index="bucket", buckets=1)
    table.upsert(rows(("a", "north", 1, 1)))
    reader, load = Reader.of(table), TimelineStore.load
    reader.catch_up()
    table.upsert(rows(("a", "north", 2, 2)))
    lost = table.timeline.completed(*COMMITS)[-1]
    table.upsert(rows(("b", "north", 3, 3)))
    listings = count()

    def load_in_parts(store: TimelineStore) -> Timeline:
        found = load(store)
        if next(listings) > 0:
            return found
        return Timeline.of([i for i in found.instants if i.requested_at != lost.requested_at])

    monkeypatch.setattr(TimelineStore, "load", load_in_parts)
    reader.catch_up()
    assert reader.state == contents(table)


def test_overwritten_rows_are_not_read_from_a_part_of_their_files(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = create("copy_on_write", "data_before", index="bucket", buckets=1)
    table.upsert(rows(("a", "north", 1, 1)))
    table.upsert(rows(("a", "north", 2, 2)))
    table.insert_overwrite(rows(("b", "north", 3, 3)))
    overwrite = table.timeline.completed(*COMMITS)[-1]
    table.upsert(rows(("b", "north", 4, 4)))
    table.upsert(rows(("b", "north", 5, 5)))

    def die_after_the_newest(context: TableContext, paths: Sequence[str]) -> None:
        newest = max(paths, key=lambda path: path.rpartition("_")[2])
        context.storage.delete([newest])
        raise KeyboardInterrupt

    monkeypatch.setattr(TableContext, "delete_files", die_after_the_newest)
    with pytest.raises(KeyboardInterrupt):
        table.clean(retain_commits=1)
    feed = ChangeFeed(opened(table), FeedType.CDC)
    with pytest.raises(ChangesRemoved, match="no longer be read"):
        list(feed.changes(overwrite))


@pytest.mark.parametrize("are_crossed", [False, True])
def test_upgrade_between_two_commits_that_overlapped_misses_none(
    are_crossed: bool, tmp_path: Path
) -> None:
    location = StorageLocation(str(tmp_path))
    storage = open_storage(location)
    make(storage, version=FormatVersion.V6)
    commit_rows(writer(storage), [Row("a")])
    commit_rows(writer(storage), [Row("b")])
    old = ChangeFeed(open_table(location), FeedType.INCREMENTAL)
    one, other = old.commits_after(old.find_start("earliest"))
    if are_crossed:  # as if the first commit had taken longer
        store = open_table(location).store
        at = store.clock.parse(str(other.completed_at)) + timedelta(milliseconds=5)
        assert storage.set_modified_at(store.path_of(one), at)
        old.refresh()
        one, other = old.commits_after(old.find_start("earliest"))
    position = FeedPosition.after(one)
    lakemark.open(location.url, multi_writer=FAST).upgrade(8)
    feed = ChangeFeed(open_table(location), FeedType.INCREMENTAL)
    if are_crossed:
        with pytest.raises(OrderChanged) as refused:
            feed.commits_after(position)
        position = feed.find_start(refused.value.begin)
    names = [commit.requested_at for commit in feed.commits_after(position)]
    assert other.requested_at in names
    assert are_crossed or names == [other.requested_at]
