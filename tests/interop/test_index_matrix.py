"""lakemark and Apache Hudi write in turn to tables of each index and each key generator.

After each turn, both read the rows of the model, no key is stored twice, and the indexes of the
metadata table equal the rows. ``make test-oracle`` runs a sample of the cells, and this command
runs all of them:

    LAKEMARK_DEPTH=2 .venv/bin/python -m pytest tests/interop/test_index_matrix.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakemark
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from tests.depth import sample
from tests.interop.index_cells import CELLS, SCHEMA, SQL_COLUMNS, Cell, CellTable, Model
from tests.interop.oracle import Oracle
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_lookup_index import SEVERAL_GROUPS

pytestmark = pytest.mark.oracle

ROUNDS = 3


@pytest.mark.parametrize("cell", sample(CELLS, one_in=120), ids=str)
def test_both_write_in_turn_for_three_rounds(oracle: Oracle, tmp_path: Path, cell: Cell) -> None:
    table = CellTable(cell, tmp_path / "orders")
    odd = "a/b=c:%20" if table.is_encoded else "ü d"
    model = Model(table.index.is_global, ("north", odd, None))
    if cell.creator == "lakemark":
        table.create()
        table.open().upsert(model.upserts(range(30), 10, 0))
    else:
        rows, apache = model.upserts(range(30), 10, 0), table.apache()
        if table.keys.is_created_by_sql:
            oracle.create_table(table.path, SQL_COLUMNS, apache)
        splits = {} if cell.index in ("bucket", "consistent") else SEVERAL_GROUPS
        oracle.write(table.path, rows, apache, options=splits)
        if cell.keys == "custom":
            store_time_options(table)
    check(oracle, table, model)
    for turn in range(1, ROUNDS + 1):
        lakemark_writes(table, model, 100 * turn, turn)
        check(oracle, table, model)
        apache_writes(oracle, table, model, 100 * turn + 50, turn)
        check(oracle, table, model)
        if cell.table_type == "MERGE_ON_READ" and turn < ROUNDS:
            compact(oracle, table, turn)
            check(oracle, table, model)


def lakemark_writes(table: CellTable, model: Model, ts: int, turn: int) -> None:
    """Change odd keys and new keys, some of them late, and delete keys, some of them absent."""
    opened = table.open()
    opened.upsert(model.upserts([*range(turn, 24, 2), *range(28 + turn, 33 + turn)], ts, turn))
    opened.upsert(model.upserts([n for n in range(0, 30, 3) if n in model.rows], ts - 60, turn + 1))
    opened.delete(model.deletes([turn, turn + 8, turn + 16, 99], ts).select(table.keys.record))


def apache_writes(oracle: Oracle, table: CellTable, model: Model, ts: int, turn: int) -> None:
    """Change keys that lakemark has added, changed and deleted, and delete some of them."""
    rows = model.upserts([*range(turn % 2, 20, 3), *range(30 + turn, 36 + turn)], ts, turn + 1)
    oracle.write(table.path, rows, table.apache())
    stored = sorted(model.rows)
    gone = model.deletes([stored[turn], stored[turn + 5], stored[-turn]], ts + 1)
    oracle.write(table.path, gone, table.apache(), "delete")


def compact(oracle: Oracle, table: CellTable, turn: int) -> None:
    if turn % 2:
        table.open().compact()
    else:
        options = {"hoodie.metadata.enable": str(table.has_metadata).lower()}
        oracle.compact(table.path, options={**table.apache().write_options(), **options})


def check(oracle: Oracle, table: CellTable, model: Model) -> None:
    """Check that both read the rows of the model, and that the metadata table equals the files."""
    ours = table.open().snapshot().read_all()
    found = sorted(ours.select(SCHEMA.names).to_pylist(), key=lambda row: (row["n"], row["ts"]))
    assert found == [model.rows[number] for number in sorted(model.rows)]
    from_path = "hoodie.datasource.read.extract.partition.values.from.path"
    theirs = oracle.read(
        table.path, options={from_path: "true"} if table.cell.keys == "timestamp" else {}
    )
    ignored = [*table.keys.partition]
    if not table.keys.meta_columns:
        ignored += [name for name in theirs.column_names if name.startswith("_hoodie_")]
    assert_same_rows(ours, theirs, ignoring=ignored)
    differences = lakemark.open(table.path).metadata_differences()
    assert not differences, differences[:3]


def store_time_options(table: CellTable) -> None:
    """Store how times are formatted, which Apache Hudi does not do for this key generator."""
    stored = table.path / PROPERTIES_PATH
    values = TableProperties.parse(stored.read_bytes()).values
    stored.write_bytes(TableProperties({**values, **table.keys.options}).to_bytes())
    stored.with_name(f".{stored.name}.crc").unlink()  # Hadoop's checksum of the former file
