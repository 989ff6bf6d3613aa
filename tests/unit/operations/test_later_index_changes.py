"""An index that describes later rows than a query must read does not hide the query's rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.metadata.merged_commits import may_have_merged_later_commits
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS, last_compaction
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.action import Action, State
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.model.instant import Instant
from lakemark.operations.compact import request_compaction
from lakemark.operations.create_index import create_index
from lakemark.operations.drop_index import drop_index
from lakemark.operations.metadata_table import rebuild_metadata_table
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage
from lakemark.storage.properties_file import read_properties
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


def _create_again(table: OpenTable) -> None:
    drop_index(table, "secondary_index_v")
    drop_index(table, "record_index")
    create_index(table, "record_index")


@pytest.mark.parametrize("build", [rebuild_metadata_table, _create_again])
def test_index_that_was_built_after_the_timeline_was_loaded_hides_no_row(
    build: Callable[[OpenTable], object],
) -> None:
    to = _new_table(TableType.MERGE_ON_READ)
    reader = _reader(to.table.storage)
    commit(to, [Row("moved", 2, _NEW_V, "south")])
    build(to.table)
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


def test_value_that_a_compaction_changes_is_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Late rows fill a column: those before the plan of a compaction, or else those after it."""
    url = str(tmp_path)
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
    table = lakemark.create(
        url,
        schema=schema,
        record_key="id",
        ordering="ts",
        index="lookup",
        partial_update="ignore_defaults",
    )
    table.create_index("record_index")
    table.create_index("by_v", column="v")
    assert "queries do not use it: a compaction may change values" in caplog.text

    def upsert(*rows: tuple[str, int, str | None]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        lakemark.open(url).upsert(pa.table(columns, schema=schema))

    upsert(("a", 10, None), ("b", 10, "b"))
    upsert(("a", 5, "x"))
    to = lakemark.open(url)
    assert request_compaction(to._table)
    upsert(("a", 7, "y"))
    for value in ("y", "x"):
        table = lakemark.open(url)
        assert table.scan(columns=["id"], where=f"v = '{value}'").to_table()["id"][0].as_py() == "a"
        table.compact()


@pytest.mark.parametrize(
    ("is_unconditional", "last"), [(True, "late"), (True, "later"), (False, "later")]
)
def test_value_that_wins_after_a_compaction_without_its_delete_is_found(
    tmp_path: Path, last: str, *, is_unconditional: bool
) -> None:
    """Until then a late row loses, either to the row before the delete or to the delete."""
    url = str(tmp_path)
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("ts", pa.int64()),
            ("v", pa.string()),
            ("_hoodie_is_deleted", pa.bool_()),
        ]
    )
    table = lakemark.create(url, schema=schema, record_key="id", ordering="ts", index="lookup")

    def upsert(*rows: tuple[str, int | None, str | None, bool]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        lakemark.open(url).upsert(pa.table(columns, schema=schema))

    upsert(("a", 10, "old", False), ("b", 10, "b", False))
    if is_unconditional:
        upsert(("a", None, None, True))
    else:
        lakemark.open(url).delete(["a"])
    assert request_compaction(lakemark.open(url)._table)
    upsert(("a", 5, "late", False))
    table = lakemark.open(url)
    table.create_index("record_index")
    table.create_index("by_v", column="v")
    if last == "later":
        upsert(("a", 6, "later", False))
    _check_values(url)
    assert not lakemark.open(url).metadata_differences()
    lakemark.open(url).compact()
    assert _check_values(url) == {"a": last, "b": "b"}


def _check_values(url: str) -> dict[str, str]:
    """Return the value of each key, all of which queries of the value return."""
    rows = lakemark.open(url).scan(columns=["id", "v"]).to_table().to_pylist()
    for row in rows:
        query = lakemark.open(url).scan(columns=["id", "v"], where=f"v = '{row['v']}'")
        assert query.to_table().to_pylist() == [row]
    return {row["id"]: row["v"] for row in rows}


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


def test_index_that_was_built_while_the_timeline_showed_its_action_may_have_later_commits() -> None:
    announced = Instant(_time(3), Action.INDEXING, State.INFLIGHT)
    before = _done(_time(1), Action.DELTA_COMMIT, _time(2))
    created = _done(_time(3), Action.DELTA_COMMIT, _time(8))
    metadata = Timeline.of([before, created])
    assert may_have_merged_later_commits(Timeline.of([before, announced]), metadata)
    for completed_at in (_time(8), _time(9)):  # both instants may complete in one millisecond
        done = announced.completed(completed_at)
        assert not may_have_merged_later_commits(Timeline.of([before, done]), metadata)


def test_index_may_be_built_later_in_the_second_that_a_store_records() -> None:
    """A modification time in whole seconds is before the requested time, which is taken instead."""
    announced = Instant("20260101000003300", Action.INDEXING, State.INFLIGHT)
    newest = _done("20260101000003500", Action.DELTA_COMMIT, "20260101000003500", is_legacy=True)
    created = _done("20260101000003300", Action.DELTA_COMMIT, "20260101000003300", is_legacy=True)
    data, metadata = Timeline.of([announced, newest]), Timeline.of([newest, created])
    assert may_have_merged_later_commits(data, metadata)


def test_index_that_was_created_after_the_timeline_was_loaded_is_not_used() -> None:
    storage = new_storage()
    make(storage)
    to = lookup_writer(storage)
    commit(to, [Row("key", 1, _OLD_V)])
    before = _reader(storage).timeline
    commit(to, [Row("key", 2, _NEW_V)])
    create_index(to.table, "record_index")

    def usable(timeline: Timeline) -> list[str]:
        properties, clock = read_properties(storage), to.table.store.clock
        metadata = open_metadata_table(storage, properties, timeline, clock)
        assert metadata is not None
        return metadata.usable_partitions(PartitionKind.RECORD_INDEX)

    assert usable(before) == []
    assert usable(_reader(storage).timeline) == ["record_index"]
