"""The tables of the read benchmark contain the rows with which answers are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import orders, tables
from benchmarks.peers.read_contract import Sums
from benchmarks.tables import Delta, Layout
from lakemark.operations.open_table import open_table
from lakemark.read.queries import ReadOptimized
from lakemark.storage import StorageLocation

LAYOUT = Layout(rows=2_000, partitions=3, buckets=2)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("benchmark") / "table"
    tables.create(path, LAYOUT)
    for delta in tables.UPDATES:
        tables.append(path, LAYOUT, delta)
    return path


def test_a_table_holds_what_is_expected_of_it(path: Path) -> None:
    table = open_table(StorageLocation(str(path)))
    assert tables.sums(table.scan().batches()) == tables.expected(LAYOUT, tables.UPDATES)
    bases = table.scan(ReadOptimized())
    assert tables.sums(bases.batches()) == tables.expected(LAYOUT)
    assert len(bases.slices) == len(tables.base_files(path)) == 6
    assert all(len(each.logs) == 2 for each in table.view().latest_slices())


def test_sums_under_a_condition_are_those_of_its_rows(path: Path) -> None:
    table = open_table(StorageLocation(str(path)))
    scan = table.scan(where="region = 'region001' and sequence < 900")
    expected = tables.expected(LAYOUT, tables.UPDATES, lambda n: (n % 3 == 1) & (n < 900))
    assert 0 < expected.rows < 300
    assert tables.sums(scan.batches()) == expected


def test_the_sequence_ascends_within_every_base_file(path: Path) -> None:
    for rows in open_table(StorageLocation(str(path))).scan(ReadOptimized()).batches(threads=1):
        assert (np.diff(rows.column(orders.SEQUENCE)) > 0).all()


def test_a_fifth_is_updated_half_of_it_twice_and_a_hundredth_deleted() -> None:
    numbers = np.arange(100_000)
    first, second = tables.UPDATES
    assert first.updates(numbers).mean() == pytest.approx(1 / 5, rel=0.05)
    assert second.updates(numbers).mean() == pytest.approx(1 / 10, rel=0.05)
    assert second.deletes(numbers).mean() == pytest.approx(1 / 100, rel=0.1)
    assert not (second.updates(numbers) & ~first.updates(numbers)).any()
    assert not (second.deletes(numbers) & first.updates(numbers)).any()


def test_rows_depend_on_number_and_version_alone() -> None:
    whole = orders.rows(np.arange(100), partitions=3, version=1)
    assert whole.slice(40, 20).equals(orders.rows(np.arange(40, 60), partitions=3, version=1))
    older = orders.rows(np.arange(100), partitions=3)
    assert whole.column("note") != older.column("note")
    assert whole.column(orders.KEY).equals(older.column(orders.KEY))
    assert len(set(whole.column(orders.KEY).to_pylist())) == 100


def test_a_merge_finds_every_row_in_both_files() -> None:
    layout = Layout(rows=500, partitions=1, buckets=1)
    rewritten = tables.expected(layout, tables.REWRITE)
    assert rewritten == tables.sums(orders.rows(np.arange(500), 1, version=1).to_batches())
    assert tables.expected(layout, (Delta(1, tables.no_row, tables.every_row),)) == Sums()


def test_sums_of_nothing_are_zero() -> None:
    empty = pa.RecordBatch.from_pylist([], orders.SCHEMA)
    assert tables.sums([empty]) == tables.sums([]) == Sums()
