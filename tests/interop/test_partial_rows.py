"""Apache Hudi reads and compacts partial rows that lakemark wrote."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

from lakemark.model.changes import WRITTEN_COLUMNS, ChangeKind
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.model.written_columns import own_columns, pack
from lakemark.write import file_group_write
from tests.interop import lakemark
from tests.interop.lakemark import LakemarkWriter
from tests.interop.oracle import ApacheTable, Oracle
from tests.interop.same_rows import assert_same_rows

pytestmark = pytest.mark.oracle

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("region", pa.string()),
        ("ts", pa.int64()),
        ("note", pa.string()),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("seen", pa.timestamp("us", "UTC")),
    ]
)
OPTIONAL = ("note", "price", "tags", "seen")
KEYS, COMMITS = 24, 9

Row = Mapping[str, object]


class Stream:
    """Commits of rows with all columns, with some, and of deletes, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._now = 100

    def rows(self, *, is_partial: bool) -> list[Row]:
        """Draw rows; some have new keys, and one in four is late."""
        self._now += 10
        return [
            self._row(key, is_partial=is_partial) for key in self._random.sample(range(KEYS), 10)
        ]

    def _row(self, key: int, *, is_partial: bool) -> Row:
        late = self._random.choice((0, 0, 0, 35))
        row = {"id": f"k{key:02}", "region": f"r{key % 2}", "ts": self._now - late}
        number = self._random.randrange(1, 1000)
        seen = datetime(2026, 1, 1, 0, 0, number % 60, tzinfo=UTC)
        values = (f"n{number}", Decimal(number), [f"t{number}"], seen)
        nullable = [self._random.choice((value, value, None)) for value in values]
        optional = dict(zip(OPTIONAL, nullable, strict=True))
        kept = self._random.sample(OPTIONAL, self._random.randrange(5)) if is_partial else OPTIONAL
        return {**row, **{name: optional[name] for name in kept}}


def _upsert(writer: LakemarkWriter, rows: list[Row]) -> None:
    """Commit rows; each row keeps the values of the columns that it does not contain."""
    changes = writer.changes(pa.Table.from_pylist(rows, SCHEMA), ChangeKind.UPSERT)
    flags = [[n in row or n in META_COLUMNS for n in own_columns(changes)] for row in rows]
    writer.begin(changes.append_column(WRITTEN_COLUMNS, pack(np.array(flags))))()


@pytest.mark.parametrize(
    ("version", "log_format", "ordering", "most_sets"),
    [
        (9, "parquet", ["ts"], None),
        (9, "avro", ["ts"], None),
        (9, "parquet", ["ts"], 1),
        (9, "avro", ["ts"], 1),
        (9, "parquet", [], None),
        # Version 8 has the same logs as 9; logs of version 6 have no blocks of partial rows.
        (8, "avro", [], None),
    ],
)
def test_apache_reads_partial_rows(
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    log_format: Literal["parquet", "avro"],
    ordering: list[str],
    most_sets: int | None,
) -> None:
    monkeypatch.setattr(file_group_write, "MAX_COLUMN_SETS", most_sets)
    path, stream = tmp_path / "t", Stream(seed=len(ordering))
    twin = ApacheTable("t", ["id"], ["region"], ordering, version=version, log_format=log_format)
    writer = LakemarkWriter.open(path, twin, SCHEMA)
    for number in range(COMMITS):
        rows = stream.rows(is_partial=number % 3 != 1)
        if number % 4 == 3:
            writer.delete(pa.Table.from_pylist(rows[:4], SCHEMA))
        else:
            _upsert(writer, rows)
        assert_same_rows(lakemark.read_snapshot(path), oracle.read(path))
    before = lakemark.read_snapshot(path)
    assert oracle.compact(path)
    after = lakemark.read_snapshot(path)
    assert_same_rows(after, oracle.read(path))
    assert_same_rows(before, after, ignoring=META_COLUMNS)
