"""The store copies an object after its client gave up, and after the instant was rolled back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pyarrow as pa
import pytest

from lakemark.config.table_properties import PROPERTIES_PATH, TableType
from lakemark.errors import OutcomeUnknown, StorageUnavailable
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import Operation
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.compact import request_compaction
from lakemark.operations.create_index import create_index
from lakemark.operations.metadata_table import (
    drop_metadata_table,
    keep_metadata_table,
    metadata_differences,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.services.savepoint import create_savepoint
from lakemark.storage import Storage
from lakemark.storage.storage import PreconditionFailed
from lakemark.transaction.heartbeat import HeartbeatPolicy
from lakemark.transaction.multi_writer import MultiWriter
from lakemark.transaction.rollback import roll_back_named
from tests.clocks import SharedClock, on_clock
from tests.depth import sample
from tests.storages import CountingStorage, SimulatedCrash
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import copy_of, new_storage
from tests.tables import (
    Row,
    commit,
    contents,
    data_files,
    lookup_writer,
    make,
    reopened,
    spec,
    writer,
)

T = TypeVar("T")

CLOCK = SharedClock()
SHARING = MultiWriter(HeartbeatPolicy(60.0, 2), clock_skew_ms=1)

VERSIONS = [FormatVersion.V6, FormatVersion.V9]
OLD = {"a": (1, 1)}


@dataclass
class Copy:
    """A completed instant that the store will create from content that it has read."""

    storage: Storage
    path: str
    content: bytes

    def land(self) -> None:
        self.storage.create(self.path, self.content)


@dataclass
class SlowCopies(WrappedStorage):
    """Gives no answer to the publication of a commit of the table, and copies the object later."""

    inner: Storage
    copies: list[Copy] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(self.inner)

    def publish(self, prepared: str, path: str) -> None:
        if path.startswith(".hoodie/metadata/") or not path.endswith("commit"):
            super().publish(prepared, path)
            return
        self.copies.append(Copy(self.inner, path, self.inner.read(prepared)))
        raise StorageUnavailable(path)


def started(storage: Storage, has_metadata: bool = True) -> TableWriter:
    to = on_clock(writer(storage), CLOCK)
    to.settings = replace(to.settings, metadata_table=has_metadata)
    return to


def new_table(
    table_type: TableType = TableType.MERGE_ON_READ,
    version: FormatVersion = FormatVersion.V9,
    has_metadata: bool = False,
) -> Storage:
    storage = new_storage()
    made = spec(table_type, version=version)
    storage.create(PROPERTIES_PATH, made.to_properties().to_bytes())
    if has_metadata:
        keep_metadata_table(started(storage).table)
    commit(started(storage, has_metadata), [Row("a", 1, 1)])
    return storage


def undone_copy(storage: Storage, has_metadata: bool = False) -> Copy:
    """Return the copy of a commit whose writer got no answer and rolled it back."""
    slow = SlowCopies(storage)
    to = started(slow, has_metadata)
    with pytest.raises(OutcomeUnknown):
        commit(to, [Row("a", 2, 2), Row("b", 2, 2)])
    to.abandon()
    return slow.copies[0]


def commits(storage: Storage) -> tuple[Instant, ...]:
    return started(storage).table.timeline.completed(*COMMITS)


@pytest.mark.parametrize("has_metadata", [False, True], ids=["listing", "metadata"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TableType)
def test_commit_that_completes_after_its_rollback_is_undone_at_the_next_start(
    table_type: TableType, version: FormatVersion, has_metadata: bool
) -> None:
    storage = new_table(table_type, version, has_metadata)
    before = commits(storage)
    undone_copy(storage, has_metadata).land()
    assert len(commits(storage)) == 2
    (name,) = started(storage, has_metadata).recover()
    assert commits(storage) == before
    assert contents(storage) == OLD
    assert not [path for path in data_files(storage) if name in path]
    commit(started(storage, has_metadata), [Row("c", 3, 3)])
    assert contents(storage) == {**OLD, "c": (3, 3)}
    assert not metadata_differences(started(storage).table)
    assert started(storage, has_metadata).recover() == []


@pytest.mark.parametrize("has_metadata", [False, True], ids=["listing", "metadata"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("table_type", TableType)
def test_overwrite_that_completes_after_its_rollback_hides_no_row(
    table_type: TableType, version: FormatVersion, has_metadata: bool
) -> None:
    storage = new_table(table_type, version, has_metadata)
    before = commits(storage)
    slow = SlowCopies(storage)
    given = pa.table({"id": ["b"], "region": ["north"], "ts": [2], "v": [2]})
    with pytest.raises(OutcomeUnknown):
        RowWriter(started(slow).table).overwrite(given, Operation.INSERT_OVERWRITE)
    started(storage, has_metadata).recover()
    slow.copies[0].land()
    assert len(commits(storage)) == 2
    assert len(started(storage, has_metadata).recover()) == 1
    assert commits(storage) == before
    assert contents(storage) == OLD
    assert not metadata_differences(started(storage).table)
    assert started(storage, has_metadata).recover() == []


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_deletion_that_completes_after_its_rollback_hides_no_later_row(
    version: FormatVersion, is_written: bool
) -> None:
    storage = new_table(version=version, has_metadata=True)
    slow = SlowCopies(storage)
    with pytest.raises(OutcomeUnknown):
        RowWriter(started(slow).table).delete_partitions(lambda _: ["north"])
    started(storage).recover()
    if is_written:
        commit(started(storage), [Row("a", 3, 3)])
    slow.copies[0].land()
    assert bool(started(storage).recover()) is is_written
    assert contents(storage) == ({"a": (3, 3)} if is_written else {})
    assert not metadata_differences(started(storage).table)


def test_late_commit_is_undone_after_later_commits_as_well() -> None:
    storage = new_table()
    copy = undone_copy(storage)
    commit(started(storage), [Row("c", 3, 3)])
    copy.land()
    commit(started(storage), [Row("d", 4, 4)])
    assert len(started(storage).recover()) == 1
    assert contents(storage) == {**OLD, "c": (3, 3), "d": (4, 4)}
    assert len(commits(storage)) == 3


def test_writer_of_a_shared_table_undoes_a_late_commit_after_its_own_batch() -> None:
    storage = new_table()
    copy = undone_copy(storage)
    counting = CountingStorage(storage)
    to = reopened(started(counting, False), multi_writer=SHARING)
    to.recover()
    commit(to, [Row("c", 3, 3)])
    assert to.clear_dead() == []
    counting.forget()
    assert to.clear_dead() == []
    assert not counting.requests
    copy.land()
    commit(to, [Row("d", 4, 4)])
    assert len(to.clear_dead()) == 1
    assert contents(storage) == {**OLD, "c": (3, 3), "d": (4, 4)}


def test_commit_that_completes_after_a_restore_undid_it_is_undone_again() -> None:
    storage = new_table()
    late = Copy(storage, "", b"")
    commit(started(storage), [Row("b", 2, 2)])
    first, second = commits(storage)
    store = started(storage).table.store
    late.path = store.path_of(second)
    late.content = storage.read(late.path)
    restore(started(storage).table.context, first.requested_at, True)
    late.land()
    assert started(storage).recover() == [second.requested_at]
    assert commits(storage) == (first,)
    assert contents(storage) == OLD


def test_compaction_that_is_executed_again_after_its_rollback_is_kept() -> None:
    storage = new_table()
    commit(started(storage), [Row("a", 2, 2)])
    planned = request_compaction(started(storage).table)
    assert planned is not None
    started(storage).begin_compaction(planned)
    roll_back_named(started(storage).table.context, planned[0].requested_at)
    assert started(storage).compact_if_due(CompactionPolicy(1), LocalRunner(1))
    expected = commits(storage)
    assert started(storage, False).recover() == []
    assert commits(storage) == expected
    assert contents(storage) == {"a": (2, 2)}


def keep_savepoint(storage: Storage) -> None:
    newest = commits(storage)[-1].requested_at
    create_savepoint(started(storage).table.context, newest, lambda timeline, at: (), "ann", "")


@pytest.mark.parametrize("has_files", [False, True])
@pytest.mark.parametrize("has_savepoint", [False, True])
def test_late_commit_that_has_its_files_or_a_savepoint_is_kept(
    has_files: bool, has_savepoint: bool
) -> None:
    storage = new_table()
    slow = SlowCopies(storage)
    to = started(slow, False)
    with pytest.raises(OutcomeUnknown):
        commit(to, [Row("b", 2, 2)])
    files = {path: storage.read(path) for path in data_files(storage)}
    to.abandon()
    slow.copies[0].land()
    for path, content in files.items() if has_files else ():
        storage.put(path, content)
    if has_savepoint:
        keep_savepoint(storage)
    is_kept = has_files or has_savepoint
    assert bool(started(storage, False).recover()) is not is_kept
    assert len(commits(storage)) == 1 + is_kept


class DiesAt(WrappedStorage):
    """The storage of a process that dies before one of its writes, or that only counts them."""

    def __init__(self, inner: Storage, nth: int | None = None) -> None:
        super().__init__(inner)
        self._nth, self.writes = nth, 0

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.writes == self._nth:
            raise SimulatedCrash
        self.writes += 1
        return call()


def after_each_death(origin: Storage, act: Callable[[Storage], object]) -> Iterator[Storage]:
    """Yield copies of a store after a process died before a write, and after it did all of them.

    The seed draws the writes at a depth below 1.
    """
    whole = DiesAt(copy_of(origin))
    act(whole)
    assert whole.writes > 3
    for nth in [*sample(range(whole.writes), name=act.__name__), whole.writes]:
        storage = copy_of(origin)
        with suppress(SimulatedCrash):
            act(DiesAt(storage, nth))
        CLOCK.sleep(61)
        yield storage


def test_next_start_finishes_undoing_a_late_commit_after_a_death_at_any_write() -> None:
    """Queries read no row of the late commit, whichever write the process died at."""

    def undo(storage: Storage) -> None:
        started(storage).recover()

    origin = new_table(has_metadata=True)
    undone_copy(origin, True).land()
    for storage in after_each_death(origin, undo):
        started(storage).recover()
        assert contents(storage) == OLD
        assert len(commits(storage)) == 1
        assert not metadata_differences(started(storage).table)


def test_index_that_was_built_later_is_dropped_after_a_death_at_any_write_of_a_rollback() -> None:
    """After a death, the undone commit looks as if it had never completed."""

    def opened(storage: Storage) -> TableWriter:
        return on_clock(lookup_writer(storage), CLOCK)

    origin = new_storage()
    make(origin)
    commit(opened(origin), [Row("a", 1, 1)])
    deleted = RowWriter(opened(origin).table).delete_partitions(lambda _: ["north"]).instant
    create_index(opened(origin).table, "record_index")
    assert deleted is not None

    def undo(storage: Storage) -> None:
        roll_back_named(opened(storage).table.context, deleted)

    undone = False
    for storage in after_each_death(origin, undo):
        opened(storage).recover()
        undone = contents(storage) == OLD
        assert undone or not contents(storage)
        assert not metadata_differences(opened(storage).table)
    assert undone, "a process that did not die has undone it"


class SlowReplacement(WrappedStorage):
    """Gives no answer to the request that names a metadata table in the properties."""

    late: Callable[[], str] | None = None

    def replace(self, path: str, data: bytes, version: str) -> str:
        if path == PROPERTIES_PATH and b"hoodie.table.metadata.partitions" in data:
            self.late = lambda: self.inner.replace(path, data, version)
            message = f"no answer to replace {path}"
            raise StorageUnavailable(message)
        return self.inner.replace(path, data, version)


def test_metadata_table_is_not_named_after_it_was_dropped() -> None:
    """If the properties named it, queries would fail until the next writer starts."""
    storage = new_storage()
    storage.create(PROPERTIES_PATH, spec().to_properties().to_bytes())
    slow = SlowReplacement(storage)
    with pytest.raises(StorageUnavailable):
        keep_metadata_table(on_clock(writer(slow), CLOCK).table)
    assert slow.late is not None
    CLOCK.sleep(61)
    drop_metadata_table(on_clock(writer(storage), CLOCK).table)
    with pytest.raises(PreconditionFailed):
        slow.late()
    to = on_clock(writer(storage), CLOCK)
    keep_metadata_table(to.table)
    commit(to, [Row("a", 1, 1)])
    assert contents(storage) == OLD
    assert metadata_differences(to.table) == []
