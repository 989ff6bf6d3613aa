"""A lost or shortened file of a metadata table makes no query lose rows, and is reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from uuid import uuid4

import pyarrow as pa
import pytest

import lakemark
from lakemark.errors import CorruptData, Unsupported
from lakemark.log.log_block import MAGIC
from lakemark.metadata import metadata_store
from lakemark.metadata.metadata_files import first_log_file, log_file
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER, open_metadata_table
from lakemark.metadata.record_changes import RecordChanges
from lakemark.metadata.recorded_files import RecordedFiles
from lakemark.metadata.valid_instants import ValidInstants
from lakemark.metadata.writer_state import MetadataTableBehind
from lakemark.model.action import Action
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileSlice
from lakemark.model.format_version import FormatVersion
from lakemark.operations.metadata_table import keep_metadata_table, metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage, StorageLocation
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.locks.lock_provider import LOCK_PATH
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import DataFile
from tests.golden.shared_tables import SharedTables
from tests.storages import CountingStorage, FaultyStorage, SimulatedCrash, WatchedStorage
from tests.storages.interrupted_storage import InterruptedStorage
from tests.table_services import copy_of, make_plain, new_storage
from tests.tables import Row, commit, contents, writer
from tests.unit.metadata.metadata_tables import ApachesTable, names_with_metadata

#: Enough that the metadata table was compacted, and has logs since.
COMMITS = 13
WHOLE = {"a": (COMMITS, COMMITS), "b": (COMMITS, COMMITS)}

#: What is left of a file; None when it is gone.
Damage = Callable[[bytes], bytes | None]

#: An HFile ends in a trailer of this size.
_TRAILER_BYTES = 4096


def _to_the_end_of_a_block(data: bytes) -> bytes:
    """Cut off the last block of a log, or the trailer of an HFile."""
    return data[: data.rindex(MAGIC) if data.startswith(MAGIC) else -_TRAILER_BYTES]


DAMAGES: dict[str, Damage] = {
    "missing": lambda _: None,
    "zero byte": lambda _: b"",
    "cut within a block": lambda data: data[: len(data) * 2 // 3],
    "cut at the end of a block": _to_the_end_of_a_block,
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
either_kind = pytest.mark.parametrize("is_log", [True, False], ids=["log", "base"])
either_version = pytest.mark.parametrize("version", [FormatVersion.V9, FormatVersion.V6])


def _lengthened(data: bytes) -> bytes:
    return data + b"#HUDI#" * 3


@cache
def _stored_table(version: FormatVersion) -> Storage:
    """Create a table whose metadata table has a base file and later logs of two blocks."""
    storage = new_storage()
    make_plain(storage, version=version)
    to = writer(storage)
    keep_metadata_table(to.table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata_store, "log_file", _of_two_blocks)
        for ts in range(1, COMMITS + 1):
            commit(to, [Row("a", ts, ts), Row("b", ts, ts, region="south")])
    assert to.table.metadata_writer.compacted_at
    return storage


def _of_two_blocks(changes: RecordChanges, partition: str, instant: str, created_ms: int) -> bytes:
    """Encode a log of two blocks, of which the last one has the rows."""
    return first_log_file(instant) + log_file(changes, partition, instant, created_ms)


def table(version: FormatVersion = FormatVersion.V9) -> CountingStorage:
    return CountingStorage(copy_of(_stored_table(version)))


def spoil(storage: Storage, damage: Damage, *, is_log: bool, partition: str = "files") -> str:
    """Damage the newest base file or log of a partition, and return its path."""
    files = storage.list_tree(f"{METADATA_FOLDER}/{partition}")
    wanted = [one.path for one in files if (".log." in one.name) == is_log and "." in one.name[1:]]
    path = max(wanted, key=lambda path: _age(path.rpartition("/")[2]))
    left = damage(storage.read(path))
    storage.delete([path])
    if left is not None:
        storage.put(path, left)
    return path.removeprefix(f"{METADATA_FOLDER}/")


def _age(name: str) -> tuple[str, int]:
    log = LogFileName.parse(name)
    return (log.instant, log.version) if log else (name.rpartition("_")[2], 0)


def commit_another(to: TableWriter) -> None:
    commit(to, [Row("a", COMMITS, COMMITS)])


@either_version
@either_kind
@every_damage
def test_rows_are_read_and_the_next_start_makes_it_anew(
    version: FormatVersion, is_log: bool, damage: Damage
) -> None:
    storage = table(version)
    path = spoil(storage, damage, is_log=is_log)
    assert contents(storage) == WHOLE
    fresh = writer(storage).table
    assert fresh.scan(where=f"ts = {COMMITS}").to_reader().read_all().num_rows == len(WHOLE)
    (found,) = metadata_differences(fresh)
    assert (found.path, found.aspect) == (f"{METADATA_FOLDER}/files", "files")
    assert path in found.stored
    restarted = writer(storage)
    reason = keep_metadata_table(restarted.table)
    assert reason is not None and path in reason
    assert metadata_differences(restarted.table) == []
    commit_another(restarted)
    assert contents(storage) == WHOLE


@either_kind
@every_damage
def test_a_writer_that_runs_is_refused_once_it_reads_again(is_log: bool, damage: Damage) -> None:
    storage = table()
    running, other = writer(storage), writer(storage)
    running.recover()
    commit_another(running)
    commit_another(other)
    path = spoil(storage, damage, is_log=is_log)
    with pytest.raises(MetadataTableBehind, match=path):
        commit_another(running)
    with pytest.raises(Unsupported, match=path):
        commit_another(writer(storage))
    assert contents(storage) == WHOLE
    restarted = writer(storage)
    restarted.recover()
    assert metadata_differences(restarted.table) == []
    commit_another(restarted)
    assert contents(storage) == WHOLE


@pytest.mark.parametrize("partition", ["files", "column_stats", "partition_stats"])
@either_kind
def test_what_is_lost_is_not_compacted_away(partition: str, is_log: bool) -> None:
    storage = table()
    alone = writer(storage)
    alone.recover()
    commit_another(alone)
    path = spoil(storage, DAMAGES["missing"], is_log=is_log, partition=partition)
    with pytest.raises(MetadataTableBehind, match=path):
        for _ in range(COMMITS):
            commit_another(alone)
    assert contents(storage) == WHOLE


@either_kind
@every_damage
def test_statistics_that_are_lost_rule_nothing_out(is_log: bool, damage: Damage) -> None:
    storage = table()
    path = spoil(storage, damage, is_log=is_log, partition="column_stats")
    fresh = writer(storage).table
    storage.forget()
    assert fresh.scan(where=f"ts = {COMMITS}").to_reader().read_all().num_rows == len(WHOLE)
    assert storage.count("list_tree", under="north") == 0, "the listing is whole"
    (found,) = metadata_differences(writer(storage).table)
    assert path in found.stored
    reason = keep_metadata_table(writer(storage).table)
    assert reason is not None and path in reason


@either_kind
def test_a_file_that_somebody_added_to_is_not_trusted(is_log: bool) -> None:
    """A file with extra bytes is reported and not read, as readers would skip its last block."""
    storage = table()
    path = spoil(storage, _lengthened, is_log=is_log)
    assert contents(storage) == WHOLE
    (found,) = metadata_differences(writer(storage).table)
    assert path in found.stored


def test_a_dead_writer_is_undone_though_the_base_file_ends_too_early() -> None:
    storage = table()
    writer(storage).begin()
    spoil(storage, DAMAGES["cut within a block"], is_log=False)
    restarted = writer(storage)
    assert restarted.recover()
    assert metadata_differences(restarted.table) == []
    assert contents(storage) == WHOLE


def _crash_before_publishing(storage: Storage) -> None:
    """Commit, and die when only the metadata table has the commit."""
    dying = FaultyStorage(storage)

    def die(method: str, path: str) -> None:
        if method == "publish" and not path.startswith(METADATA_FOLDER):
            dying.die()

    with pytest.raises(SimulatedCrash):
        commit_another(writer(WatchedStorage(dying, die)))
    storage.delete([LOCK_PATH])  # it would become free only when its lease expires


@either_version
def test_a_dead_writer_is_undone_while_a_late_process_still_deletes_files(
    version: FormatVersion,
) -> None:
    """A process that lost the lock while it dropped the metadata table still deletes its logs."""
    storage = table(version)
    _crash_before_publishing(storage)
    logs = [
        one.path for one in storage.list_tree(f"{METADATA_FOLDER}/files") if ".log." in one.name
    ]
    late = InterruptedStorage(storage, lambda: storage.delete(logs))
    late.is_before = lambda _, method, path: method == "open" and path in logs
    recovered = writer(late)
    assert recovered.recover()
    assert late.stopped_at
    assert metadata_differences(recovered.table) == []
    assert contents(storage) == WHOLE


def _torn(data: bytes) -> bytes:
    """Change the length at the end of the last block, so that it differs from that at its start."""
    return data[:-1] + bytes([data[-1] ^ 1])


def test_a_torn_block_of_a_completed_commit_is_not_the_end_of_the_log() -> None:
    storage = table()
    path = spoil(storage, _torn, is_log=True)
    with pytest.raises(CorruptData, match=path):
        contents(storage)
    restarted = writer(storage)
    restarted.recover()
    assert metadata_differences(restarted.table) == []
    assert contents(storage) == WHOLE


def test_an_unreadable_commit_of_the_metadata_table_is_not_trusted() -> None:
    storage = table()
    commits = storage.list_tree(f"{METADATA_FOLDER}/.hoodie/timeline")
    newest = max(one.path for one in commits if one.name.endswith(".deltacommit"))
    storage.put(newest, b"")
    assert contents(storage) == WHOLE
    found = metadata_differences(writer(storage).table)
    assert found and all(newest.rpartition("/")[2] in one.stored for one in found)
    restarted = writer(storage)
    restarted.recover()
    assert metadata_differences(restarted.table) == []


def test_what_a_query_asks_for_it() -> None:
    storage = table()
    fresh = writer(storage).table
    storage.forget()
    fresh.view()
    commit_reads = [r for r in storage.requests if r.path.endswith((".deltacommit", ".commit"))]
    logs = [r for r in storage.requests if r.method == "open" and ".log." in r.path]
    assert len(commit_reads) == len(logs) + 1, "one commit for each log, and the compaction"
    storage.forget()
    fresh.refresh()
    commit_another(writer(storage))
    storage.forget()
    fresh.refresh()
    fresh.view()
    commit_reads = [r for r in storage.requests if r.path.endswith((".deltacommit", ".commit"))]
    assert len([r for r in commit_reads if r.path.startswith(METADATA_FOLDER)]) == 1, "the new one"


@pytest.mark.parametrize("name", names_with_metadata())
def test_apaches_commits_name_each_file_that_is_read(
    name: str, shared_tables: SharedTables
) -> None:
    apaches = ApachesTable.at(shared_tables[name].root)
    recorded = _recorded(apaches)
    for partition in sorted(apaches.metadata.partitions):
        assert apaches.metadata.find_file_mismatch(partition) is None
        files = list(_read_files(apaches.metadata.slices(partition)))
        for lost in files:
            if not _may_be_lost(apaches, lost):
                left = [file for file in files if file is not lost]
                difference = recorded.find_mismatch(partition, left)
                assert difference is not None and lost.path in difference


def _recorded(apaches: ApachesTable) -> RecordedFiles:
    own = apaches.metadata.rows.storage
    store = TimelineStore.of_table(own, apaches.properties, clock=UTC_CLOCK)
    timeline = store.load()
    return RecordedFiles(
        store, timeline, ValidInstants(apaches.timeline, timeline), apaches.timeline
    )


def _read_files(slices: Iterable[FileSlice]) -> Iterator[DataFile]:
    for one in slices:
        if one.base is not None:
            yield one.base
        yield from one.logs


def _may_be_lost(apaches: ApachesTable, file: DataFile) -> bool:
    """Whether it is the empty first log of a file group, or belongs to an incomplete commit."""
    is_first = isinstance(file.name, LogFileName) and file.name.write_token == "0-0-0"
    known = apaches.timeline.find(file.name.instant)
    return is_first or (known is not None and not known.is_completed)


def test_an_index_that_was_created_again_is_complete_after_its_indexing_action_was_archived() -> (
    None
):
    """A compaction from before the drop wrote files of the same names, which are gone."""
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    location = f"memory://{uuid4().hex}/orders"
    table = lakemark.create(
        location, schema=schema, record_key="id", index="lookup", merge_mode="commit_time"
    )
    table.create_index("record_index")
    for number in range(12):
        table.upsert(pa.table([[f"{number}"], [number]], schema))
    table.drop_index("record_index")
    table.create_index("record_index")
    table.upsert(pa.table([["0"], [1]], schema))
    to = open_table(StorageLocation(location))
    created = to.timeline.completed(Action.INDEXING)[-1].requested_at
    later = tuple(i for i in to.timeline.instants if i.requested_at > created)
    for data in (to.timeline, replace(to.timeline, instants=later)):
        metadata = open_metadata_table(to.storage, to.properties, data, UTC_CLOCK)
        assert metadata is not None and metadata.find_file_mismatch("record_index") is None
