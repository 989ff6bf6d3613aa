"""Changes that exceed the largest size of a log become several logs of one file group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from uuid import uuid4

import pyarrow as pa
import pytest

from lakemark.config.table_properties import TableType
from lakemark.execution.runner import LocalRunner
from lakemark.model.changes import ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import FileGroupId
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.meta_columns import COMMIT_SEQNO
from lakemark.operations.compact_logs import LogCompaction, schedule_log_compaction
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.table_writer import TableWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.scratch import scratch_folder
from lakemark.write import new_log_file
from lakemark.write.prepared_log_file import PreparedLogFile, new_prepared_log, publish_logs
from tests.tables import (
    Row,
    changes,
    commit,
    contents,
    data_files,
    lookup_writer,
    make,
    write_files_of,
    writer,
)

each_version = pytest.mark.parametrize("version", WRITTEN)
DELETE = ChangeKind.DELETE


def new_storage() -> Storage:
    return open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))


def small_logs(to: TableWriter, rows: Sequence[Row]) -> list[WriteStat]:
    """Write the files of a commit whose logs have one change each."""
    context = to.begin()
    limited = replace(context, max_log_bytes=1).use_storage(context.storage)
    return write_files_of(to, limited, rows)


@pytest.fixture(autouse=True)
def change_by_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the size of a log after each change."""
    monkeypatch.setattr(new_log_file, "_PIECE_BYTES", 1)


@each_version
def test_full_log_is_followed_by_the_next_version(version: FormatVersion) -> None:
    storage = new_storage()
    make(storage, version=version)
    to = writer(storage)
    commit(to, [Row(key, 1, 1) for key in "abcdefgh"])
    commit(to, [Row(key, 2, 2) for key in "ab"])
    before = set(data_files(storage))
    stats = small_logs(to, [*(Row(key, 3, 3) for key in "abcd"), Row("e", 3, kind=DELETE)])
    by_group: dict[str, list[WriteStat]] = {}
    for stat in stats:
        by_group.setdefault(stat.file_id, []).append(stat)
    assert len(stats) == 5
    assert len(by_group) == 2
    for of_group in by_group.values():
        names = [LogFileName.parse(stat.path.rpartition("/")[2]) for stat in of_group if stat.path]
        versions = [name.version for name in names if name is not None]
        assert versions == list(range(versions[0], versions[0] + len(of_group)))
        assert versions == [stat.log_version for stat in of_group]
        listed = [stat.log_files or () for stat in of_group]
        assert all(later[: len(some)] == some for some, later in pairwise(listed))
        assert [some[-1] for some in listed] == [str(name) for name in names]
        assert {stat.num_writes + stat.num_deletes for stat in of_group} == {1}
    to.commit(stats, {})
    assert set(data_files(storage)) - before == {stat.path for stat in stats}
    expected = dict.fromkeys("abcd", (3, 3)) | dict.fromkeys("fgh", (1, 1))
    assert contents(storage) == expected
    numbers = to.table.scan(columns=[COMMIT_SEQNO]).to_table()[COMMIT_SEQNO].to_pylist()
    assert len({*numbers}) == len(numbers), "each row has its own number"
    commit(to, [Row("a", 4, 4)])
    expected["a"] = (4, 4)
    assert contents(storage) == expected
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert contents(storage) == expected


@each_version
def test_later_change_of_a_key_is_in_a_later_log(version: FormatVersion) -> None:
    storage = new_storage()
    make(storage, version=version)
    to = writer(storage)
    commit(to, [Row("a", 1, 1)])
    task = to.assigner.assign_file_groups()
    ((bucket, _),) = task.slices.items()
    context = to.begin()
    current = task.task(bucket).current
    assert current is not None
    name = LogFileName(current.group.file_id, context.instant, 1, "0-0-0")
    if version is FormatVersion.V6:
        name = replace(name, instant=current.base_instant)
    limited = replace(context, max_log_bytes=1).use_storage(storage)
    with new_log_file.NewLogFiles(limited, current.group, name) as files:
        for value in (2, 3, 4):
            files.write(changes([Row("a", 2, value)]))
        stats = files.close()
    assert len(stats) == 3
    to.commit(stats, {})
    assert contents(storage) == {"a": (2, 4)}


@each_version
def test_abandoned_commit_leaves_none_of_its_logs(version: FormatVersion) -> None:
    storage = new_storage()
    make(storage, version=version)
    to = writer(storage)
    commit(to, [Row(key, 1, 1) for key in "abcd"])
    before = data_files(storage)
    assert len(small_logs(to, [Row(key, 2, 2) for key in "abcd"])) == 4
    to.abandon()
    assert data_files(storage) == before
    commit(to, [Row("a", 2, 2)])
    assert contents(storage)["a"] == (2, 2)


def test_second_attempt_writes_the_same_logs() -> None:
    storage = new_storage()
    make(storage)
    to = writer(storage)
    commit(to, [Row(key, 1, 1) for key in "abcd"])
    context = to.begin()
    limited = replace(context, max_log_bytes=1).use_storage(storage)
    rows = [Row(key, 2, 2) for key in "abcd"]
    first = write_files_of(to, limited, rows)
    assert write_files_of(to, limited, rows) == first
    to.commit(first, {})
    assert contents(storage) == dict.fromkeys("abcd", (2, 2))


@pytest.mark.parametrize("version", [FormatVersion.V8, FormatVersion.V9])
def test_indexes_get_the_changes_of_all_logs(version: FormatVersion) -> None:
    storage = new_storage()
    make(storage, indexes=["record_index", "secondary_index_v", "bloom_filters"], version=version)
    to = lookup_writer(storage)
    commit(to, [Row(key, 1, 1) for key in "abcd"])
    changed = [Row("a", 2, 7), Row("b", 2, kind=DELETE), Row("c", 2, 8), Row("d", 2, kind=DELETE)]
    stats = small_logs(to, changed)
    assert len(stats) == 4
    to.commit(stats, {})
    assert contents(storage) == {"a": (2, 7), "c": (2, 8)}
    assert metadata_differences(to.table) == []


@each_version
def test_log_of_a_commit_is_read_after_all_logs_of_a_log_compaction(
    version: FormatVersion,
) -> None:
    """Readers that do not skip replaced blocks would read older rows last otherwise."""
    storage = new_storage()
    make(storage, version=version)
    to = writer(storage)
    commit(to, [Row(key, 1, 1) for key in "abcdefgh"])
    for value in (2, 3):
        commit(to, [Row(key, 2, value) for key in "abcd"])
    planned = schedule_log_compaction(to.table, min_logs=2)
    assert planned is not None
    compaction = LogCompaction.begin(to.table, planned)
    other = writer(storage)
    commit(other, [Row(key, 2, 4) for key in "abcd"])
    rewriter = compaction._rewriter
    limited = replace(rewriter.context, max_log_bytes=1).use_storage(storage)
    small = replace(compaction, _rewriter=replace(rewriter, context=limited))
    instant, metadata = small.run(LocalRunner(1))
    own = {stat.path for stat in metadata.write_stats}
    for file_slice in to.table.view().latest_slices():
        is_own = [log.path in own for log in file_slice.logs]
        assert not is_own[-1] and any(is_own), (instant, file_slice)
    assert len(metadata.write_stats) == (2 if version is FormatVersion.V6 else 4)
    assert contents(storage) == dict.fromkeys("abcd", (2, 4)) | dict.fromkeys("efgh", (1, 1))


def test_prepared_logs_are_divided_by_size() -> None:
    storage = new_storage()
    make(storage)
    to = writer(storage)
    commit(to, [Row("a", 1, 1)])
    (file_slice,) = to.table.view().latest_slices()
    group: FileGroupId = file_slice.group
    context = to.begin()
    with scratch_folder("logs") as folder:
        local = replace(context, location=StorageLocation(str(folder)))
        logs = []
        for number in (1, 2, 3):
            with new_prepared_log(local, group, number) as file:
                file.write(changes([Row("a", 1 + number, number)]))
                logs.append(PreparedLogFile(folder, file.close()))
        limited = replace(context, max_log_bytes=1).use_storage(storage)
        stats = publish_logs(limited, logs, "")
    assert [stat.log_version for stat in stats] == [1, 2, 3]
    assert [len(stat.log_files or ()) for stat in stats] == [1, 2, 3]
    to.commit(stats, {})
    assert contents(storage) == {"a": (4, 3)}


def test_copy_on_write_tables_have_no_logs_to_divide() -> None:
    storage = new_storage()
    make(storage, TableType.COPY_ON_WRITE)
    to = writer(storage)
    commit(to, [Row(key, 1, 1) for key in "abcd"])
    stats = small_logs(to, [Row(key, 2, 2) for key in "abcd"])
    assert len(stats) == 2
    to.commit(stats, {})
    assert contents(storage) == dict.fromkeys("abcd", (2, 2))


def test_pieces_have_all_changes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_log_file, "_PIECE_BYTES", 100)
    table = pa.table({"n": pa.array(range(100), pa.int64())})
    pieces = list(new_log_file._pieces(table))
    assert pa.concat_tables(pieces) == table
    assert len(pieces) == 8
    assert list(new_log_file._pieces(table.slice(0, 0))) == []
