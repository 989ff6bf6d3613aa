"""Writers and readers of a table in merge mode CUSTOM use its merger."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakemark
from lakemark.config.merger_name import MergerName
from lakemark.config.table_properties import TableType
from lakemark.errors import Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.merge.custom import Records, VectorMerge, VectorMerger, choose_rows
from lakemark.model.changes import ChangeKind
from lakemark.operations.create import create_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from streamer import cli
from tests import tables
from tests.tables import Row

PATH = f"{__name__}:Sums"

ROWS = [
    [Row("a", 1, 1), Row("b", 1, 10), Row("c", 1, 100)],
    [Row("a", 2, 2), Row("b", 2, kind=ChangeKind.DELETE), Row("c", 0, kind=ChangeKind.DELETE)],
    [Row("a", 1, 4), Row("a", 3, 8), Row("d", 1, 1000)],
]
#: A delete with an older ordering value than the row's does nothing.
EXPECTED = {"a": (3, 15), "c": (1, 100), "d": (1, 1000)}


class Sums(VectorMerger):
    """Adds up the payloads of all versions. The later version provides all other columns."""

    merging_strategy = "8a1e25de-7f4b-4b57-9d4b-6f2a0f4b5c10"

    def merge(self, older: Records, newer: Records) -> VectorMerge:
        wins = newer.wins_over(older)
        rows = choose_rows(wins, newer.rows, older.rows)
        total = pc.add(*(pc.fill_null(records["v"], 0) for records in (older, newer)))
        rows = rows.set_column(rows.column_names.index("v"), rows.schema.field("v"), total)
        return VectorMerge(rows, ~np.where(wins, newer.is_delete, older.is_delete))


def written(folder: Path, table_type: TableType) -> TableWriter:
    spec = replace(
        tables.spec(table_type),
        merge_mode=None,
        partition_by=(),
        merger=MergerName(PATH, Sums.merging_strategy),
    )
    table = create_table(StorageLocation(str(folder)), spec)
    table.mergers = (Sums(),)
    to = TableWriter(table, tables.SCHEMA, WriterSettings(tables.INDEX, merger_class=PATH))
    for rows in ROWS:
        tables.commit(to, [replace(row, region="") for row in rows])
    return to


def contents(rows: pa.Table) -> dict[str, tuple[int, int]]:
    return {row["id"]: (row["ts"], row["v"]) for row in rows.to_pylist()}


@pytest.mark.parametrize("table_type", list(TableType))
def test_writers_and_readers_merge_with_the_custom_merger(
    tmp_path: Path, table_type: TableType
) -> None:
    to = written(tmp_path / "lake", table_type)
    opened = lakemark.open(tmp_path / "lake", mergers=[Sums()])
    assert contents(opened.snapshot().read_all()) == EXPECTED
    assert contents(opened.snapshot(["v", "id", "ts"]).read_all()) == EXPECTED
    if table_type is TableType.MERGE_ON_READ:
        assert opened.snapshot(["v"], "v > 100").read_all()["v"].to_pylist() == [1000]
        to.compact_if_due(CompactionPolicy(after_commits=1), LocalRunner())
        without = lakemark.open(tmp_path / "lake")
        assert contents(without.snapshot().read_all()) == EXPECTED


def test_table_cannot_be_read_without_its_merger(tmp_path: Path) -> None:
    written(tmp_path / "lake", TableType.MERGE_ON_READ)
    with pytest.raises(Unsupported, match=Sums.merging_strategy):
        lakemark.open(tmp_path / "lake").snapshot()


def test_command_line_accepts_a_merger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path / "lake", TableType.MERGE_ON_READ)
    arguments = ["query", str(tmp_path / "lake"), "--merger", PATH, "--json"]
    assert cli.main(arguments) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["id"]: (row["ts"], row["v"]) for row in rows} == EXPECTED
