"""Changes of the properties are safe if two processes change them at the same time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from lakemark.config import keys
from lakemark.config.table_properties import BACKUP_PATH, PROPERTIES_PATH, TableProperties
from lakemark.errors import CorruptData, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.model.action import COMMITS
from lakemark.model.format_version import FormatVersion
from lakemark.operations.change_version import change_table_version
from lakemark.operations.metadata_table import (
    drop_metadata_table,
    keep_metadata_table,
    metadata_differences,
    rebuild_metadata_table,
)
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties, replace_properties
from lakemark.timeline.locks.table_lock import LeaseLost
from tests.clocks import SharedClock, on_clock
from tests.storages import WatchedStorage
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import new_storage
from tests.tables import Row, commit, contents, make, spec, writer

T = TypeVar("T")


def with_property(properties: TableProperties, key: str) -> TableProperties:
    return TableProperties({**properties.values, key: "true"})


def local(folder: Path) -> Storage:
    return open_storage(StorageLocation(str(folder)))


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    created = new_storage() if request.param == "memory" else local(tmp_path)
    created.create(PROPERTIES_PATH, spec().to_properties().to_bytes())
    return created


class BetweenSteps(WrappedStorage):
    """A storage whose backup of the properties is deleted when it is read."""

    def read(self, path: str) -> bytes:
        if path == BACKUP_PATH:
            self.inner.put(PROPERTIES_PATH, self.inner.read(BACKUP_PATH))
            self.inner.delete([BACKUP_PATH])
        return super().read(path)


def begin_to_replace(storage: Storage, left_bytes: int | None) -> bytes:
    """Leave the backup, and the first bytes of the properties, as Apache Hudi does meanwhile."""
    content = storage.read(PROPERTIES_PATH)
    storage.put(BACKUP_PATH, content)
    storage.delete([PROPERTIES_PATH])
    if left_bytes is not None:
        storage.put(PROPERTIES_PATH, content[:left_bytes])
    return content


@pytest.mark.parametrize("left_bytes", [None, 0, 40, 300])
def test_properties_are_read_while_another_program_replaces_them(
    storage: Storage, left_bytes: int | None
) -> None:
    content = begin_to_replace(storage, left_bytes)
    assert read_properties(storage) == TableProperties.parse(content)
    assert read_properties(BetweenSteps(storage)) == TableProperties.parse(content)
    assert storage.head(BACKUP_PATH) is None


def test_damaged_properties_without_a_backup_are_reported(storage: Storage) -> None:
    storage.put(PROPERTIES_PATH, b"")
    with pytest.raises(CorruptData, match=PROPERTIES_PATH):
        read_properties(storage)


def test_properties_derived_from_outdated_ones_are_refused(storage: Storage) -> None:
    before = read_properties(storage)
    theirs = with_property(before, keys.CDC_ENABLED)
    replace_properties(storage, before, theirs, lambda: None)
    with pytest.raises(WriteConflict, match="changed by another process"):
        replace_properties(
            storage, before, with_property(before, keys.DROP_PARTITION_COLUMNS), lambda: None
        )
    assert read_properties(storage).to_bytes() == theirs.to_bytes()
    assert storage.head(BACKUP_PATH) is None


def test_properties_that_another_program_is_replacing_are_not_replaced(storage: Storage) -> None:
    before = read_properties(storage)
    begin_to_replace(storage, None)
    with pytest.raises(WriteConflict, match="changed by another process"):
        replace_properties(BetweenSteps(storage), before, before, lambda: None)


def test_the_store_compares_when_properties_change_between_look_and_write() -> None:
    storage = new_storage()
    before = spec().to_properties()
    storage.create(PROPERTIES_PATH, before.to_bytes())
    theirs = with_property(before, keys.CDC_ENABLED)

    def before_write(method: str, path: str) -> None:
        storage.put(PROPERTIES_PATH, theirs.to_bytes())

    late = WatchedStorage(storage, before_write)
    with pytest.raises(WriteConflict):
        replace_properties(
            late, before, with_property(before, keys.DROP_PARTITION_COLUMNS), lambda: None
        )
    assert storage.read(PROPERTIES_PATH) == theirs.to_bytes()


def test_a_backup_is_used_when_apache_hudi_died_after_it_deleted_the_properties(
    storage: Storage,
) -> None:
    before = read_properties(storage)
    storage.put(BACKUP_PATH, before.to_bytes())
    storage.delete([PROPERTIES_PATH])
    after = with_property(before, keys.CDC_ENABLED)
    replace_properties(storage, before, after, lambda: None)
    assert storage.read(PROPERTIES_PATH) == after.to_bytes()
    assert storage.head(BACKUP_PATH) is None


CLOCK = SharedClock()


class Paused(WrappedStorage):
    """Pauses once, right after it has read the properties, while another process acts."""

    def __init__(self, inner: Storage, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._meanwhile = meanwhile
        self.has_stopped = self.is_armed = False

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        answer = super().read_versioned(path)
        if self.is_armed and not self.has_stopped and path == PROPERTIES_PATH:
            self.has_stopped = True
            CLOCK.sleep(61)
            self._meanwhile()
        return answer


def test_a_metadata_table_is_not_added_to_the_properties_of_another_version() -> None:
    """A process with outdated properties changes nothing: they name a timeline that was deleted."""
    storage = new_storage()
    created = spec(version=FormatVersion.V6)
    storage.create(PROPERTIES_PATH, created.to_properties().to_bytes())
    bare = on_clock(writer(storage), CLOCK)
    bare.settings = replace(bare.settings, metadata_table=False)
    commit(bare, [Row("a", 1, 1)])

    def upgrade() -> None:
        to = on_clock(writer(storage), CLOCK)
        change_table_version(to.table, FormatVersion.V9, LocalRunner(1))

    late = Paused(storage, upgrade)
    to = on_clock(writer(late), CLOCK)
    late.is_armed = True
    with pytest.raises((LeaseLost, WriteConflict)):
        keep_metadata_table(to.table)
    assert late.has_stopped
    assert read_properties(storage).version == FormatVersion.V9
    assert contents(storage) == {"a": (1, 1)}
    assert len(writer(storage).table.timeline.completed(*COMMITS)) >= 1


def test_a_metadata_table_that_another_process_created_meanwhile_is_not_deleted() -> None:
    storage = new_storage()
    make(storage)
    commit(on_clock(writer(storage), CLOCK), [Row("a", 1, 1)])

    def rebuild() -> None:
        rebuild_metadata_table(on_clock(writer(storage), CLOCK).table)

    class Stops(WrappedStorage):
        has_stopped = False

        def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
            answer = call()
            is_listing = method == "list_tree" and path == METADATA_FOLDER
            if is_listing and not self.has_stopped:
                self.has_stopped = True
                CLOCK.sleep(61)
                rebuild()
            return answer

    stops = Stops(storage)
    with pytest.raises(LeaseLost):
        drop_metadata_table(on_clock(writer(stops), CLOCK).table)
    assert stops.has_stopped
    assert not metadata_differences(writer(storage).table)
    assert read_properties(storage).metadata_partitions


def test_a_backup_is_read_while_the_properties_are_not_there(storage: Storage) -> None:
    storage.put(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    before = read_properties(storage)
    storage.delete([PROPERTIES_PATH])
    assert read_properties(storage).to_bytes() == before.to_bytes()
