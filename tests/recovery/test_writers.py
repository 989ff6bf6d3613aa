"""Writers that die and conflict leave the rows of some serial order of their commits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.instant import Instant
from lakemark.operations.archive import archive
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline import clock
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.content import encode_commit, encode_rollback_plan
from lakemark.timeline.locks.open_lock import LockProviderName
from lakemark.transaction import heartbeat
from lakemark.transaction.conflicts import ClusteringPlanned
from lakemark.transaction.heartbeat import (
    HEARTBEAT_FOLDER,
    HeartbeatExpired,
    HeartbeatPolicy,
    WriterAlive,
    find_alive,
)
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback import plan_rollback
from lakemark.transaction.table_context import LOCK_WAIT_S
from tests.fixtures.quick_s3 import QuickS3
from tests.storages import CountingStorage
from tests.table_services import active_names
from tests.tables import Row, commit, contents, data_files, reopened, write_files, writer
from tests.waiting import until
from tests.writers import (
    MORTAL_LEASE_S,
    MORTAL_SHARING,
    SHARING,
    Streamer,
    check_history,
    check_nothing_is_left,
    create_shared_table,
    plan_clustering,
    quiet_threads,
    run_all,
    shared_writer,
)

#: No writer renews its heartbeat within a test, and a heartbeat expires after two hours.
HOURLY_SHARING = MultiWriter(HeartbeatPolicy(3600.0, 1), clock_skew_ms=1)


class _AnHourAgo(datetime):
    """The clock of a process that generated its instant an hour ago."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) - timedelta(hours=1)


class _InTwoHours(datetime):
    """The clock of a process that checks heartbeats two hours from now."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(hours=2)

    @classmethod
    def time(cls) -> float:  # type: ignore[override]
        """Like ``time.time``."""
        return cls.now(UTC).timestamp()


@contextmanager
def two_hours_later() -> Iterator[None]:
    """Run a block in which every earlier heartbeat is two hours old."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(heartbeat, "datetime", _InTwoHours)
        changed.setattr(heartbeat, "time", _InTwoHours)
        yield


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet_threads():
        yield


@pytest.fixture
def local(tmp_path: Path) -> Storage:
    return open_storage(StorageLocation(str(tmp_path / "table")))


def share(storage: Storage, batches: int, faults: int, has_metadata: bool) -> list[Streamer]:
    """Run two writers of a table until each has written all its batches, once."""
    provider = (
        LockProviderName.STORAGE
        if storage.supports_compare_and_swap
        else LockProviderName.FILE_SYSTEM
    )
    opened = partial(
        shared_writer,
        provider=provider,
        multi_writer=MORTAL_SHARING,
        has_metadata=has_metadata,
        lease_s=MORTAL_LEASE_S,
    )
    meeting = threading.Barrier(2)
    streamers = [
        Streamer(name, opened, storage, faults, batches=batches, meeting=meeting)
        for name in ("ann", "bob")
    ]
    run_all(streamers, limit_s=400)
    check_history(storage, {s.name: batches for s in streamers})
    check_nothing_is_left(storage, opened(storage))
    check_history(storage, {s.name: batches for s in streamers})
    return streamers


@pytest.mark.parametrize("table_type", TableType)
def test_two_writers_that_die_and_conflict_write_each_batch_once_and_in_order(
    local: Storage, table_type: TableType
) -> None:
    create_shared_table(local, table_type)
    streamers = share(local, batches=10, faults=2, has_metadata=False)
    assert all(s.failed for s in streamers)
    assert any(s.conflicts for s in streamers), "they never conflicted"
    is_merge_on_read = table_type is TableType.MERGE_ON_READ
    assert is_merge_on_read == any(s.compactions for s in streamers)


def test_metadata_table_lists_the_files_of_both_writers_on_an_object_store(
    quick_s3: QuickS3,
) -> None:
    storage = open_storage(quick_s3.location())
    create_shared_table(storage)
    share(storage, batches=5, faults=1, has_metadata=True)
    assert writer(storage).table.properties.metadata_partitions


# Which instants are rolled back


def test_commit_of_a_dead_writer_is_rolled_back_and_of_a_living_one_is_not(
    local: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_shared_table(local)
    living = shared_writer(local, multi_writer=MultiWriter(HeartbeatPolicy(0.05, 12_000), 1))
    dead = shared_writer(local)  # its heartbeat is never renewed
    with monkeypatch.context() as changed:
        changed.setattr(clock, "datetime", _AnHourAgo)
        written = write_files(living, [Row("a", 1, 1)])
        write_files(dead, [Row("b", 1, 1, region="south")])
    began_s = time.time()
    for one in (living, dead):
        beat = Path(local.location.url, HEARTBEAT_FOLDER, one.pending_instant)
        os.utime(beat, (began_s - 3_600, began_s - 3_600))
    until(lambda: len(find_alive(local, SHARING.heartbeats)) == 1)
    other = shared_writer(local)
    assert other.recover() == [dead.pending_instant]
    living.commit(written, {})
    assert {key: v for key, (_, v) in contents(local).items()} == {"a": 1}
    assert [info.name for info in local.list_tree(HEARTBEAT_FOLDER)] == []


def test_files_of_a_dead_writer_are_not_the_file_group_of_its_bucket(local: Storage) -> None:
    create_shared_table(local)
    opened = partial(shared_writer, local, has_metadata=False)
    write_files(opened(), [Row("a", 1, 1)])
    other = opened()
    commit(other, [Row("a", 2, 2)])
    commit(other, [Row("a", 3, 3)])
    commit(opened(), [Row("a", 4, 4)])
    assert contents(local) == {"a": (4, 4)}
    groups = {path.replace("/.", "/")[:42] for path in data_files(local)}
    assert len(groups) == 2, "one of the dead writer, and one of the other"


def test_writer_whose_heartbeat_expired_publishes_nothing_and_can_restart(
    local: Storage,
) -> None:
    create_shared_table(local)
    silent = shared_writer(local, multi_writer=HOURLY_SHARING)
    written = write_files(silent, [Row("a", 1, 1)])
    with two_hours_later():
        assert shared_writer(local, multi_writer=HOURLY_SHARING).recover() == [
            silent.pending_instant
        ]
        with pytest.raises(HeartbeatExpired, match="had no heartbeat"):
            silent.commit(written, {})
        silent.abandon()
    assert not data_files(local)
    commit(reopened(silent, multi_writer=SHARING), [Row("a", 2, 2)])
    assert contents(local) == {"a": (2, 2)}


def test_single_writer_is_refused_while_another_writer_is_alive(local: Storage) -> None:
    create_shared_table(local)
    living = shared_writer(local)
    written = write_files(living, [Row("a", 1, 1)])
    with pytest.raises(WriterAlive, match="mode: multi_writer"):
        writer(local).recover()
    living.commit(written, {})
    writer(local).recover()
    assert contents(local) == {"a": (1, 1)}


# Conflicts


def test_first_commits_of_two_writers_to_one_bucket_conflict(local: Storage) -> None:
    create_shared_table(local)
    first, second = shared_writer(local), shared_writer(local)
    ours = write_files(first, [Row("a", 1, 1)])
    theirs = write_files(second, [Row("a", 2, 2)])
    groups = {stat.file_id for stat in (*ours, *theirs)}
    assert len(groups) == 2, "each has created its own file group"
    second.commit(theirs, {})
    with pytest.raises(WriteConflict, match="file group"):
        first.commit(ours, {})
    first.abandon()
    commit(first, [Row("a", 1, 1)])
    assert contents(local) == {"a": (1, 1)}, "the later commit wins"
    (slices,) = [writer(local).table.view().latest_slices()]
    assert len(list(slices)) == 1


def test_writers_of_different_buckets_do_not_conflict(local: Storage) -> None:
    create_shared_table(local)
    first, second = shared_writer(local), shared_writer(local)
    ours = write_files(first, [Row("a", 1, 1, region="north")])
    theirs = write_files(second, [Row("b", 2, 2, region="south")])
    second.commit(theirs, {})
    first.commit(ours, {})
    assert contents(local) == {"a": (1, 1), "b": (2, 2)}


def test_commit_does_not_conflict_with_a_concurrent_compaction(local: Storage) -> None:
    create_shared_table(local)
    for value in (1, 2):
        commit(shared_writer(local), [Row("a", value, value)])
    slow, compactor = shared_writer(local), shared_writer(local)
    written = write_files(slow, [Row("a", 3, 3)])
    assert compactor.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    slow.commit(written, {})
    assert contents(local) == {"a": (3, 3)}


@pytest.mark.parametrize("is_compacted", [False, True])
def test_partition_statistics_include_the_values_of_a_late_commit(
    local: Storage, is_compacted: bool
) -> None:
    create_shared_table(local)
    assert keep_metadata_table(shared_writer(local).table)
    for value in (2, 3):
        commit(shared_writer(local), [Row("a", value, value), Row("b", value, value)])
    slow, quick = shared_writer(local), shared_writer(local)
    written = write_files(slow, [Row("a", 1, 1)])
    if is_compacted:
        assert quick.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    else:
        commit(quick, [Row("b", 4, 4)])
    slow.commit(written, {})
    commit(quick, [Row("b", 5, 5)])
    assert len(writer(local).table.view().latest_slices()) == 2, "one of each bucket"
    assert contents(local) == {"a": (1, 1), "b": (5, 5)}
    assert metadata_differences(shared_writer(local).table) == []


def test_compaction_that_another_writer_executes_is_skipped(local: Storage) -> None:
    create_shared_table(local)
    for value in (1, 2):
        commit(shared_writer(local), [Row("a", value, value)])
    first, second = shared_writer(local), shared_writer(local)
    met: list[object] = []

    class Meeting(LocalRunner):
        def map(self, task, items):  # type: ignore[no-untyped-def]
            met.append(second.compact_if_due(CompactionPolicy(10), LocalRunner(1)))
            return super().map(task, items)

    (done,) = first.compact_if_due(CompactionPolicy(1), Meeting(1))
    assert met == [[]]
    second.table.refresh()
    assert second.compact_if_due(CompactionPolicy(10), LocalRunner(1)) == []
    assert list(second.table.timeline.completed(Action.COMMIT)) == [done[0]]


@pytest.mark.parametrize("begins_first", ["command", "pipeline"])
def test_single_pipeline_survives_a_command_that_executes_its_plan(
    local: Storage, begins_first: str
) -> None:
    create_shared_table(local)
    pipeline, command = shared_writer(local, multi_writer=None), shared_writer(local)
    for value in (1, 2):
        commit(pipeline, [Row("a", value, value)])
    first, second = (command, pipeline) if begins_first == "command" else (pipeline, command)

    class Meeting(LocalRunner):
        def map(self, task, items):  # type: ignore[no-untyped-def]
            second.table.refresh()
            met.extend(second.compact_if_due(CompactionPolicy(10), LocalRunner(1)))
            return super().map(task, items)

    met: list[object] = []
    done = first.compact_if_due(CompactionPolicy(1), Meeting(1))
    assert len(done) + len(met) == 1, "one of the two executed it"
    commit(pipeline, [Row("b", 3, 3)])
    assert contents(local) == {"a": (2, 2), "b": (3, 3)}
    assert not writer(local).table.timeline.pending()


def requested_as_apache(storage: Storage, action: Action) -> Instant:
    """Request an instant whose writer is alive but has not yet loaded the timeline."""
    store = writer(storage).table.store
    requested = Instant(store.clock.next_instant(store.load().newest_time), action, State.REQUESTED)
    storage.put(f"{HEARTBEAT_FOLDER}/{requested.requested_at}", b"")
    store.create(requested)
    return requested


def test_publication_waits_until_an_earlier_writer_has_begun(local: Storage) -> None:
    create_shared_table(local, TableType.COPY_ON_WRITE)
    commit(shared_writer(local), [Row("a", 0, 0)])
    theirs = requested_as_apache(local, Action.COMMIT)
    counting, store = CountingStorage(local), writer(local).table.store
    ours = shared_writer(counting)
    written = write_files(ours, [Row("a", 1, 1)])
    publishing = threading.Thread(target=ours.commit, args=(written, {}))
    counting.forget()
    publishing.start()
    until(
        lambda: (
            counting.count("list_folder", under=".hoodie/timeline") > 8 or not publishing.is_alive()
        ),
        "a writer that polls the timeline",
    )
    assert publishing.is_alive() and contents(local) == {"a": (0, 0)}
    with ours.table.context.lock.hold(LOCK_WAIT_S):  # the other writer needs it to begin
        store.create(theirs.inflight(), b"{}")
    publishing.join()
    assert contents(local) == {"a": (1, 1)}


def test_publication_waits_no_longer_than_a_heartbeat_is_valid(local: Storage) -> None:
    create_shared_table(local, TableType.COPY_ON_WRITE)
    theirs = requested_as_apache(local, Action.COMMIT)
    policy = HeartbeatPolicy(0.5, 6)
    ours = commit(shared_writer(local, multi_writer=MultiWriter(policy, 1)), [Row("a", 1, 1)])
    waited = UTC_CLOCK.parse(ours.completed_at or "") - UTC_CLOCK.parse(theirs.requested_at)
    assert waited.total_seconds() >= policy.expires_after_s
    assert contents(local) == {"a": (1, 1)}


def test_publication_does_not_wait_for_a_later_writer(local: Storage) -> None:
    create_shared_table(local, TableType.COPY_ON_WRITE)
    ours = shared_writer(local)
    written = write_files(ours, [Row("a", 1, 1)])
    requested_as_apache(local, Action.COMMIT)
    ours.commit(written, {})  # the files of the later writer will have later names
    assert contents(local) == {"a": (1, 1)}


def test_delta_commit_does_not_wait_for_earlier_writers(local: Storage) -> None:
    create_shared_table(local)
    requested_as_apache(local, Action.DELTA_COMMIT)
    commit(shared_writer(local), [Row("a", 1, 1)])
    assert contents(local) == {"a": (1, 1)}


def test_commit_conflicts_with_a_clustering_of_its_file_group(local: Storage) -> None:
    create_shared_table(local)
    commit(shared_writer(local), [Row("a", 1, 1), Row("b", 1, 1, region="south")])
    group = next(s.group for s in writer(local).table.view().latest_slices())
    here, elsewhere = shared_writer(local), shared_writer(local)
    ours = write_files(here, [Row("a", 2, 2, region=group.partition_path)])
    planned = plan_clustering(local, group)
    other = "south" if group.partition_path == "north" else "north"
    theirs = write_files(elsewhere, [Row("b", 2, 2, region=other)])
    elsewhere.commit(theirs, {})
    beat = f"{HEARTBEAT_FOLDER}/{planned.requested_at}"
    local.put(beat, b"")
    with pytest.raises(WriteConflict, match="clustering"):
        here.commit(ours, {})
    local.delete([beat])
    with pytest.raises(ClusteringPlanned, match=f"rollback TABLE {planned.requested_at} --run"):
        here.commit(ours, {})


def test_instant_that_another_writer_rolled_back_is_not_published(local: Storage) -> None:
    create_shared_table(local)
    ours = shared_writer(local)
    written = write_files(ours, [Row("a", 1, 1)])
    eager = writer(local)
    local.delete([f"{HEARTBEAT_FOLDER}/{ours.pending_instant}"])
    assert eager.recover() == [ours.pending_instant]
    with pytest.raises(Fenced, match="rolled it back"):
        ours.commit(written, {})
    ours.abandon()
    assert not local.list_tree(HEARTBEAT_FOLDER)


def in_the_history(local: Storage, dead: Instant, written: WriteStat) -> None:
    for value in range(5):
        commit(shared_writer(local), [Row("b", value, value, region="south")])
    assert archive(shared_writer(local).table, ArchivalPolicy(2, 4), None)
    assert dead.requested_at not in {name for name, _ in active_names(local)}


def under_another(local: Storage, dead: Instant, written: WriteStat) -> None:
    commit(shared_writer(local), [Row("b", 4, 4, region="south")])


def in_part(local: Storage, dead: Instant, written: WriteStat) -> None:
    local.delete([written.path or ""])


def taken_back(local: Storage, dead: Instant, written: WriteStat) -> None:
    local.put(written.path or "", b"of another size")


@pytest.mark.parametrize(
    ("meanwhile", "left"),
    [
        (None, {"a": (1, 1)}),
        (under_another, {"a": (1, 1), "b": (4, 4)}),
        (in_the_history, {"a": (1, 1), "b": (4, 4)}),
        (in_part, None),
        (taken_back, None),
    ],
)
def test_rollback_of_a_completed_commit_is_abandoned_unless_it_has_deleted_files(
    local: Storage,
    meanwhile: Callable[[Storage, Instant, WriteStat], None] | None,
    left: dict[str, tuple[int, int]] | None,
) -> None:
    """A rollback stops if its target completes before a file is deleted.

    The writer of the target, like Apache Hudi, completes it without a check for rollbacks.
    """
    create_shared_table(local, TableType.COPY_ON_WRITE)
    theirs = shared_writer(local)
    (written,) = write_files(theirs, [Row("a", 1, 1)])
    dead = Instant(theirs.pending_instant, Action.COMMIT, State.INFLIGHT)
    leave_a_rollback(theirs, dead)
    complete_as_apache(theirs, dead, written)
    if meanwhile is not None:
        meanwhile(local, dead, written)
    with two_hours_later():
        undone = shared_writer(local, multi_writer=HOURLY_SHARING).recover()
    assert undone == ([] if left else [dead.requested_at])
    assert not writer(local).table.timeline.pending()
    if left:
        assert contents(local) == left
    else:
        assert not data_files(local)


def leave_a_rollback(to: TableWriter, pending: Instant) -> None:
    """Begin a rollback whose writer dies before it deletes any file."""
    context = to.table.context
    to.table.context.storage.delete([f"{HEARTBEAT_FOLDER}/{pending.requested_at}"])
    plan = plan_rollback(context, pending.requested_at)
    requested = Instant(
        context.generate_time(pending.requested_at), Action.ROLLBACK, State.REQUESTED
    )
    context.timeline.create(requested, encode_rollback_plan(plan))
    context.timeline.create(requested.inflight())


def complete_as_apache(to: TableWriter, pending: Instant, written: WriteStat) -> None:
    """Complete an instant without a check for rollbacks, as Apache Hudi does."""
    context = to.table.context
    metadata = CommitMetadata(
        write_stats=(written,), extra_metadata=to._table_facts(), operation="UPSERT"
    )
    content = encode_commit(pending.action, metadata, context.timeline.version)
    context.timeline.prepare(pending, content)
    context.timeline.publish(
        pending, context.generate_time(context.timeline.load().newest_time), lambda: None
    )
    to.table.context.storage.delete([f"{HEARTBEAT_FOLDER}/{pending.requested_at}"])
