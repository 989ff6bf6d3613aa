"""A published commit is acknowledged, even if the store does not answer the next requests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from lakemark.errors import StorageUnavailable
from lakemark.model.action import Action
from lakemark.operations.table_writer import TableWriter
from lakemark.services.savepoint import create_savepoint
from lakemark.storage import Storage
from tests.storages import WatchedStorage
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, writer
from tests.writers import shared_writer

T = TypeVar("T")


class SilentAfterPublication(WrappedStorage):
    """Answers no request for one folder after an instant was published."""

    def __init__(self, inner: Storage, folder: str) -> None:
        super().__init__(inner)
        self._folder = folder
        self._is_published = False
        self.unanswered = 0

    def _request(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self._is_published and path.startswith(self._folder):
            self.unanswered += 1
            message = f"no answer to {method} {path}"
            raise StorageUnavailable(message)
        self._is_published |= method == "publish"
        return call()

    _reading = _writing = _request


def opened(storage: Storage) -> TableWriter:
    return shared_writer(storage, has_metadata=False)


@pytest.mark.parametrize("folder", [".hoodie/.aux/prepared", ".hoodie/.temp", ".hoodie/.heartbeat"])
def test_commit_is_acknowledged_although_its_leftovers_cannot_be_removed(folder: str) -> None:
    storage = new_storage()
    make_plain(storage)
    silent = SilentAfterPublication(storage, folder)
    to = opened(silent)
    done = commit(to, [Row("a", 1, 1)])
    assert silent.unanswered
    assert not to.is_writing
    assert [done] == list(writer(storage).table.timeline.completed())
    commit(opened(storage), [Row("a", 2, 2)])
    assert contents(storage) == {"a": (2, 2)}


class DeletesLate(WrappedStorage):
    """Delays the requests that delete prepared content."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.delayed: list[str] = []

    def delete(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        late = [path for path in listed if path.startswith(".hoodie/.aux/prepared/")]
        self.delayed += late
        super().delete([path for path in listed if path not in late])


def test_savepoint_is_published_while_the_writer_of_its_commit_removes_its_leftovers() -> None:
    storage = new_storage()
    make_plain(storage)
    late = DeletesLate(storage)
    done = commit(opened(late), [Row("a", 1, 1)])
    assert late.delayed

    def before_write(method: str, path: str) -> None:
        if method == "publish":
            storage.delete(late.delayed)

    access = opened(WatchedStorage(storage, before_write)).table.context
    create_savepoint(access, done.requested_at, lambda timeline, at: (), "ann", "")
    assert len(writer(storage).table.timeline.completed(Action.SAVEPOINT)) == 1
