"""An index that describes later rows than a query must read does not hide the query's rows."""

from __future__ import annotations

import pytest

from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.metadata.merged_commits import may_have_merged_later_commits
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS, last_compaction
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.action import Action, State
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.metadata_table import rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage
from lakemark.timeline.timeline import Timeline
from tests.table_services import new_storage
from tests.tables import Row, commit, lookup_writer, make, writer

_SIZING = ParquetSettings(max_file_bytes=PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)
_OLD_V, _NEW_V = 1, 2


def _new_table(table_type: TableType, version: FormatVersion = FormatVersion.V9) -> TableWriter:
    storage = new_storage()
    secondary = [] if version is FormatVersion.V6 else ["secondary_index_v"]
    make(storage, table_type, ["record_index", *secondary], version)
    to = lookup_writer(storage, _SIZING, global_keys=True)
    commit(to, [Row("moved", 1, _OLD_V, "north"), Row("other", 1, 7, "north")])
    return to


def _reader(storage: Storage) -> OpenTable:
    """Return a table whose timeline is that of this moment."""
    table = writer(storage).table
    table.refresh()
    return table


def _compact_metadata_table(to: TableWriter) -> None:
    for ts in range(EVERY_DELTA_COMMITS + 1):
        commit(to, [Row("other", 10 + ts, 7, "north")])
    opener = to.table.metadata_opener
    assert last_compaction(opener.instants(to.table.store.clock).load())


@pytest.mark.parametrize("version", WRITTEN)
@pytest.mark.parametrize("table_type", TableType)
def test_row_that_moved_after_the_timeline_was_loaded_is_found_by_its_key(
    table_type: TableType, version: FormatVersion
) -> None:
    to = _new_table(table_type, version)
    reader = _reader(to.table.storage)
    commit(to, [Row("moved", 2, _NEW_V, "south")])
    _compact_metadata_table(to)
    found = reader.scan(columns=["region"], record_keys=["moved"]).to_table()
    assert found["region"].to_pylist() == ["north"]


@pytest.mark.parametrize("table_type", TableType)
def test_value_that_changed_after_the_timeline_was_loaded_is_found(table_type: TableType) -> None:
    to = _new_table(table_type)
    reader = _reader(to.table.storage)
    commit(to, [Row("moved", 2, _NEW_V, "north")])
    _compact_metadata_table(to)
    found = reader.scan(columns=["id"], where=f"v = {_OLD_V}").to_table()
    assert found["id"].to_pylist() == ["moved"]


def test_index_that_was_built_after_the_timeline_was_loaded_hides_no_row() -> None:
    to = _new_table(TableType.MERGE_ON_READ)
    reader = _reader(to.table.storage)
    commit(to, [Row("moved", 2, _NEW_V, "south")])
    rebuild_metadata_table(to.table)
    found = reader.scan(columns=["region"], record_keys=["moved"]).to_table()
    assert found["region"].to_pylist() == ["north"]


@pytest.mark.parametrize("kind", [PartitionKind.RECORD_INDEX, PartitionKind.SECONDARY_INDEX])
def test_index_of_the_current_rows_is_used_after_compaction_and_rebuild(
    kind: PartitionKind,
) -> None:
    to = _new_table(TableType.MERGE_ON_READ)
    _compact_metadata_table(to)
    assert _reader(to.table.storage).snapshot.metadata_with(kind)
    rebuild_metadata_table(to.table)
    assert _reader(to.table.storage).snapshot.metadata_with(kind)


def _time(second: int) -> str:
    return f"202601010000{second:02d}000"


def _done(requested: str, action: Action, completed: str, *, is_legacy: bool = False) -> Instant:
    return Instant(requested, action, State.COMPLETED, completed, is_legacy)


def test_commit_that_was_pending_may_be_merged_by_a_compaction_with_an_older_time() -> None:
    pending = Instant(_time(1), Action.DELTA_COMMIT, State.INFLIGHT)
    later = _done(_time(2), Action.DELTA_COMMIT, _time(9))
    data = Timeline.of([pending, later])
    commits = [_done(_time(n), Action.DELTA_COMMIT, _time(8), is_legacy=True) for n in (1, 2)]
    # In table version 6, a compaction is named after the newest commit that it merges.
    compaction = _done(f"{_time(2)}001", Action.COMMIT, _time(30), is_legacy=True)
    assert may_have_merged_later_commits(data, Timeline.of([*commits, compaction]))
    assert not may_have_merged_later_commits(data, Timeline.of(commits))
    assert not may_have_merged_later_commits(
        data, Timeline.of([commits[1], compaction], has_history=False)
    )
    # A commit that the metadata table has archived was merged before.
    assert may_have_merged_later_commits(data, Timeline.of([commits[1], compaction]))
