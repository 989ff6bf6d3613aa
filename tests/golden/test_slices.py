"""lakemark finds the file slices that Apache Hudi reads."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import COMMIT_TIME, FILE_NAME, RECORD_KEY
from lakemark.view.file_system_view import FileSystemView
from tests.golden.golden_table import ALL_TABLES, GoldenTable
from tests.golden.shared_tables import SharedTables

#: Tables whose rows name their file id, and whose file ids are unique. With non-blocking writers
#: they are not.
_TABLES = [n for n in ALL_TABLES if "virtual_keys" not in n and "non_blocking" not in n]

#: Tables with files of writers that died, or that a block in a log rolled back.
_WITH_DEAD_FILES = ("dead_writer", "failed_write", "v6_mor_rollback")


class Row(NamedTuple):
    """The source of a row: the name of a base file, or the file id of a log."""

    key: str
    commit: str
    file: str


@pytest.fixture(scope="module", params=_TABLES)
def golden(request: pytest.FixtureRequest, shared_tables: SharedTables) -> GoldenTable:
    return shared_tables[request.param]


def test_read_optimized_slices_have_exactly_the_rows_that_apache_reads(golden: GoldenTable) -> None:
    found = base_rows(golden, golden.view.read_optimized())
    assert found == rows(golden.expected("read_optimized"))


def test_snapshot_slices_have_the_rows_that_apache_reads(golden: GoldenTable) -> None:
    check_slices(golden, golden.view, rows(golden.expected("snapshot")))


def test_time_travel_slices_have_the_rows_that_apache_reads(golden: GoldenTable) -> None:
    if "as_of" not in golden.queries:
        pytest.skip("Apache Hudi ran no time travel query")
    view = golden.view.as_of(golden.queries["as_of"]["as.of.instant"])
    check_slices(golden, view, rows(golden.expected("as_of")))


def test_every_active_or_archived_commit_can_be_read(golden: GoldenTable) -> None:
    store = golden.table.store
    archived = store.load_archived().instants()
    writes = [i for i in (*archived, *golden.table.timeline.completed()) if i.action.is_write]
    assert len(writes) == len({i.requested_at for i in writes})
    stats = [stat for i in writes for stat in store.read_commit(i).write_stats]
    written = {path for stat in stats for path in (stat.path, *(stat.cdc_stats or ()))}
    there = {file.path for group in golden.view.groups.values() for file in group.files.values()}
    is_clean = not any(part in golden.properties.table_name for part in _WITH_DEAD_FILES)
    assert there <= written or not is_clean
    assert all(golden.view.timeline.is_committed(i.requested_at) for i in writes)


def test_archived_instants_keep_their_completion_time(golden: GoldenTable) -> None:
    archived = golden.table.store.load_archived().instants()
    assert bool(archived) == golden.table.properties.table_name.endswith("archived")
    timeline = golden.table.timeline
    for instant in archived:
        assert timeline.completed_at(instant.requested_at) == instant.completed_at
        assert (instant.completed_at or "") > instant.requested_at


def check_slices(golden: GoldenTable, view: FileSystemView, expected: list[Row]) -> None:
    """Check that every row comes from a slice, and all rows of slices without logs are found."""
    slices = view.latest_slices()
    bases = {str(s.base.name) for s in slices if s.base is not None}
    by_id = {s.group.file_id: s for s in slices}
    for row in expected:
        if view.version < 6 and row.file.endswith(".parquet"):
            # Hudi 0.9 copies unchanged rows with the name of the file from which it copies them.
            assert row.file.partition("_")[0] in by_id
        elif row.file not in bases:
            check_log(by_id[row.file], row, has_commits=view.version >= 8)
    assert view.until is None or all(row.commit <= view.until for row in expected)
    unchanged = [s for s in slices if not s.logs]
    assert set(base_rows(golden, unchanged)) <= set(expected)


def check_log(file_slice: FileSlice, row: Row, has_commits: bool) -> None:
    if has_commits:
        assert row.commit in {log.name.instant for log in file_slice.logs}
    else:
        assert file_slice.logs


def base_rows(golden: GoldenTable, slices: Iterable[FileSlice]) -> list[Row]:
    files = [s.base.path for s in slices if s.base is not None]
    return sorted(row for path in files for row in rows(read(golden.root / path)))


def read(path: Path) -> pa.Table:
    return pq.ParquetFile(path).read(columns=[RECORD_KEY, COMMIT_TIME, FILE_NAME])


def rows(table: pa.Table) -> list[Row]:
    columns = (table[name].to_pylist() for name in (RECORD_KEY, COMMIT_TIME, FILE_NAME))
    return sorted(Row(*values) for values in zip(*columns, strict=True))
