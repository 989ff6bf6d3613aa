"""File groups of a partitioned record index that a commit creates, and then does not complete."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import pyarrow as pa
import pytest

from lakemark.errors import WriteConflict
from lakemark.metadata.metadata_store import MetadataStore
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_shards import PartitionedChanges
from lakemark.metadata.record_index_records import KeysOfGroup, encode_locations
from lakemark.model.action import COMMITS
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.storage.properties_file import read_properties
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.transaction.rollback import recover, roll_back_named
from tests.storages import SimulatedCrash
from tests.storages.wrapped_storage import WrappedStorage
from tests.tables import Row, commit, write_files
from tests.unit.metadata.partitioned_indexes import (
    NAME,
    indexed,
    new_table,
    reopened,
    rows_of,
    shards_in,
)

each_version = pytest.mark.parametrize("version", WRITTEN)
NEWER = [version for version in WRITTEN if version >= FormatVersion.V8]


#: Patterns of paths: a log of the index, and the completed instants of both tables.
LOG_OF_INDEX = r".*/record_index/[^/]*south[^/]*"
METADATA_COMMIT = r"\.hoodie/metadata/\.hoodie/(timeline/)?[^/]+\.deltacommit"
COMMIT = r"\.hoodie/(timeline/)?[^/]+\.deltacommit"

T = TypeVar("T")


class DyingStorage(WrappedStorage):
    """Dies before the first write to a path that matches a pattern, and works again if revived."""

    def __init__(self, inner: Storage, pattern: str) -> None:
        super().__init__(inner)
        self.pattern, self.is_dead = re.compile(pattern), False

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        if self.is_dead:
            raise SimulatedCrash
        return call()

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        self.is_dead |= self.pattern.fullmatch(path) is not None
        return self._reading(method, path, call)

    def revive(self) -> None:
        """Let all later requests work, as after an interruption of the network."""
        self.pattern, self.is_dead = re.compile(""), False
        forget_locks(self.inner)


def forget_locks(storage: Storage) -> None:
    storage.delete([info.path for info in storage.list_tree(".hoodie/.locks")])


def in_south(ts: int = 2, keys: str = "abc") -> list[Row]:
    return [Row(key, ts, ts, region="south") for key in keys]


@pytest.mark.parametrize(
    "dies_at",
    [LOG_OF_INDEX, METADATA_COMMIT, COMMIT],
    ids=["log of the index", "metadata commit", "commit"],
)
@each_version
def test_a_writer_that_dies_does_not_take_the_keys_of_others_with_it(
    version: FormatVersion, dies_at: str
) -> None:
    to = new_table(version=version)
    commit(to, [Row("x", 1)])
    storage = to.table.storage
    other = reopened(storage)
    files = write_files(other, in_south())
    with pytest.raises(SimulatedCrash):
        commit(reopened(DyingStorage(storage, dies_at)), [Row("z", 2, region="south")])
    forget_locks(storage)
    if version is FormatVersion.V6 and dies_at != LOG_OF_INDEX:
        with pytest.raises(WriteConflict, match="lakemark table rollback TABLE"):
            other.commit(files, {})
        other.abandon()
        other.recover()
        commit(other, in_south())
    else:
        other.commit(files, {})
    to = reopened(storage)
    to.recover()
    assert indexed(to) == rows_of(storage) == {"north/x", "south/a", "south/b", "south/c"}
    commit(to, in_south(3))
    assert indexed(to) == rows_of(storage) == {"north/x", "south/a", "south/b", "south/c"}


@pytest.mark.parametrize("version", NEWER)
def test_a_writer_with_more_file_groups_that_dies_leaves_a_whole_series(
    version: FormatVersion,
) -> None:
    """Apache Hudi may create several file groups (``….min.filegroup.count``)."""
    to = new_table(version=version)
    commit(to, [Row("x", 1)])
    storage = to.table.storage
    other, dead = reopened(storage), reopened(storage)
    files = write_files(other, in_south(keys="a"))
    write_files(dead, [Row("z", 2, region="south")])
    pending = max(to.table.store.load().pending(*COMMITS), key=lambda one: one.requested_at)
    commit_to_index(to, pending, 3)
    other.commit(files, {})
    assert len([one for one in shards_in(storage) if "south" in one]) == 3
    assert rows_of(storage) == {"north/x", "south/a"}
    roll_back_named(reopened(storage).table.context, pending.requested_at)
    to = reopened(storage)
    assert indexed(to) == {"north/x", "south/a"}
    commit(to, in_south(3, "abcdefg"))
    assert indexed(to) == rows_of(storage)


def commit_to_index(to: TableWriter, pending: Instant, groups: int) -> None:
    """Commit a key of a new partition to the metadata table only, as a writer that then dies."""
    own = FolderStorage(to.table.storage, METADATA_FOLDER)
    instants = TimelineStore.of_table(own, read_properties(own), clock=to.table.store.clock)
    keys = KeysOfGroup(FileGroupId("south", "f0-0"), pending.requested_at, pa.array(["z"]))
    added = encode_locations([keys], pa.array([], pa.string()), UTC_CLOCK)
    changes = PartitionedChanges({"south": added}, {}, {"south": groups})
    MetadataStore(own, instants, instants.load()).commit(pending, {NAME: changes}, lambda: None)


@each_version
def test_a_writer_does_not_rely_on_file_groups_of_its_own_failed_commit(
    version: FormatVersion,
) -> None:
    to = new_table(version=version)
    commit(to, [Row("x", 1)])
    storage = to.table.storage
    failing = DyingStorage(storage, COMMIT)
    to = reopened(failing)
    with pytest.raises(SimulatedCrash):
        commit(to, in_south(keys="z"))
    failing.revive()
    with suppress(WriteConflict):
        commit(to, in_south())
    recover(reopened(storage).table.context)
    to = reopened(storage)
    commit(to, in_south(3))
    assert indexed(to) == rows_of(storage) == {"north/x", "south/a", "south/b", "south/c"}
