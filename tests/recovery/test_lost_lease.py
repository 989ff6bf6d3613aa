"""A writer whose lease has expired publishes nothing, wherever it was paused.

Its heartbeat is valid all the time, so that no other process rolls its instant back.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from lakemark.errors import Fenced, OutcomeUnknown, Retriable, StorageUnavailable
from lakemark.execution.runner import LocalRunner
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.storage import NotFound
from lakemark.timeline.locks.lock_provider import LOCK_PATH, LockRecord
from lakemark.timeline.locks.open_lock import open_lock
from lakemark.timeline.locks.table_lock import LeaseLost
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from lakemark.transaction.multi_writer import MultiWriter
from tests.clocks import SharedClock, on_clock
from tests.depth import sample
from tests.storages import CountingStorage
from tests.storages.interrupted_storage import InterruptedStorage
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import copy_of, make_plain, new_storage, since
from tests.tables import Row, commit, contents, make, write_files, writer
from tests.writers import SHARING, shared_writer

T = TypeVar("T")

CLOCK = SharedClock()
A_LEASE_AND_MORE_S = 61.0


@pytest.fixture(params=["memory", "disk"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "memory":
        return new_storage()
    return open_storage(StorageLocation(str(tmp_path / "table")))


def opened(storage: Storage, multi_writer: MultiWriter | None = SHARING) -> TableWriter:
    return on_clock(shared_writer(storage, multi_writer=multi_writer, has_metadata=False), CLOCK)


def expire_lease() -> None:
    CLOCK.sleep(A_LEASE_AND_MORE_S)


# Paused before any request


@pytest.fixture(scope="module")
def plain() -> Storage:
    """Create a table with one row that was written twice."""
    return _with_two_commits(make_plain)


@pytest.fixture(scope="module")
def with_metadata() -> Storage:
    return _with_two_commits(make)


def _with_two_commits(make_table: Callable[[Storage], None]) -> Storage:
    storage = new_storage()
    make_table(storage)
    for value in (1, 2):
        commit(opened(storage), [Row("a", value, value)])
    return storage


@pytest.mark.parametrize("is_expired", [False, True], ids=["beyond lease", "beyond heartbeat"])
@pytest.mark.parametrize("multi_writer", [SHARING, None], ids=["multiple", "single"])
def test_writer_publishes_in_time_or_not_at_all_wherever_it_is_paused(
    plain: Storage, multi_writer: MultiWriter | None, is_expired: bool
) -> None:
    outcomes: set[str] = set()
    nth = 0
    while outcome := _commit_paused_before(nth, copy_of(plain), multi_writer, is_expired):
        outcomes.add(outcome)
        nth += 1
    assert outcomes >= {"published before", "fenced"}


def test_metadata_table_stays_consistent_wherever_a_writer_is_paused(
    with_metadata: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    steps = _steps_in_metadata_table(copy_of(with_metadata))
    assert [path for path in steps.values() if "compaction" in path]
    for nth in sample(steps):
        assert _commit_paused_before(nth, copy_of(with_metadata), SHARING, is_expired=nth % 2 == 0)


def _steps_in_metadata_table(storage: Storage) -> dict[int, str]:
    """List the requests of a commit that create or publish an instant of the metadata table."""
    seen: list[str] = []

    def note(_: int, method: str, path: str) -> bool:
        seen.append(f"{method} {path}")
        return False

    watched = InterruptedStorage(storage, lambda: None)
    late = opened(watched)
    written = write_files(late, [Row("a", 3, 3), Row("new", 3, 3)])
    watched.is_before = note
    late.commit(written, {})
    parts = (".hoodie/metadata/.hoodie/timeline/2", ".hoodie/metadata/.hoodie/.aux/prepared/2")
    changes = ("create", "put", "publish")
    return {
        number: path
        for number, path in enumerate(seen)
        if path.startswith(changes) and any(part in path for part in parts)
    }


def _commit_paused_before(
    nth: int, storage: Storage, multi_writer: MultiWriter | None, is_expired: bool
) -> str:
    """Pause a commit before a request, and return its outcome; "" if it has fewer requests."""
    others: list[str] = []

    def others_act() -> None:
        expire_lease()
        others.extend(i.requested_at for i in writer(storage).table.timeline.completed())
        other = opened(storage)
        if is_expired:
            _forget_heartbeats(storage)
            opened(storage, multi_writer).recover()
        other.compact_if_due(CompactionPolicy(1), LocalRunner(1))
        others.append(str(commit(other, [Row("b", 9, 9, region="west")]).completed_at))

    stopped = InterruptedStorage(storage, others_act)
    late = opened(stopped, multi_writer)
    written = write_files(late, [Row("a", 3, 3), Row("new", 3, 3)])
    nth += stopped.requests
    stopped.is_before = lambda number, method, path: number == nth
    published = None
    try:
        published = late.commit(written, {})
    except (Fenced, Retriable) as error:
        assert stopped.stopped_at, error
    if stopped.stopped_at is None:
        return ""
    *before, their_completion = others
    expected = {"a": (2, 2), "b": (9, 9)}
    outcome = "fenced"
    if published is not None:
        expected |= {"a": (3, 3), "new": (3, 3)}
        in_time = published.requested_at in before
        assert in_time or str(published.completed_at) > their_completion, stopped.stopped_at
        outcome = "published before" if in_time else "published after"
    assert contents(storage) == expected, stopped.stopped_at
    _check_the_next(storage, expected, stopped.stopped_at)
    return outcome


def _check_the_next(storage: Storage, expected: dict[str, tuple[int, int]], at: str) -> None:
    _forget_heartbeats(storage)
    after = opened(storage, None)
    after.recover()
    commit(after, [Row("a", 10, 10)])
    assert contents(storage) == {**expected, "a": (10, 10)}, at
    assert metadata_differences(after.table) == [], at


def _forget_heartbeats(storage: Storage) -> None:
    storage.delete([info.path for info in storage.list_folder(HEARTBEAT_FOLDER)[1]])


def test_compaction_of_the_metadata_table_is_not_published_without_the_lock(
    with_metadata: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    storage = copy_of(with_metadata)

    def take_over() -> None:
        expire_lease()
        open_lock(storage, clock=CLOCK).acquire(wait_s=0).release()

    stopped = InterruptedStorage(storage, take_over)
    late = opened(stopped)
    stopped.is_before = lambda _, method, path: (
        method == "put" and path.startswith(".hoodie/metadata/.hoodie/.aux/prepared")
    )
    with pytest.raises(LeaseLost):
        commit(late, [Row("a", 3, 3)])
    names = [i.name for i in storage.list_folder(".hoodie/metadata/.hoodie/timeline")[1]]
    assert [name for name in names if name.endswith(".compaction.inflight")]
    assert not [name for name in names if name.endswith(".commit")]


# Whatever happened to its requests


class Unanswered(WrappedStorage):
    """Gives no answer to the first publications until others have acted; may carry them out."""

    def __init__(self, inner: Storage, meanwhile: Callable[[], object], lands: bool) -> None:
        super().__init__(inner)
        self.meanwhile, self.lands = meanwhile, lands
        self.attempts = 0

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if method != "publish":
            return call()
        self.attempts += 1
        if self.attempts > 1:
            return call()
        if self.lands:
            call()
        self.meanwhile()
        raise StorageUnavailable(path)


@pytest.mark.parametrize("lands", [False, True], ids=["lost on the way", "lost on the way back"])
def test_unanswered_publication_is_not_retried_without_the_lock(
    storage: Storage, lands: bool
) -> None:
    make_plain(storage)
    for value in (1, 2):
        commit(opened(storage), [Row("a", value, value)])

    def others_act() -> None:
        expire_lease()
        assert opened(storage).compact_if_due(CompactionPolicy(1), LocalRunner(1))

    late = opened(Unanswered(storage, others_act, lands))
    written = write_files(late, [Row("a", 3, 3)])
    if lands:
        late.commit(written, {})
    else:
        with pytest.raises(OutcomeUnknown):
            late.commit(written, {})
        assert contents(storage) == {"a": (2, 2)}
        late.abandon()
        commit(late, [Row("a", 3, 3)])
    assert contents(storage) == {"a": (3, 3)}


def test_unanswered_publication_is_retried_under_the_lock(storage: Storage) -> None:
    make_plain(storage)
    quiet = Unanswered(storage, lambda: None, lands=False)
    commit(opened(quiet), [Row("a", 3, 3)])
    assert quiet.attempts == 2
    assert contents(storage) == {"a": (3, 3)}


class Late(WrappedStorage):
    """Gives no answer to publications, and carries them out when ``carry_out`` is called."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.waiting: list[Callable[[], object]] = []

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if method != "publish":
            return call()
        self.waiting.append(call)
        raise StorageUnavailable(path)

    def carry_out(self) -> None:
        for call in self.waiting:
            with pytest.raises(NotFound):
                call()


def test_publication_that_the_store_carries_out_late_has_no_effect(storage: Storage) -> None:
    """The publication fails after its writer has given up and released the lock."""
    make_plain(storage)
    for value in (1, 2):
        commit(opened(storage), [Row("a", value, value)])
    store = Late(storage)
    late = opened(store)
    written = write_files(late, [Row("a", 3, 3)])
    with pytest.raises(OutcomeUnknown):
        late.commit(written, {})
    other = opened(storage)
    assert other.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    cursor = str(commit(other, [Row("b", 9, 9, region="west")]).completed_at)
    store.carry_out()
    assert contents(storage) == {"a": (2, 2), "b": (9, 9)}
    assert since(opened(storage).table, cursor) == []


def test_rollback_that_the_store_carries_out_late_is_not_published(storage: Storage) -> None:
    make_plain(storage)
    commit(opened(storage), [Row("a", 1, 1)])
    store = Late(storage)
    undoing = opened(store)
    write_files(undoing, [Row("a", 3, 3)])
    with pytest.raises(StorageUnavailable):
        undoing.abandon()
    store.carry_out()
    assert contents(storage) == {"a": (1, 1)}


# Consequences for other writers and readers


def test_bucket_has_one_file_group_although_its_first_writer_was_paused(
    storage: Storage,
) -> None:
    make_plain(storage)
    commit(opened(storage), [Row("z", 1, 1, region="south")])
    late = _stopped_at_publication(storage, lambda: commit(opened(storage), [Row("a", 9, 9)]))
    with pytest.raises(LeaseLost):
        commit(late, [Row("a", 3, 3)])
    assert contents(storage) == {"z": (1, 1), "a": (9, 9)}
    late.abandon()
    commit(late, [Row("a", 10, 10)])
    assert contents(storage) == {"z": (1, 1), "a": (10, 10)}


def test_no_commit_completes_behind_the_cursor_of_a_reader(storage: Storage) -> None:
    make_plain(storage)
    commit(opened(storage), [Row("z", 1, 1, region="south")])
    cursors: list[str] = []

    def others_act() -> None:
        done = commit(opened(storage), [Row("b", 9, 9, region="west")])
        cursors.append(str(done.completed_at))

    late = _stopped_at_publication(storage, others_act)
    with pytest.raises(LeaseLost):
        commit(late, [Row("a", 3, 3)])
    late.abandon()
    commit(late, [Row("a", 3, 3)])
    assert since(opened(storage).table, cursors[0]) == [("a", 3)]


def _stopped_at_publication(storage: Storage, others: Callable[[], object]) -> TableWriter:
    def others_act() -> None:
        expire_lease()
        others()

    stopped = InterruptedStorage(storage, others_act)
    stopped.is_before = lambda _, method, path: method == "publish"
    return opened(stopped)


# Takeover of the lock


def test_next_writer_completes_a_lock_takeover_that_failed(
    storage: Storage,
) -> None:
    make_plain(storage)
    commit(opened(storage), [Row("a", 1, 1)])
    CLOCK.sleep(1)

    class FailsToWithdraw(WrappedStorage):
        def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
            if method == "delete" and "prepared" in path:
                raise StorageUnavailable(path)
            return call()

    def others_act() -> None:
        failing = open_lock(FailsToWithdraw(storage), clock=CLOCK)
        with pytest.raises(StorageUnavailable):
            failing.acquire(wait_s=0)
        open_lock(storage, clock=CLOCK).acquire(wait_s=0).release()

    late = _stopped_at_publication(storage, others_act)
    with pytest.raises(LeaseLost):
        commit(late, [Row("a", 3, 3)])
    assert contents(storage) == {"a": (1, 1)}


def test_released_lock_is_acquired_without_listing_prepared_content() -> None:
    storage = CountingStorage(new_storage())
    lock = open_lock(storage, clock=CLOCK)
    lock.acquire(wait_s=0).release()
    storage.forget()
    lock.acquire(wait_s=0).release()
    assert not [r.path for r in storage.requests if "prepared" in r.path]


@pytest.mark.parametrize("attempt", [1, 2])
def test_writer_notices_a_takeover_by_apache_hudi_before_each_attempt(attempt: int) -> None:
    """The writer sends no request to publish after Apache Hudi has taken over the lock.

    Unlike lakemark, Apache Hudi deletes no prepared content, so that the request would succeed.
    """
    storage = new_storage()
    make_plain(storage)

    def apache_takes_over() -> None:
        expire_lease()
        storage.put(LOCK_PATH, LockRecord("apache", CLOCK.now_ms() + 60_000).to_bytes())

    stopped = InterruptedStorage(storage, apache_takes_over)
    stopped.is_before = _after_prepared()
    unanswered = Unanswered(storage, apache_takes_over, lands=False)
    late = opened(stopped if attempt == 1 else unanswered)
    with pytest.raises(LeaseLost if attempt == 1 else OutcomeUnknown):
        commit(late, [Row("a", 3, 3)])
    assert not writer(storage).table.timeline.completed()


def _after_prepared() -> Callable[[int, str, str], bool]:
    """Select the first request after the content was prepared."""
    is_prepared: list[str] = []

    def is_before(number: int, method: str, path: str) -> bool:
        if method == "put" and "prepared" in path:
            is_prepared.append(path)
            return False
        return bool(is_prepared)

    return is_before
