"""Two attempts at one compaction: the executor or the rollback of the first is paused.

The plan of a compaction outlives its executor. So two executors and a rollback may work on the same
instant and the same file groups at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from itertools import count
from uuid import UUID

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import TableType
from lakemark.errors import HudiError, Retriable
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.operations.archive import archive
from lakemark.operations.clean import clean
from lakemark.operations.compact import Compaction, Planned, pending_compactions, request_compaction
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy, Retention
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.storage import Storage
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.transaction.attempt import AttemptLost
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY
from lakemark.transaction.rollback import roll_back, roll_back_named
from lakemark.write.markers import drop_markers
from tests.clocks import SharedClock, on_clock
from tests.depth import sample
from tests.protocol import actors
from tests.protocol.clocked_store import ClockedStore
from tests.protocol.virtual_time import on_virtual_time
from tests.storages import CountingStorage
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import copy_of, make_plain, new_storage
from tests.tables import SCHEMA, Row, commit, contents, data_files, make, writer

CLOCK = SharedClock()
A_LEASE_AND_MORE_S = 61.0
ARCHIVAL = ArchivalPolicy(1, 2, delta_commits_to_compact=1)
EXPECTED = {"a": (2, 2), "b": (2, 2)}
#: After ``complete_and_archive``.
ARCHIVED = {**EXPECTED, "c": (8, 8)}

#: An act of one process on the table; it may return a function that finishes its work later.
Finish = Callable[[], object] | None
Act = Callable[[Storage], Finish]

_TABLES = [(v, m) for v in (FormatVersion.V9, FormatVersion.V6) for m in (False, True)]


def opened(storage: Storage) -> TableWriter:
    return on_clock(writer(storage), CLOCK)


@cache
def _planned(version: FormatVersion, has_metadata: bool) -> Storage:
    storage = new_storage()
    make_plain(storage, version=version)
    if has_metadata:
        keep_metadata_table(opened(storage).table)
    for value in (1, 2):
        commit(opened(storage), [Row("a", value, value), Row("b", value, value, region="south")])
    assert request_compaction(opened(storage).table) is not None
    return storage


@pytest.fixture(params=_TABLES, ids=lambda t: f"version {t[0]:d}{' with metadata' * t[1]}")
def storage(request: pytest.FixtureRequest) -> Storage:
    """A table of two rows whose compaction is planned."""
    return copy_of(_planned(*request.param))


@pytest.fixture(params=[FormatVersion.V9, FormatVersion.V6], ids=lambda v: f"version {v:d}")
def version(request: pytest.FixtureRequest) -> FormatVersion:
    found: FormatVersion = request.param
    return found


def plan_of(storage: Storage) -> Planned:
    pending = pending_compactions(opened(storage).table)
    assert len(pending) == 1, "another process may have completed it"
    return pending[0]


def begun(storage: Storage) -> Compaction:
    to = opened(storage)
    attempt = to.begin_compaction(plan_of(storage))
    assert attempt is not None
    return attempt


def compact(storage: Storage) -> None:
    assert opened(storage).compact_if_due(CompactionPolicy(100), LocalRunner(1))


def undo(storage: Storage) -> None:
    roll_back_named(opened(storage).table.context, plan_of(storage)[0].requested_at)


def check_whole(storage: Storage, at: object = None, *, may_be_undone: bool = False) -> None:
    """Check the rows, one base file for each file group, and that the next commit works.

    Args:
        storage: the storage of the table.
        at: the text of the message if a check fails.
        may_be_undone: whether a rollback may have undone the completed compaction.
    """
    assert contents(storage) == EXPECTED, at
    to = opened(storage)
    to.recover()
    if to.table.timeline.pending(Action.COMPACTION):
        compact(storage)
        to.table.refresh()
    assert not to.table.timeline.pending(), at
    completed = to.table.timeline.completed(Action.COMMIT)
    assert len(completed) == 1 or may_be_undone, at
    for done in completed:
        named = sorted(stat.path or "" for stat in to.table.store.read_commit(done).write_stats)
        assert [p for p in data_files(storage) if f"_{done.requested_at}.parquet" in p] == named, at
    assert contents(storage) == EXPECTED, at
    commit(to, [Row("a", 3, 3)])
    assert contents(storage) == {**EXPECTED, "a": (3, 3)}, at
    assert metadata_differences(to.table) == [], at


@pytest.mark.parametrize("is_rolled_back", [False, True], ids=["found dead", "rolled back"])
@pytest.mark.parametrize("others", ["begun", "written", "completed"])
def test_late_attempt_publishes_nothing_and_deletes_only_its_own_files(
    storage: Storage, others: str, is_rolled_back: bool
) -> None:
    first = begun(storage)
    first.rewrite(LocalRunner(1))
    if is_rolled_back:
        undo(storage)
    second = begun(storage)
    stats = first.rewrite(LocalRunner(1))  # it resumes, and writes the deleted files again
    if others != "begun":
        theirs = second.rewrite(LocalRunner(1))
    if others == "completed":
        second.publish(theirs, dict)
    with pytest.raises(AttemptLost):
        first.publish(stats, dict)
    for stat in stats:
        assert storage.head(stat.path or "") is None
    if others != "completed":
        second.publish(second.rewrite(LocalRunner(1)), dict)
    check_whole(storage)


def test_late_attempt_publishes_nothing_while_its_rollback_is_pending(storage: Storage) -> None:
    first = begun(storage)
    stats = first.rewrite(LocalRunner(1))
    dying = InterruptedStorage(storage, _die)
    dying.is_before = lambda _, method, path: method == "delete" and path.startswith("north/")
    with pytest.raises(Retriable):
        undo(dying)
    assert opened(storage).begin_compaction(plan_of(storage)) is None
    with pytest.raises(AttemptLost, match="about to remove"):
        first.publish(stats, dict)
    check_whole(storage)


def test_compaction_records_schema_and_progress_of_a_commit_right_before_its_lock() -> None:
    storage = copy_of(_planned(FormatVersion.V9, has_metadata=False))
    progress = {CHECKPOINT_KEY: "orders,0:7"}

    def commit_with_another_column() -> None:
        other = opened(storage)
        other.evolve(SCHEMA.append(pa.field("note", pa.string())))
        other.begin()
        other.commit([], progress)

    stopped = InterruptedStorage(storage, commit_with_another_column)
    to = opened(stopped)
    attempt = to.begin_compaction(plan_of(storage))
    assert attempt is not None
    stats = attempt.rewrite(LocalRunner(1))
    stopped.is_before = lambda _, method, path: "/.locks/" in path
    _, metadata = to.publish_compaction(attempt, stats)
    assert stopped.stopped_at
    assert '"note"' in metadata.extra_metadata[keys.SCHEMA]
    assert "orders,0:7" in metadata.extra_metadata.values()
    assert contents(storage) == EXPECTED


def test_attempt_is_lost_if_the_table_was_restored_meanwhile(
    storage: Storage,
) -> None:
    late, other = begun(storage), opened(storage)
    first = other.table.timeline.completed(Action.DELTA_COMMIT)[0]
    restore(other.table.context, first.requested_at, is_merge_on_read=True)
    with pytest.raises(AttemptLost):
        other.publish_compaction(late, late.rewrite(LocalRunner(1)))


def test_undoing_a_late_attempt_does_not_change_the_other(storage: Storage) -> None:
    first = begun(storage)
    undo(storage)
    second = begun(storage)
    stats = second.rewrite(LocalRunner(1))
    first.rewrite(LocalRunner(1))
    first.undo()
    second.publish(stats, dict)
    check_whole(storage)


@pytest.mark.parametrize("is_archived", [False, True])
def test_file_that_appears_after_another_attempt_completed_is_not_read(
    version: FormatVersion, is_archived: bool
) -> None:
    storage = copy_of(_planned(version, has_metadata=False))
    first = begun(storage)
    undo(storage)
    to = opened(storage)
    ((done, metadata),) = to.compact_if_due(CompactionPolicy(100), LocalRunner(1))
    for number in range(3, 9) if is_archived else ():
        commit(to, [Row("c", number, number, region="west")])
        archive(to.table, ARCHIVAL, None)
    assert (to.table.timeline.find(done.requested_at) is None) == is_archived
    expected = contents(storage)
    late = [stat.path or "" for stat in first.rewrite(LocalRunner(1))]
    for path in late:  # a query that read this file would fail
        storage.put(path, b"of an attempt that did not complete")
    assert contents(storage) == expected
    bases = [one.base.path for one in opened(storage).table.view().latest_slices() if one.base]
    assert {stat.path for stat in metadata.write_stats} <= {*bases}
    commit(opened(storage), [Row("a", 9, 9)])
    assert contents(storage) == {**expected, "a": (9, 9)}


@pytest.mark.parametrize("is_undone", [False, True], ids=["found dead", "rolled back"])
def test_archival_deletes_the_files_of_attempts_that_did_not_complete(
    version: FormatVersion, is_undone: bool
) -> None:
    storage = copy_of(_planned(version, has_metadata=False))
    first = begun(storage)
    if is_undone:
        undo(storage)
    compact(storage)
    late = [stat.path or "" for stat in first.rewrite(LocalRunner(1))]
    to, deleted = opened(storage), set[str]()
    for number in range(3, 9):
        commit(to, [Row("c", number, number, region="west")])
        archived = archive(to.table, ARCHIVAL, None)
        deleted |= set(archived.leftovers) if archived else set()
    assert deleted == {*late}
    assert not [path for path in late if storage.head(path)]
    assert contents(storage) == ARCHIVED


def test_undoing_an_attempt_that_was_published_and_archived_keeps_its_files(
    version: FormatVersion,
) -> None:
    """A writer that got no answer undoes its attempt, and deletes no file of the commit."""
    storage = copy_of(_planned(version, has_metadata=False))
    ours = begun(storage)
    stats = ours.rewrite(LocalRunner(1))
    ours.publish(stats, dict)
    archive_compactions(storage)
    assert roll_back(opened(storage).table.context, ours.execution.instant) is False
    assert all(storage.head(stat.path or "") for stat in stats)
    assert contents(storage) == ARCHIVED


def test_undoing_a_lost_attempt_deletes_its_files_after_another_one_was_archived(
    version: FormatVersion,
) -> None:
    storage = copy_of(_planned(version, has_metadata=False))
    first = begun(storage)
    compact(storage)
    archive_compactions(storage)
    late = [stat.path or "" for stat in first.rewrite(LocalRunner(1))]
    assert roll_back(opened(storage).table.context, first.execution.instant) is False
    assert not [path for path in late if storage.head(path)]
    assert contents(storage) == ARCHIVED


def test_undoing_an_attempt_deletes_no_file_if_the_archive_is_damaged() -> None:
    storage = copy_of(_planned(FormatVersion.V9, has_metadata=False))
    ours = begun(storage)
    stats = ours.rewrite(LocalRunner(1))
    ours.publish(stats, dict)
    archive_compactions(storage)
    for info in storage.list_tree(".hoodie/timeline/history"):
        if info.name.startswith("manifest_"):
            storage.put(info.path, b"damaged")
    roll_back(opened(storage).table.context, ours.execution.instant)
    assert all(storage.head(stat.path or "") for stat in stats)


def test_archive_is_loaded_once_for_all_late_files_of_compactions() -> None:
    storage = copy_of(_planned(FormatVersion.V9, has_metadata=False))
    loads = []
    for _ in range(2):
        first = begun(storage)
        compact(storage)
        archive_compactions(storage)
        first.rewrite(LocalRunner(1))
        counting = CountingStorage(storage)
        opened(counting).table.view()
        loads.append(sum("/history/manifest_" in r.path for r in counting.requests))
        assert contents(storage) == ARCHIVED
        request_compaction(opened(storage).table)
    assert loads[0] == loads[1] > 0


def archive_compactions(storage: Storage) -> None:
    to = opened(storage)
    for number in range(3, 9):
        commit(to, [Row("c", number, number, region="west")])
        archive(to.table, ARCHIVAL, None)
    assert not to.table.timeline.completed(Action.COMMIT)


def test_files_of_a_dead_attempt_of_apache_hudi_are_deleted(storage: Storage) -> None:
    first = begun(storage)
    inflight = first.execution.instant
    for stat in first.rewrite(LocalRunner(1)):
        theirs = re.sub(r"_\d+-0-\d+_", "_1-25-57_", stat.path or "")
        storage.put(theirs, storage.read(stat.path or ""))
    storage.put(opened(storage).table.store.path_of(inflight), b"")
    drop_markers(storage, inflight.requested_at)
    compact(storage)
    check_whole(storage)


def test_attempt_that_begins_after_the_compaction_was_archived_is_removed(
    version: FormatVersion,
) -> None:
    """The inflight instant appears after the compaction has completed and has been archived."""
    storage = copy_of(_planned(version, has_metadata=False))
    stopped = InterruptedStorage(storage, lambda: complete_and_archive(storage))
    stopped.is_before = lambda _, method, path: (
        method == "create" and path.endswith(".compaction.inflight")
    )
    with pytest.raises(LeaseLost):
        begun(stopped)
    assert stopped.stopped_at
    _check_archived(storage)


def test_attempt_that_begins_late_and_dies_is_removed_without_deleting_files(
    version: FormatVersion,
) -> None:
    storage = copy_of(_planned(version, has_metadata=False))
    planned, _ = plan_of(storage)
    complete_and_archive(storage)
    opened(storage).table.store.create(planned.inflight(), b"")
    assert contents(storage) == ARCHIVED, "the files of the compaction are read meanwhile"
    assert opened(storage).begin_compaction(plan_of(storage)) is None
    _check_archived(storage)


def test_process_that_completes_the_compaction_of_a_dead_one_reads_its_own_files(
    version: FormatVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that completes the compaction of a dead process reads the files that it wrote.

    It had listed the files of the dead attempt, which a reader would prefer by their names.
    """
    storage = copy_of(_planned(version, has_metadata=False))
    names = iter(
        [UUID(int=2**127), UUID(int=2**126)]
    )  # a reader would choose the larger of two names
    monkeypatch.setattr("lakemark.transaction.attempt.uuid4", lambda: next(names))
    begun(storage).rewrite(LocalRunner(1))
    to = opened(storage)
    assert to.compact_if_due(CompactionPolicy(100), LocalRunner(1))
    found = to.table.scan(columns=["id"]).to_reader().read_all()
    assert sorted(found["id"].to_pylist()) == ["a", "b"]
    monkeypatch.undo()
    commit(to, [Row("a", 3, 3)])
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert contents(storage) == {**EXPECTED, "a": (3, 3)}


def test_a_writer_does_not_compact_the_metadata_of_an_attempt_that_another_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The logs of both attempts in the metadata table have the same names and the same sizes."""
    storage = new_storage()
    make(storage)
    numbers = count(1)

    def complete(on: Storage, number: int) -> dict[str, int]:
        monkeypatch.setattr("lakemark.transaction.attempt.uuid4", lambda: UUID(int=number << 80))
        CLOCK.sleep(A_LEASE_AND_MORE_S)
        compact(on)
        return _logs_of_files(on)

    def complete_with_logs_of_the_same_sizes() -> None:
        sizes = _logs_of_files(storage)
        found = (n for n in range(2**47 + 1, 2**47 + 500) if complete(copy_of(storage), n) == sizes)
        assert complete(storage, next(found)) == sizes

    stopped = InterruptedStorage(storage, complete_with_logs_of_the_same_sizes)
    to = opened(stopped)
    compactions = {to.table.metadata_writer.compacted_at}
    while len(compactions) < 3:  # the writer then knows all logs since the last one
        commit(to, [Row("a", next(numbers))])
        compactions.add(to.table.metadata_writer.compacted_at)
    assert request_compaction(to.table) is not None
    monkeypatch.setattr("lakemark.transaction.attempt.uuid4", lambda: UUID(int=2**127))
    stopped.is_before = lambda _, method, path: (
        (method, path[:17])
        == (
            "publish",
            ".hoodie/timeline/",
        )
    )
    with pytest.raises(LeaseLost):
        to.compact_if_due(CompactionPolicy(100), LocalRunner(1))
    assert stopped.stopped_at
    to.table.refresh()
    for _ in range(EVERY_DELTA_COMMITS + 1):
        commit(to, [Row("a", next(numbers))])
    assert metadata_differences(opened(storage).table) == []


def _logs_of_files(storage: Storage) -> dict[str, int]:
    """Return the sizes of the logs that list the files, by path."""
    objects = storage.list_tree(".hoodie/metadata/files")
    return {one.path: one.size_bytes for one in objects if ".log." in one.path}


def test_late_attempt_deletes_its_files_although_its_heartbeat_has_expired(
    version: FormatVersion,
) -> None:
    """The attempt writes its last file after the next one deleted its others and completed."""
    with on_virtual_time() as clock:
        store = ClockedStore(clock)
        opened_by_any = partial(actors.open_writer, clock=clock, has_metadata=True)
        merge_on_read = TableType.MERGE_ON_READ
        actors.create_table(store, clock, merge_on_read, version, has_metadata=True)
        for value in (1, 2):
            rows = [Row("a", value, value), Row("b", value, value, region="south")]
            actors.commit_rows(opened_by_any(store), rows)

        def complete_another() -> None:
            clock.sleep(actors.A_HEARTBEAT_AND_MORE_S)
            assert actors.finish_compactions(opened_by_any(store)).rewritten

        stopped = InterruptedStorage(store, complete_another)
        closed: list[str] = []

        def is_before(_: int, method: str, path: str) -> bool:
            closed.extend([path] if method == "close" else [])
            return len(closed) == 2

        stopped.is_before = is_before
        assert not actors.compact(opened_by_any(stopped)).rewritten
        table = opened_by_any(store).table
        (done,) = table.timeline.completed(Action.COMMIT)
        named = sorted(stat.path or "" for stat in table.store.read_commit(done).write_stats)
        assert [p for p in data_files(store) if done.requested_at in p] == named
        assert closed[1] not in named
        assert metadata_differences(table) == []


def complete_and_archive(storage: Storage) -> None:
    wait()
    compact(storage)
    to = opened(storage)
    clean(to.table, CleaningPolicy(Retention.FILE_VERSIONS, file_versions=1))
    for number in range(3, 9):
        commit(to, [Row("c", number, number, region="west")])
        archive(to.table, ARCHIVAL, None)


def _check_archived(storage: Storage) -> None:
    timeline = opened(storage).table.timeline
    assert not timeline.pending()
    assert not timeline.completed(Action.COMMIT), "the compaction was archived"
    assert contents(storage) == ARCHIVED


def _die() -> None:
    message = "its process died"
    raise Retriable(message)


# Paused before each of its requests


def wait() -> None:
    CLOCK.sleep(A_LEASE_AND_MORE_S)


def complete_another(storage: Storage) -> None:
    wait()
    opened(storage).recover()
    if opened(storage).table.timeline.pending(Action.COMPACTION):
        compact(storage)


def undo_and_complete_another(storage: Storage) -> None:
    wait()
    if opened(storage).table.timeline.pending(Action.COMPACTION):
        undo(storage)
    complete_another(storage)


def begin_another(storage: Storage) -> Finish:
    """Begin another attempt and write its files; return a function that publishes them."""
    wait()
    opened(storage).recover()
    if not opened(storage).table.timeline.pending(Action.COMPACTION):
        return None
    second = begun(storage)
    stats = second.rewrite(LocalRunner(1))
    return lambda: second.publish(stats, dict)


ACTS = {"attempt": compact, "rollback": undo}
OTHERS = {
    "another completes": complete_another,
    "a rollback, then another completes": undo_and_complete_another,
    "another begins": begin_another,
}


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("act", ACTS)
def test_another_attempt_completes_wherever_the_first_process_is_paused(
    storage: Storage, act: str, others: str
) -> None:
    if act == "rollback":
        begun(storage).rewrite(LocalRunner(1))
    requests = _stop(copy_of(storage), ACTS[act], -1, OTHERS[others]).requests
    for nth in sample(range(requests), one_in=60):
        tried = copy_of(storage)
        stopped = _stop(tried, ACTS[act], nth, OTHERS[others])
        check_whole(tried, stopped.stopped_at, may_be_undone=act == "rollback")


@pytest.mark.parametrize("has_begun", [False, True], ids=["before it begins", "before its logs"])
def test_late_attempt_adds_nothing_to_the_metadata_table(
    version: FormatVersion, has_begun: bool
) -> None:
    """A late attempt adds no record to the metadata table.

    In version 6 the next version of a log is read right before the log is written.
    """
    storage = copy_of(_planned(version, True))
    stopped = InterruptedStorage(storage, lambda: complete_another(storage))
    begins = re.compile(r"create \.hoodie/metadata/\.hoodie/.*\.deltacommit\.requested")
    passed: list[int] = []

    def is_before(number: int, method: str, path: str) -> bool:
        if begins.fullmatch(f"{method} {path}"):
            passed.append(number)
        return bool(passed) and number == passed[0] + 2 * has_begun

    stopped.is_before = is_before
    with pytest.raises(Retriable):
        compact(stopped)
    assert stopped.stopped_at
    check_whole(storage)


def _stop(storage: Storage, act: Act, nth: int, meanwhile: Act) -> InterruptedStorage:
    """Pause a process before its nth request, while another process acts."""
    later: list[Finish] = []
    stopped = InterruptedStorage(storage, lambda: later.append(meanwhile(storage)))
    stopped.is_before = lambda number, method, path: number == nth
    try:
        act(stopped)
    except (HudiError, AssertionError):
        assert stopped.stopped_at, "it failed before it was paused"
    for finish in later:
        if finish is not None:
            with suppress(AttemptLost):  # the first process may have started a new attempt
                finish()
    return stopped
