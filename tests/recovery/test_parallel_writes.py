"""A remote store is asked in parallel, so after a failure any of several files may exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

import pytest

from lakemark.errors import HudiError, StorageUnavailable
from lakemark.operations.metadata_table import metadata_differences
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.storages.wrapped_storage import WrappedStorage
from tests.tables import Row, commit, contents, make, writer

T = TypeVar("T")


class OneFails(WrappedStorage):
    """A remote store that does not write one file of the metadata table."""

    def __init__(self, inner: Storage, nth: int | None = None) -> None:
        super().__init__(inner)
        self.is_remote = True
        self._nth = nth
        self.logs: list[str] = []

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        if path.startswith(".hoodie/metadata/") and ".log." in path:
            self.logs.append(path)
            if len(self.logs) - 1 == self._nth:
                message = f"no answer to {method} {path}"
                raise StorageUnavailable(message)
        return call()


def new_table() -> Storage:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/orders"))
    make(storage)
    commit(writer(storage), [Row("a", 1, 1)])
    return storage


def test_next_writer_recovers_whichever_log_of_the_metadata_table_is_missing() -> None:
    counting = OneFails(new_table())
    commit(writer(counting), [Row("b", 1, 1)])
    assert len(counting.logs) >= 3
    for number in range(len(counting.logs)):
        storage = new_table()
        with pytest.raises(HudiError):
            commit(writer(OneFails(storage, number)), [Row("b", 1, 1)])
        assert contents(storage) == {"a": (1, 1)}
        to = writer(storage)
        to.recover()
        commit(to, [Row("c", 1, 1)])
        assert contents(storage) == {"a": (1, 1), "c": (1, 1)}
        assert metadata_differences(to.table) == []
