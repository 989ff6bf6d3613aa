"""Files that a writer writes after its instant was rolled back are never read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lakemark.config.table_properties import TableType
from lakemark.errors import Fenced
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.model.format_version import FormatVersion
from lakemark.operations.archive import archive
from lakemark.operations.compact import Compaction, request_compaction
from lakemark.operations.metadata_table import metadata_differences, rebuild_metadata_table
from lakemark.operations.table_writer import TableWriter
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.transaction.rollback import roll_back_named
from lakemark.write.file_group_write import write_file_group
from tests.clocks import SharedClock, on_clock
from tests.recovery.scenarios import ARCHIVAL, CLEANING
from tests.storages import CountingStorage
from tests.table_services import HISTORY, archived_names, make_plain, new_storage
from tests.tables import (
    Row,
    by_bucket,
    changes,
    commit,
    contents,
    data_files,
    make,
    write_files,
    writer,
)

CLOCK = SharedClock()


@pytest.mark.parametrize("is_first", [True, False])
def test_late_files_of_a_rolled_back_instant_are_not_read(storage: Storage, is_first: bool) -> None:
    make(storage)
    expected = {"a": (3, 3)}
    if not is_first:
        commit(writer(storage), [Row("b", 1, 1)])
        expected["b"] = (1, 1)
    late = writer(storage)
    context, assignment = late.begin(), late.assigner.assign_file_groups()

    replacement = writer(storage)
    assert replacement.recover() == [context.instant]
    commit(replacement, [Row("a", 3, 3)])
    kept = data_files(storage)

    for bucket, part in by_bucket(changes([Row("a", 9, 9), Row("c", 9, 9)]), late.settings.index):
        write_file_group(context, assignment.task(bucket), [part])
    assert contents(storage) == expected
    commit(writer(storage), [Row("a", 4, 4)])
    assert contents(storage) == {**expected, "a": (4, 4)}

    with pytest.raises(Fenced, match="another writer rolled it back"):
        late.abandon()
    assert not [path for path in data_files(storage) if context.instant in path]
    assert not storage.list_tree(f".hoodie/.temp/{context.instant}")
    assert set(kept) < set(data_files(storage))
    assert contents(storage) == {**expected, "a": (4, 4)}


def archive_rollbacks(to: TableWriter) -> None:
    """Write and archive until no rollback is on the active timeline."""
    for number in range(10, 40):
        commit(to, [Row("z", number, number, region="south")])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        archive(to.table, ARCHIVAL, None)
        if not to.table.timeline.completed(Action.ROLLBACK):
            return
    raise AssertionError


def written_after_its_rollback_was_archived(
    storage: Storage,
) -> tuple[TableWriter, str, dict[str, tuple[int, int]]]:
    """Return a writer that wrote a file too late, its instant, and the rows of the table."""
    late = writer(storage)
    context, assignment = late.begin(), late.assigner.assign_file_groups()
    to = on_clock(writer(storage), CLOCK)
    assert to.recover() == [context.instant]
    for value in (1, 5):
        commit(to, [Row("a", value, value)])
    archive_rollbacks(to)
    expected = contents(storage)
    for bucket, part in by_bucket(changes([Row("a", 1, 1)]), late.settings.index):
        write_file_group(context, assignment.task(bucket), [part])
    return late, context.instant, expected


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
@pytest.mark.parametrize("table_type", TableType)
def test_writer_deletes_its_late_file_after_its_rollback_was_archived(
    table_type: TableType, version: FormatVersion
) -> None:
    storage = new_storage()
    make_plain(storage, table_type, version)
    late, instant, expected = written_after_its_rollback_was_archived(storage)
    assert [path for path in data_files(storage) if instant in path]
    with pytest.raises(Fenced, match="another writer rolled it back"):
        late.abandon()
    assert not [path for path in data_files(storage) if instant in path]
    assert contents(storage) == expected
    rebuild_metadata_table(writer(storage).table)
    assert contents(storage) == expected
    commit(writer(storage), [Row("a", 6, 6)])
    assert contents(storage) == {**expected, "a": (6, 6)}


@pytest.mark.parametrize("version", [FormatVersion.V6, FormatVersion.V9])
def test_late_file_is_not_read_before_its_writer_has_deleted_it(
    tmp_path: Path, version: FormatVersion
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make_plain(storage, version=version)
    _, instant, expected = written_after_its_rollback_was_archived(storage)
    (file,) = (path for path in data_files(storage) if instant in path)
    storage.set_modified_at(file, datetime.now(UTC) + timedelta(minutes=10))
    assert contents(storage) == expected
    rebuild_metadata_table(writer(storage).table)
    assert contents(storage) == expected
    assert metadata_differences(writer(storage).table) == []
    commit(writer(storage), [Row("a", 6, 6)])
    assert contents(storage) == {**expected, "a": (6, 6)}


def test_files_of_archived_commits_are_read_whatever_their_modification_times(
    tmp_path: Path,
) -> None:
    """Copying a table, which changes modification times, or losing its history hides no row."""
    storage = open_storage(StorageLocation(str(tmp_path)))
    make_plain(storage)
    to = on_clock(writer(storage), CLOCK)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1, region="west")])
    write_files(to, [Row("c", 1, 1)])
    to.abandon()
    for number in range(2, 8):
        commit(to, [Row("z", number, number, region="south")])
        archive(to.table, ArchivalPolicy(1, 2, delta_commits_to_compact=1), None)
    assert not to.table.timeline.completed(Action.ROLLBACK)
    expected = contents(storage)
    for path in data_files(storage):
        storage.set_modified_at(path, datetime.now(UTC) + timedelta(days=10))
    counted = CountingStorage(storage)
    assert contents(counted) == expected
    opened = counted.count("open", under=HISTORY)
    assert 0 < opened <= len(storage.list_folder(HISTORY)[1])
    table = writer(counted).table
    table.view()
    counted.forget()
    table.refresh()
    table.view()
    assert not counted.count("open", under=HISTORY), "the history is cached"
    for info in storage.list_folder(HISTORY)[1]:
        if info.name.endswith(".parquet"):
            storage.put(info.path, b"damaged")
    assert contents(storage) == expected


def test_reader_does_not_load_the_history_for_files_of_ordinary_commits() -> None:
    storage = CountingStorage(new_storage())
    make_plain(storage)
    to = on_clock(writer(storage), CLOCK)
    commit(to, [Row("b", 1, 1, region="west")])
    for number in range(2, 8):
        commit(to, [Row("z", number, number, region="south")])
        archive(to.table, ArchivalPolicy(1, 2, delta_commits_to_compact=1), None)
    storage.forget()
    assert len(writer(storage).table.view().latest_slices()) == 2
    assert storage.count("open", under=HISTORY) == storage.count("read", under=HISTORY) == 0


def test_table_with_a_file_whose_name_has_no_instant_time_is_readable() -> None:
    storage = new_storage()
    make_plain(storage)
    to = on_clock(writer(storage), CLOCK)
    for number in range(1, 8):
        commit(to, [Row("a", number, number)])
        archive(to.table, ArchivalPolicy(1, 2, delta_commits_to_compact=1), None)
    base = next(path for path in data_files(storage) if path.endswith(".parquet"))
    strays = ["first_0_2.parquet", "second_0_2026.parquet"]
    for name in strays:
        storage.put(f"{base.rpartition('/')[0]}/{name}", storage.read(base))
    read = {str(one.base.name) for one in writer(storage).table.view().latest_slices() if one.base}
    assert read.issuperset(strays), "Apache Hudi reads them, too"


@pytest.mark.parametrize("is_archived", [False, True])
def test_late_attempt_deletes_no_file_of_a_compaction_that_was_executed_again(
    is_archived: bool,
) -> None:
    storage = new_storage()
    make_plain(storage)
    late = on_clock(writer(storage), CLOCK)
    for value in (1, 2):
        commit(late, [Row("a", value, value)])
    planned = request_compaction(late.table)
    assert planned is not None
    attempt = Compaction.begin(late.table, planned)
    commit(on_clock(writer(storage), CLOCK), [Row("z", 1, 1, region="south")])
    roll_back_named(writer(storage).table.context, planned[0].requested_at)
    to = on_clock(writer(storage), CLOCK)
    (done,) = to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert done[0].requested_at == planned[0].requested_at
    while is_archived and to.table.timeline.find(planned[0].requested_at):
        commit(to, [Row("z", 2, 2, region="south")])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        archive(to.table, ArchivalPolicy(2, 3, delta_commits_to_compact=1), None)
    timeline = writer(storage).table.timeline
    assert (timeline.find(planned[0].requested_at) is None) == is_archived
    assert timeline.completed(Action.ROLLBACK), "the rollback of the first attempt is still active"
    kept, expected = data_files(storage), contents(storage)
    attempt.undo()
    assert data_files(storage) == kept
    assert contents(storage) == expected


def test_late_file_does_not_reappear_after_its_rollback_was_archived() -> None:
    storage = new_storage()
    make_plain(storage)
    late = on_clock(writer(storage), CLOCK)
    commit(late, [Row("a", 1, 1)])
    write_files(late, [Row("a", 99, 99), Row("q", 99, 99, region="west")])
    stray = [path for path in data_files(storage) if late.pending_instant in path]
    kept = {path: storage.read(path) for path in stray}
    to = on_clock(writer(storage), CLOCK)
    assert to.recover() == [late.pending_instant]
    for path, data in kept.items():  # an attempt that was paused resumes
        storage.create(path, data)
    for number in range(2, 9):
        commit(to, [Row("a", number, number)])
        to.compact_if_due(CompactionPolicy(2), LocalRunner(1))
        archive(to.table, ARCHIVAL, CLEANING)
        assert contents(storage) == {"a": (number, number)}
    assert archived_names(storage)
    assert not [path for path in data_files(storage) if path in kept]
