"""A restore or a rebuild drops the metadata table, and dies, or another process is opening it."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import TypeVar

import pytest

from lakemark.config.table_properties import PROPERTIES_PATH
from lakemark.errors import CorruptData, SnapshotChanged
from lakemark.metadata.bootstrap import drop_metadata_table
from lakemark.model.action import Action, State
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import (
    compact_and_maintain_metadata_table,
    keep_metadata_table,
    metadata_differences,
)
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.metadata_table_services import MetadataPolicies
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.layout import TimelineLayout, layout_of
from lakemark.timeline.lsm_manifest import VERSION_FILE
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import copy_of, new_storage
from tests.tables import Row, commit, contents, make, spec, writer

METADATA = ".hoodie/metadata"
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


class Watched(WrappedStorage):
    """Calls a function after each deletion, where the process may die."""

    def __init__(self, inner: Storage, after_deletion: Callable[[], None]) -> None:
        super().__init__(inner)
        self._after_deletion = after_deletion

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        result = call()
        if method == "delete" and path.startswith(METADATA):
            self._after_deletion()
        return result


def own_storage(storage: Storage) -> Storage:
    return FolderStorage(storage, METADATA)


def files_by_state(
    storage: Storage, layout: TimelineLayout
) -> dict[State, set[tuple[str, Action]]]:
    """Return the time and the final action of the instants that have a file of each state."""
    _, objects = storage.list_folder(layout.folder)
    found = [one for info in objects if (one := layout.parse(info.name)) is not None]
    return {
        state: {(i.requested_at, i.action.completes_as) for i in found if i.state is state}
        for state in State
    }


def check_history(storage: Storage, layout: TimelineLayout) -> None:
    """Check that each file of the history that is named elsewhere still exists."""
    _, objects = storage.list_folder(layout.archive_folder)
    names = {info.name for info in objects}
    if VERSION_FILE in names:
        number = storage.read(f"{layout.archive_folder}/{VERSION_FILE}").decode()
        assert f"manifest_{number}" in names
    for name in names:
        if name.startswith("manifest_"):
            listed = json.loads(storage.read(f"{layout.archive_folder}/{name}"))["files"]
            assert {file["fileName"] for file in listed} <= names


def table_with_all_kinds_of_instants(version: FormatVersion) -> Storage:
    """Make a table whose metadata table was compacted and archived, and has pending instants."""
    storage = new_storage()
    storage.create(PROPERTIES_PATH, spec(version=version).to_properties().to_bytes())
    keep_metadata_table(writer(storage).table)
    policies = MetadataPolicies(CleaningPolicy(commits=2), ArchivalPolicy(2, 3, 1))
    to = writer(storage)
    for number in range(8):
        commit(to, [Row("a", number, number)])
        compact_and_maintain_metadata_table(to.table, policies)
    own = own_storage(storage)
    layout = layout_of(read_properties(own), version)
    for at, action in (
        ("30000101000000000", Action.COMPACTION),
        ("30000101000000001", Action.DELTA_COMMIT),
    ):
        for state in (State.REQUESTED, State.INFLIGHT):
            own.create(f"{layout.folder}/{layout.name_of(Instant(at, action, state))}", b"")
    return storage


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
def test_what_a_dead_drop_leaves_misleads_no_writer(
    version: FormatVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What remains after each deletion is what Apache Hudi ignores, and a rebuild deletes it.

    Apache Hudi executes the plan of a pending compaction that it finds, and reads the history.
    """
    monkeypatch.setattr("lakemark.metadata.metadata_compaction.EVERY_DELTA_COMMITS", 2)
    numbers = count(10, 10)  # so that no two metadata tables have files of the same names
    monkeypatch.setattr("lakemark.metadata.bootstrap.draw_first_number", lambda _: next(numbers))
    storage = table_with_all_kinds_of_instants(version)
    own, before = own_storage(storage), {info.path for info in storage.list_tree(METADATA)}
    layout = layout_of(read_properties(own), version)
    assert own.list_folder(layout.archive_folder)[1]
    first = files_by_state(own, layout)
    assert any(action is Action.COMMIT for _, action in first[State.COMPLETED])
    deletions: list[int] = []

    def check() -> None:
        assert own.head(PROPERTIES_PATH) is None, "readers see at once that it was dropped"
        left = files_by_state(own, layout)
        assert left[State.INFLIGHT] <= left[State.REQUESTED] | left[State.COMPLETED]
        pending = left[State.REQUESTED] - left[State.COMPLETED]
        assert pending <= first[State.REQUESTED] - first[State.COMPLETED]
        check_history(own, layout)
        deletions.append(len(deletions))
        if len(deletions) % 8 == 1:
            check_rebuild(copy_of(storage), before)

    drop_metadata_table(Watched(storage, check), read_properties(storage), lambda: None)
    assert len(deletions) == len(before)


def check_rebuild(storage: Storage, before: set[str]) -> None:
    """Check that a rebuild keeps no file of the dropped metadata table."""
    to = writer(storage)
    keep_metadata_table(to.table)
    kept = {info.path for info in storage.list_tree(METADATA)} & before
    assert all(path.endswith((PROPERTIES_PATH, ".hoodie_partition_metadata")) for path in kept)
    commit(to, [Row("a", 9, 9)])
    assert metadata_differences(to.table) == []
    assert contents(storage) == {"a": (9, 9)}
