"""A restore or a rebuild drops the metadata table while another process is opening it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from lakemark.errors import CorruptData, SnapshotChanged
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.operations.metadata_table import keep_metadata_table
from lakemark.storage import Storage
from lakemark.storage.properties_file import read_properties
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import new_storage
from tests.tables import Row, commit, contents, make, writer

PROPERTIES = ".hoodie/metadata/.hoodie/hoodie.properties"

T = TypeVar("T")


class DroppedWhileOpened(WrappedStorage):
    """Drops the metadata table right before it is opened, as another process may do."""

    def __init__(self, inner: Storage, opened_before: int = 0) -> None:
        super().__init__(inner)
        self._opened_before = opened_before

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        if path == PROPERTIES and self._opened_before == 0:
            drop_metadata_table(self.inner, read_properties(self.inner), lambda: None)
        self._opened_before -= path == PROPERTIES
        return call()


@pytest.fixture
def storage() -> Storage:
    made = new_storage()
    make(made)
    commit(writer(made), [Row("a", 1, 1)])
    return made


def test_reader_lists_storage_if_the_metadata_table_is_dropped(storage: Storage) -> None:
    assert contents(DroppedWhileOpened(storage)) == {"a": (1, 1)}


def test_writer_can_restart_if_the_metadata_table_is_dropped(storage: Storage) -> None:
    starting = writer(DroppedWhileOpened(storage, opened_before=1)).table
    with pytest.raises(SnapshotChanged, match="start again"):
        keep_metadata_table(starting)
    again = writer(storage)
    assert keep_metadata_table(again.table) is not None
    commit(again, [Row("a", 2, 2)])
    assert contents(storage) == {"a": (2, 2)}


def test_missing_metadata_table_is_an_error_if_the_properties_name_it(storage: Storage) -> None:
    storage.delete([info.path for info in storage.list_tree(".hoodie/metadata")])
    with pytest.raises(CorruptData, match="--rebuild"):
        contents(storage)
