"""lakemark and Apache Hudi continue each other's tables with consistent hashing.

Both split and merge buckets in between, and execute each other's plans. No key is stored twice,
because both find the same bucket.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import lakemark
from lakemark.execution.runner import LocalRunner
from lakemark.operations.resize_buckets import request_resize, resize_table
from lakemark.operations.write_result import WriteResult
from lakemark.read.queries import Incremental
from lakemark.transaction.multi_writer import MultiWriter
from tests.golden.make.options import CONSISTENT_HASHING
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.test_lookup_index import Model, check, view_of
from tests.rings import SPLIT_ALL, assert_in_buckets

pytestmark = pytest.mark.oracle

APACHE = ApacheTable(
    "orders",
    ["id"],
    ["region"],
    ["ts"],
    extra=CONSISTENT_HASHING,
)
_SCHEDULE = {
    "hoodie.clustering.schedule.inline": "true",
    "hoodie.clustering.async.max.commits": "1",
    "hoodie.clustering.inline.max.commits": "1",
}
_EXECUTE = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "100"}
_CDC = {
    "hoodie.table.cdc.enabled": "true",
    "hoodie.table.cdc.supplemental.logging.mode": "data_before_after",
}
_SPLIT = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}


def test_both_continue_the_table_while_buckets_are_split(oracle: Oracle, tmp_path: Path) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    lakemark.open(path).upsert(model.upserts([*range(20, 60)], 20))
    check(oracle, path, model)
    before = len(view_of(path).file_groups())
    oracle.write(path, model.upserts(range(30, 50), 30), APACHE, options=_SPLIT)
    assert len({one.group for one in view_of(path).latest_slices()}) > before
    check(oracle, path, model)
    table = lakemark.open(path)
    table.upsert(model.upserts([*range(0, 80, 3)], 40))
    table.delete(model.deletes([0, 1, 2, 75]))
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 90, 2), 50), APACHE)
    check(oracle, path, model)
    table.refresh()
    table.compact()
    table.upsert(model.upserts([*range(85, 95)], 60))
    check(oracle, path, model)


def test_apache_hudi_continues_a_partition_that_lakemark_began(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(0, 40, 2), 10), APACHE)  # the region north
    lakemark.open(path).upsert(model.upserts(range(1, 40, 2), 20))  # the region south
    oracle.write(path, model.upserts(range(20, 60), 30), APACHE)
    check(oracle, path, model)


def test_both_resize_buckets_in_turn(oracle: Oracle, tmp_path: Path) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    table = lakemark.open(path)
    assert resize_table(table._table, SPLIT_ALL)
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(20, 60), 20), APACHE)
    oracle.write(path, model.upserts(range(30, 50), 30), APACHE, options=_SPLIT)
    check(oracle, path, model)
    table.refresh()
    merged = table.resize_buckets(split_above_bytes=1 << 40, merge_below_bytes=1 << 30)
    assert len(merged.instants) == 1
    assert len(table._table.view().latest_slices()) <= 4, "two buckets in each region"
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 70, 3), 40), APACHE)
    table.refresh()
    table.upsert(model.upserts(range(0, 70, 7), 50))
    assert_in_buckets(table._table)
    check(oracle, path, model)


def test_apache_hudi_continues_a_table_of_lakemark_that_was_resized(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, model = tmp_path / "orders", Model()
    rows = model.upserts(range(40), 10)
    table = lakemark.create(
        path,
        schema=rows.schema,
        record_key=["id"],
        partition_by=["region"],
        ordering=["ts"],
        index="consistent_hashing",
        buckets=2,
    )
    table.upsert(rows)
    assert resize_table(table._table, SPLIT_ALL)
    oracle.write(path, model.upserts(range(20, 60), 20), APACHE)
    check(oracle, path, model)
    table.refresh()
    table.upsert(model.upserts(range(10, 30), 30))
    assert_in_buckets(table._table)
    check(oracle, path, model)


@pytest.mark.parametrize("executor", ["lakemark", "apache"])
def test_a_plan_of_one_is_executed_by_the_other(
    oracle: Oracle, tmp_path: Path, executor: str
) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    table = lakemark.open(path)
    if executor == "apache":
        resize = request_resize(table._table, SPLIT_ALL)
        assert resize is not None
        resize.stop_heartbeat()
        oracle.write(path, model.upserts(range(5), 20), APACHE, options=_EXECUTE)
    else:
        oracle.write(path, model.upserts(range(5), 20), APACHE, options=_SCHEDULE)
        table.refresh()
        assert table.timeline.pending()
        table.upsert(model.upserts(range(3, 45), 30))
    table.refresh()
    assert not table.timeline.pending()
    assert len(table._table.view().latest_slices()) == 8
    assert_in_buckets(table._table)
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 60, 5), 40), APACHE)
    check(oracle, path, model)


def test_rows_that_apache_hudi_writes_to_old_and_new_buckets_are_kept(
    oracle: Oracle, tmp_path: Path
) -> None:
    """Apache Hudi writes rows twice while a resize is pending; lakemark executes the resize."""
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    oracle.write(path, model.upserts(range(5), 20), APACHE, options=_SCHEDULE)
    oracle.write(path, model.upserts(range(0, 60, 2), 30), APACHE)
    table = lakemark.open(path)
    view = table._table.view()
    assert view.unpublished.keys() & view.groups.keys(), "Apache Hudi has written to new buckets"
    check(oracle, path, model)
    table.upsert(model.upserts(range(3, 45), 40))
    assert not table.timeline.pending()
    assert_in_buckets(table._table)
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 60, 5), 50), APACHE)
    check(oracle, path, model)


@pytest.mark.parametrize("executor", ["lakemark", "apache"])
def test_both_write_to_old_and_new_buckets_while_a_resize_is_pending(
    oracle: Oracle, tmp_path: Path, executor: str
) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    table = lakemark.open(path, multi_writer=MultiWriter())
    resize = request_resize(table._table, SPLIT_ALL)
    assert resize is not None
    first = table.upsert(model.upserts(range(10, 50), 20))
    table.delete(model.deletes([3, 12, 45]))
    view = view_of(path)
    assert view.unpublished.keys() & view.groups.keys(), "lakemark has written to new buckets"
    check(oracle, path, model)
    changed = {f"k{n:03d}" for n in range(10, 50)}
    _check_changed(oracle, path, first, changed)
    if executor == "lakemark":
        oracle.write(path, model.upserts(range(0, 60, 2), 30), APACHE)
        check(oracle, path, model)
        resize.publish(resize.rewrite(LocalRunner(1)))
        resize.stop_heartbeat()
    else:
        resize.stop_heartbeat()
        oracle.write(path, model.upserts(range(5), 30), APACHE, options=_EXECUTE)
    table.refresh()
    assert not table.timeline.pending()
    assert_in_buckets(table._table)
    check(oracle, path, model)
    _check_changed(oracle, path, first, changed)
    table.upsert(model.upserts(range(25, 70), 40))
    oracle.write(path, model.upserts(range(0, 60, 5), 50), APACHE)
    assert_in_buckets(table._table)
    check(oracle, path, model)


def _check_changed(oracle: Oracle, path: Path, commit: WriteResult, keys: set[str]) -> None:
    """Check that both return each row of a commit once."""
    assert commit.instant is not None
    assert commit.completed_at is not None
    before = str(int(commit.completed_at) - 1)
    table = lakemark.open(path)
    ours = table.scan(Incremental(before, commit.completed_at), ["id"]).to_table()
    assert sorted(ours["id"].to_pylist()) == sorted(keys)
    options = {
        "hoodie.datasource.read.begin.instanttime": before,
        "hoodie.datasource.read.end.instanttime": commit.completed_at,
    }
    theirs = oracle.read(path, "incremental", options)
    assert sorted(theirs["id"].to_pylist()) == sorted(keys)


def test_changes_that_apache_hudi_wrote_twice_are_returned_once(
    oracle: Oracle, tmp_path: Path
) -> None:
    """Apache Hudi 1.2.0 cannot read them itself ("No value present in Option").

    So lakemark does not write twice if CDC is enabled.
    """
    path, model = tmp_path / "orders", Model()
    logged = replace(APACHE, extra={**APACHE.extra, **_CDC})
    oracle.write(path, model.upserts(range(40), 10), logged)
    oracle.write(path, model.upserts(range(5), 20), logged, options=_SCHEDULE)
    done = oracle.write(path, model.upserts(range(20, 60), 30), logged)
    before = str(int(done.requested_at) - 1)
    table = lakemark.open(path)
    changed = table.changes(before, done.requested_at).to_table()
    assert changed.num_rows == 40
    table.upsert(model.upserts(range(3, 45), 40))
    assert not table.timeline.pending()
    assert table.changes(before, done.requested_at).to_table().num_rows == 40
    check(oracle, path, model)


def test_apache_hudi_reads_no_row_twice_after_a_resize_was_undone(
    oracle: Oracle, tmp_path: Path
) -> None:
    path, model = tmp_path / "orders", Model()
    oracle.write(path, model.upserts(range(40), 10), APACHE)
    table = lakemark.open(path, multi_writer=MultiWriter())
    resize = request_resize(table._table, SPLIT_ALL)
    assert resize is not None
    table.upsert(model.upserts(range(10, 50), 20))
    resize.stop_heartbeat()
    table.rollback(resize.execution.instant.requested_at)
    check(oracle, path, model)
    oracle.write(path, model.upserts(range(0, 60, 2), 30), APACHE)
    check(oracle, path, model)
