"""A writer that is replaced while it is paused before its publication publishes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from lakemark.errors import Fenced, HudiError
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage
from lakemark.timeline.clock import TimelineClock
from tests.clocks import SharedClock, on_clock
from tests.depth import sample
from tests.storages import WatchedStorage
from tests.storages.wrapped_storage import WrappedStorage
from tests.tables import Row, commit, contents, data_files, make, write_files, writer

T = TypeVar("T")

OLD, NEW = [Row("a", 1, 1), Row("b", 1, 1)], [Row("a", 2, 2), Row("c", 2, 2)]


class StoppedBefore(WrappedStorage):
    """Calls a function before its ``nth`` write, as if the process were paused there."""

    def __init__(self, inner: Storage, nth: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(inner)
        self.nth, self.meanwhile = nth, meanwhile
        self.writes: list[str] = []
        self.stopped_at: str | None = None

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if len(self.writes) == self.nth:
            self.stopped_at = f"{method} {path}"
            self.meanwhile()
        self.writes.append(path)
        return call()

    @property
    def can_be_rolled_back(self) -> bool:
        """Whether the writer had begun its instant, and not completed it, when it was stopped.

        The number of writes differs between commits: some compact the metadata table as well.
        """
        before = [path for path in self.writes[: self.nth] if not path.startswith(METADATA_FOLDER)]
        begun = any(path.endswith(".deltacommit.inflight") for path in before)
        return begun and not any(path.endswith(".deltacommit") for path in before)


CLOCK = SharedClock()


def impatient(to: TableWriter) -> TableWriter:
    return on_clock(to, CLOCK)


def test_replaced_writer_is_fenced_or_published_wherever_it_paused(storage: Storage) -> None:
    make(storage)
    commit(writer(storage), [Row("z", 1, 1)])
    writes: list[str] = []
    watched = WatchedStorage(storage, lambda _, path: writes.append(path))
    commit(impatient(writer(watched)), [Row("z", 2, 2)])
    in_memory = storage.location.url.startswith("memory:")
    # The steps are the same on every storage; in memory, where they are fast, more are tested.
    for nth in sample(range(len(writes)), one_in=2 if in_memory else 5):
        _replace_a_writer_stopped_before(storage, nth)


def _replace_a_writer_stopped_before(storage: Storage, nth: int) -> None:
    """Replace a writer before its ``nth`` write, and check what happened to its commit."""
    before = contents(storage)

    def replacement() -> None:
        newer = impatient(writer(storage))
        try:
            newer.recover()
            commit(newer, [Row(f"new{nth}", 9, 9)])
        except HudiError as error:
            raise AssertionError(nth) from error

    stopping = StoppedBefore(storage, nth, replacement)
    older = impatient(writer(stopping))
    try:
        commit(older, [Row(f"old{nth}", 9, 9)])
        is_published = True
    except HudiError:
        is_published = False
    assert stopping.stopped_at is not None
    expected = {**before, f"new{nth}": (9, 9)}
    if is_published:
        expected[f"old{nth}"] = (9, 9)
    assert contents(storage) == expected, stopping.stopped_at
    # The files of the old writer must stay invisible: the next start removes pending instants.
    impatient(writer(storage)).recover()
    assert contents(storage) == expected, stopping.stopped_at
    assert is_published is not stopping.can_be_rolled_back, stopping.stopped_at


def test_writer_paused_before_its_publication_finds_its_instant_rolled_back(
    storage: Storage,
) -> None:
    make(storage)
    commit(writer(storage), OLD)
    stopped = writer(storage)
    written = write_files(stopped, NEW)
    stopped_instant = stopped.pending_instant

    replacement = writer(storage)
    assert replacement.recover() == [stopped_instant]
    commit(replacement, [Row("a", 3, 3)])

    with pytest.raises(Fenced, match="rolled it back"):
        stopped.commit(written, {})
    assert contents(storage) == {"a": (3, 3), "b": (1, 1)}
    assert not [path for path in data_files(storage) if stopped_instant in path]


def test_commit_whose_precondition_fails_under_the_lock_publishes_nothing(storage: Storage) -> None:
    make(storage)
    commit(writer(storage), OLD)
    late = writer(storage)
    written = write_files(late, NEW)

    def moved(_: object) -> None:
        raise Fenced(late.pending_instant, "the checkpoint moved")

    with pytest.raises(Fenced, match="moved"):
        late.commit(written, {}, moved)
    late.abandon()
    assert contents(storage) == {"a": (1, 1), "b": (1, 1)}
    assert not writer(storage).table.timeline.pending()


def test_two_writers_that_generate_the_same_time_do_not_share_an_instant(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(storage)
    commit(writer(storage), OLD)
    slow, fast = writer(storage), writer(storage)
    slow.table.timeline  # noqa: B018 (both have read the timeline before either begins)
    generated = fast.table.store.clock.next_instant(fast.table.timeline.newest_time)
    times, next_instant = iter([generated, generated]), TimelineClock.next_instant
    monkeypatch.setattr(
        TimelineClock,
        "next_instant",
        lambda clock, newest, *turn: next(times, None) or next_instant(clock, newest, *turn),
    )
    written = write_files(fast, [Row("a", 2, 2)])
    others = write_files(slow, [Row("b", 2, 2)])
    assert slow.pending_instant != fast.pending_instant == generated
    fast.commit(written, {})
    assert contents(storage) == {"a": (2, 2), "b": (1, 1)}
    slow.commit(others, {})
    assert contents(storage) == {"a": (2, 2), "b": (2, 2)}
