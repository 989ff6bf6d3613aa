"""Apache Hudi reads and continues buckets that have prepared base files and logs of one resize."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakemark.config.table_properties import PROPERTIES_PATH, MergeMode
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import FormatVersion
from lakemark.operations.group_replacement import GroupReplacement
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.prepared_resize import (
    PreparedResize,
    begin_preparation,
    publish_prepared,
)
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import StorageLocation, open_storage
from tests.golden.make.options import CONSISTENT_HASHING
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_consistent_hashing import _EXECUTE, _SPLIT
from tests.rings import SPLIT_ALL, assert_in_buckets, ring_writer
from tests.table_services import as_of, make_plain, since
from tests.tables import SCHEMA, Row, commit, contents, make, spec

pytestmark = pytest.mark.oracle

REGIONS = ("north", "south")

each_table = pytest.mark.parametrize(
    ("version", "has_metadata"),
    [
        (FormatVersion.V8, True),
        (FormatVersion.V9, False),
        (FormatVersion.V9, True),
    ],
)


def some(ts: int, numbers: Iterable[int], kind: ChangeKind = ChangeKind.UPSERT) -> list[Row]:
    return [Row(f"k{n}", ts, ts * 100 + n, REGIONS[n % 2], kind) for n in numbers]


def apache(version: FormatVersion, has_metadata: bool) -> ApacheTable:
    return ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        version=int(version),
        has_metadata=has_metadata,
        extra=CONSISTENT_HASHING,
    )


def prepared_at(
    path: Path, version: FormatVersion, has_metadata: bool, folder: Path
) -> tuple[TableWriter, PreparedResize]:
    """Create a table, prepare a resize, and write changes; return what is not published yet."""
    storage = open_storage(StorageLocation(str(path)))
    (make if has_metadata else make_plain)(storage, version=version)
    to = ring_writer(storage)
    commit(to, some(5, range(40)))
    commit(to, some(7, range(10), ChangeKind.DELETE))
    preparation = begin_preparation(to.table, SPLIT_ALL)
    assert preparation is not None
    folder.mkdir()
    prepared = preparation.run(folder)
    commit(to, some(6, range(5)))
    commit(to, some(8, range(20, 50)))
    commit(to, some(9, range(34, 37), ChangeKind.DELETE))
    (folder / "round").mkdir()
    prepared = prepared.begin_round(to.table).run(folder / "round")
    commit(to, [*some(9, (36,)), *some(8, (34,))])  # of keys that were deleted before the round
    commit(to, some(9, range(30, 35), ChangeKind.DELETE))
    return to, prepared


def rows_of(
    oracle: Oracle, path: Path, options: Mapping[str, str] | None = None
) -> dict[str, tuple[int, int]]:
    found = oracle.read(path, options=options).select(SCHEMA.names).to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is stored twice"
    return {row["id"]: (row["ts"], row["v"]) for row in found}


def table_of(rows: Iterable[Row]) -> pa.Table:
    listed = [{"id": r.id, "region": r.region, "ts": r.ts, "v": r.v} for r in rows]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


def values(rows: Iterable[Row]) -> dict[str, tuple[int, int]]:
    return {row.id: (row.ts, row.v) for row in rows}


@each_table
def test_apache_hudi_continues_a_published_resize(
    oracle: Oracle, tmp_path: Path, version: FormatVersion, has_metadata: bool
) -> None:
    path, table = tmp_path / "orders", apache(version, has_metadata)
    to, prepared = prepared_at(path, version, has_metadata, tmp_path / "prepared")
    expected, newest = contents(to.table.storage), to.table.timeline.completed()[-1]
    ((resized, metadata),) = publish_prepared(to.table, prepared)
    assert {stat.is_base_file for stat in metadata.write_stats} == {True, False}
    assert metadata_differences(to.table) == []
    check_base_files(path, [stat.path or "" for stat in metadata.write_stats if stat.is_base_file])
    assert rows_of(oracle, path) == expected
    for instant in (newest, resized):
        past = rows_of(oracle, path, {"as.of.instant": instant.requested_at})
        assert past == as_of(to.table, instant.requested_at) == expected
    if version is FormatVersion.V9:
        begin = to.table.timeline.completed()[1].completed_at or ""
        options = {"hoodie.datasource.read.begin.instanttime": begin}
        found = oracle.read(path, "incremental", options).select(["id", "v"]).to_pylist()
        changed = sorted((row["id"], row["v"]) for row in found)
        assert changed == sorted(since(to.table, begin))
        assert changed, "rows that were written after the preparation"
    oracle.write(path, table_of(some(8, range(28, 36))), table)  # those of 30 to 35 are too late
    expected |= values(some(8, (28, 29)))
    assert rows_of(oracle, path) == expected == contents(to.table.storage)
    oracle.compact(path, options={"hoodie.metadata.enable": str(has_metadata).lower()})
    assert rows_of(oracle, path) == expected == contents(to.table.storage)
    before = len(ring_writer(to.table.storage).table.view().latest_slices())
    oracle.write(path, table_of(some(10, range(0, 60, 2))), table, options=_SPLIT)
    expected |= values(some(10, range(0, 60, 2)))
    assert rows_of(oracle, path) == expected == contents(to.table.storage)
    other = ring_writer(to.table.storage)
    assert len(other.table.view().latest_slices()) > before
    commit(other, some(11, range(70)))
    assert rows_of(oracle, path) == values(some(11, range(70)))
    assert_in_buckets(other.table)


@each_table
def test_apache_hudi_executes_a_plan_whose_executor_died_after_it_wrote_logs(
    oracle: Oracle, tmp_path: Path, version: FormatVersion, has_metadata: bool
) -> None:
    path, table = tmp_path / "orders", apache(version, has_metadata)
    to, prepared = prepared_at(path, version, has_metadata, tmp_path / "prepared")
    expected, plan = contents(to.table.storage), prepared.preparation.plan_now
    resize = GroupReplacement.request(to.table, lambda: plan(to.table), prepared.check)
    assert resize is not None
    assert any(not stat.is_base_file for stat in resize.rewrite(to.table.context.runner))
    resize.stop_heartbeat()
    assert rows_of(oracle, path) == expected
    oracle.write(path, table_of(some(10, range(3))), table, options=_EXECUTE)
    expected |= values(some(10, range(3)))
    assert rows_of(oracle, path) == expected == contents(to.table.storage)
    other = ring_writer(to.table.storage)
    assert not other.table.timeline.pending()
    assert len(other.table.view().latest_slices()) == 8
    commit(other, some(11, range(70)))
    assert rows_of(oracle, path) == values(some(11, range(70)))
    assert_in_buckets(other.table)


@pytest.mark.parametrize("version", [FormatVersion.V8, FormatVersion.V9])
def test_apache_hudi_reads_the_changes_of_a_key_in_their_order(
    oracle: Oracle, tmp_path: Path, version: FormatVersion
) -> None:
    """The latest change wins, and one log has the changes of several commits.

    The compaction finds no commit that is later than the resize.
    """
    path = tmp_path / "orders"
    storage = open_storage(StorageLocation(str(path)))
    by_commit = replace(spec(version=version), merge_mode=MergeMode.COMMIT_TIME)
    storage.create(PROPERTIES_PATH, by_commit.to_properties().to_bytes())
    to = ring_writer(storage)
    commit(to, some(9, range(20)))
    preparation = begin_preparation(to.table, SPLIT_ALL)
    assert preparation is not None
    (tmp_path / "prepared").mkdir()
    prepared = preparation.run(tmp_path / "prepared")
    commit(to, some(7, range(10)))
    commit(to, some(6, range(8), ChangeKind.COMMIT_TIME_DELETE))
    commit(to, some(5, range(6)))
    commit(to, some(4, (0, 1), ChangeKind.COMMIT_TIME_DELETE))
    expected = contents(storage)
    assert rows_of(oracle, path) == expected
    assert publish_prepared(to.table, prepared)
    assert rows_of(oracle, path) == expected == contents(storage)
    oracle.compact(path)
    assert rows_of(oracle, path) == expected == contents(storage)


def test_apache_hudi_rolls_back_a_published_resize(oracle: Oracle, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    to, prepared = prepared_at(path, FormatVersion.V9, True, tmp_path / "prepared")
    expected = contents(to.table.storage)
    ((resized, _),) = publish_prepared(to.table, prepared)
    oracle.rollback(path, resized.requested_at)
    assert rows_of(oracle, path) == expected == contents(to.table.storage)


def check_base_files(path: Path, names: Iterable[str]) -> None:
    """Check that each row of a base file names the file, also in the statistics of the columns."""
    for name in names:
        full, own = str(path / name), name.rpartition("/")[2]
        assert set(pq.read_table(full)["_hoodie_file_name"].to_pylist()) == {own}
        question = f"SELECT count(*) FROM '{full}' WHERE _hoodie_file_name = '{own}'"
        found = duckdb.execute(question).fetchone()
        assert found == (pq.read_metadata(full).num_rows,)
