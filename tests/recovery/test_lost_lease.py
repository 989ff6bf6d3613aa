"""A writer whose lease ran out publishes nothing, wherever it stood still and whatever came of it.

Its heartbeat is alive all the time, so nobody undoes its instant.
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
from tests.storages import CountingStorage
from tests.storages.interrupted_storage import InterruptedStorage
from tests.storages.wrapped_storage import WrappedStorage
from tests.tables import Row, commit, contents, make, write_files, writer
from tests.upkeep import copy_of, make_plain, new_storage, since
from tests.writers import SHARING, shared_writer

T = TypeVar("T")

CLOCK = SharedClock()
A_LEASE_AND_MORE_S = 61.0


@pytest.fixture(params=["memory", "disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "memory":
        return new_storage()
    return open_storage(StorageLocation(str(tmp_path / "table")))


def opened(storage: Storage, multi_writer: MultiWriter | None = SHARING) -> TableWriter:
    return on_clock(shared_writer(storage, multi_writer=multi_writer, has_metadata=False), CLOCK)


def lease_runs_out() -> None:
    CLOCK.sleep(A_LEASE_AND_MORE_S)


# Wherever it stands still


@pytest.fixture(scope="module")
def plain() -> Storage:
    """A table of one row that was written twice."""
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
def test_wherever_a_writer_stands_still_it_publishes_in_time_or_not_at_all(
    plain: Storage, multi_writer: MultiWriter | None, is_expired: bool
) -> None:
    outcomes: set[str] = set()
    nth = 0
    while outcome := _stopped_before(nth, copy_of(plain), multi_writer, is_expired):
        outcomes.add(outcome)
        nth += 1
    assert outcomes >= {"published before", "fenced"}


def test_the_metadata_table_stays_true_wherever_a_writer_stands_still(
    with_metadata: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    steps = _steps_in_metadata_table(copy_of(with_metadata))
    assert [path for path in steps.values() if "compaction" in path]
    for nth in steps:
        assert _stopped_before(nth, copy_of(with_metadata), SHARING, is_expired=nth % 2 == 0)


def _steps_in_metadata_table(storage: Storage) -> dict[int, str]:
    """Of the requests of a commit those that create or publish an instant there."""
    seen: list[str] = []

    def note(_: int, method: str, path: str) -> bool:
        seen.append(f"{method} {path}")
        return False

    watched = InterruptedStorage(storage, lambda: None)
    late = opened(watched)
    written = write_files(late, [Row("a", 3, 3), Row("new", 3, 3)])
    watched.is_before = note
    late.commit(written, {})
    places = (".hoodie/metadata/.hoodie/timeline/2", ".hoodie/metadata/.hoodie/.aux/prepared/2")
    changes = ("create", "put", "publish")
    return {
        number: path
        for number, path in enumerate(seen)
        if path.startswith(changes) and any(place in path for place in places)
    }


def _stopped_before(
    nth: int, storage: Storage, multi_writer: MultiWriter | None, is_expired: bool
) -> str:
    """What became of a commit whose writer stood still there; "" if it has fewer requests."""
    others: list[str] = []

    def others_go_on() -> None:
        lease_runs_out()
        others.extend(i.requested_at for i in writer(storage).table.timeline.completed())
        other = opened(storage)
        if is_expired:
            _forget_heartbeats(storage)
            opened(storage, multi_writer).recover()
        other.compact_if_due(CompactionPolicy(1), LocalRunner(1))
        others.append(str(commit(other, [Row("b", 9, 9, region="west")]).completed_at))

    stopped = InterruptedStorage(storage, others_go_on)
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


def test_a_compaction_of_the_metadata_table_is_not_published_without_the_lock(
    with_metadata: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    storage = copy_of(with_metadata)

    def take_over() -> None:
        lease_runs_out()
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


# Whatever came of its requests


class Unanswered(WrappedStorage):
    """Its first publications get no answer until others have gone on; some were carried out."""

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
def test_a_publication_without_an_answer_is_not_tried_again_without_the_lock(
    place: Storage, lands: bool
) -> None:
    make_plain(place)
    for value in (1, 2):
        commit(opened(place), [Row("a", value, value)])

    def others_go_on() -> None:
        lease_runs_out()
        assert opened(place).compact_if_due(CompactionPolicy(1), LocalRunner(1))

    late = opened(Unanswered(place, others_go_on, lands))
    written = write_files(late, [Row("a", 3, 3)])
    if lands:
        late.commit(written, {})
    else:
        with pytest.raises(OutcomeUnknown):
            late.commit(written, {})
        assert contents(place) == {"a": (2, 2)}
        late.abandon()
        commit(late, [Row("a", 3, 3)])
    assert contents(place) == {"a": (3, 3)}


def test_a_publication_without_an_answer_is_tried_again_under_the_lock(place: Storage) -> None:
    make_plain(place)
    quiet = Unanswered(place, lambda: None, lands=False)
    commit(opened(quiet), [Row("a", 3, 3)])
    assert quiet.attempts == 2
    assert contents(place) == {"a": (3, 3)}


class Late(WrappedStorage):
    """It gives no answer to publications, and carries them out only when it is told to."""

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


def test_a_publication_that_the_store_carries_out_late_publishes_nothing(place: Storage) -> None:
    """Its writer has given up and released the lock, but has not undone its instant yet."""
    make_plain(place)
    for value in (1, 2):
        commit(opened(place), [Row("a", value, value)])
    store = Late(place)
    late = opened(store)
    written = write_files(late, [Row("a", 3, 3)])
    with pytest.raises(OutcomeUnknown):
        late.commit(written, {})
    other = opened(place)
    assert other.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    cursor = str(commit(other, [Row("b", 9, 9, region="west")]).completed_at)
    store.carry_out()
    assert contents(place) == {"a": (2, 2), "b": (9, 9)}
    assert since(opened(place).table, cursor) == []


def test_a_rollback_that_the_store_carries_out_late_is_not_published(place: Storage) -> None:
    make_plain(place)
    commit(opened(place), [Row("a", 1, 1)])
    store = Late(place)
    undoing = opened(store)
    write_files(undoing, [Row("a", 3, 3)])
    with pytest.raises(StorageUnavailable):
        undoing.abandon()
    store.carry_out()
    assert contents(place) == {"a": (1, 1)}


# What it does not do


def test_a_bucket_has_one_file_group_although_its_first_writer_stood_still(
    place: Storage,
) -> None:
    make_plain(place)
    commit(opened(place), [Row("z", 1, 1, region="south")])
    late = _stopped_at_publication(place, lambda: commit(opened(place), [Row("a", 9, 9)]))
    with pytest.raises(LeaseLost):
        commit(late, [Row("a", 3, 3)])
    assert contents(place) == {"z": (1, 1), "a": (9, 9)}
    late.abandon()
    commit(late, [Row("a", 10, 10)])
    assert contents(place) == {"z": (1, 1), "a": (10, 10)}


def test_no_commit_completes_behind_the_cursor_of_a_reader(place: Storage) -> None:
    make_plain(place)
    commit(opened(place), [Row("z", 1, 1, region="south")])
    cursors: list[str] = []

    def others_go_on() -> None:
        done = commit(opened(place), [Row("b", 9, 9, region="west")])
        cursors.append(str(done.completed_at))

    late = _stopped_at_publication(place, others_go_on)
    with pytest.raises(LeaseLost):
        commit(late, [Row("a", 3, 3)])
    late.abandon()
    commit(late, [Row("a", 3, 3)])
    assert since(opened(place).table, cursors[0]) == [("a", 3)]


def _stopped_at_publication(place: Storage, others: Callable[[], object]) -> TableWriter:
    def others_go_on() -> None:
        lease_runs_out()
        others()

    stopped = InterruptedStorage(place, others_go_on)
    stopped.is_before = lambda _, method, path: method == "publish"
    return opened(stopped)


# Who takes the lock over


def test_a_writer_that_dies_or_fails_as_it_takes_the_lock_over_leaves_that_to_the_next(
    place: Storage,
) -> None:
    make_plain(place)
    commit(opened(place), [Row("a", 1, 1)])
    CLOCK.sleep(1)

    class FailsToWithdraw(WrappedStorage):
        def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
            if method == "delete" and "prepared" in path:
                raise StorageUnavailable(path)
            return call()

    def others_go_on() -> None:
        failing = open_lock(FailsToWithdraw(place), clock=CLOCK)
        with pytest.raises(StorageUnavailable):
            failing.acquire(wait_s=0)
        open_lock(place, clock=CLOCK).acquire(wait_s=0).release()

    late = _stopped_at_publication(place, others_go_on)
    with pytest.raises(LeaseLost):
        commit(late, [Row("a", 3, 3)])
    assert contents(place) == {"a": (1, 1)}


def test_a_lock_that_was_released_is_acquired_without_a_look_at_what_is_prepared() -> None:
    storage = CountingStorage(new_storage())
    lock = open_lock(storage, clock=CLOCK)
    lock.acquire(wait_s=0).release()
    storage.forget()
    lock.acquire(wait_s=0).release()
    assert not [r.path for r in storage.requests if "prepared" in r.path]


@pytest.mark.parametrize("attempt", [1, 2])
def test_a_lock_that_apache_hudi_took_over_is_noticed_before_each_attempt(attempt: int) -> None:
    """It removes no prepared content, so the writer must not even ask for the publication."""
    storage = new_storage()
    make_plain(storage)

    def apache_takes_over() -> None:
        lease_runs_out()
        storage.put(LOCK_PATH, LockRecord("apache", CLOCK.now_ms() + 60_000).to_bytes())

    stopped = InterruptedStorage(storage, apache_takes_over)
    stopped.is_before = _after_prepared()
    unanswered = Unanswered(storage, apache_takes_over, lands=False)
    late = opened(stopped if attempt == 1 else unanswered)
    with pytest.raises(LeaseLost if attempt == 1 else OutcomeUnknown):
        commit(late, [Row("a", 3, 3)])
    assert not writer(storage).table.timeline.completed()


def _after_prepared() -> Callable[[int, str, str], bool]:
    """Before the first request that follows the preparation."""
    is_prepared: list[str] = []

    def is_before(number: int, method: str, path: str) -> bool:
        if method == "put" and "prepared" in path:
            is_prepared.append(path)
            return False
        return bool(is_prepared)

    return is_before
