"""lakemark and Apache Hudi write in turn to tables of each index and each key generator.

After each turn, both read the rows of the model, no key is stored twice, and the indexes of the
metadata table equal the rows. ``make test-oracle`` runs a sample of the cells, and this command
runs all of them:

    LAKEMARK_DEPTH=2 .venv/bin/python -m pytest tests/interop/test_index_matrix.py
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.operations.table_index import IndexKind
from tests.depth import sample
from tests.interop.index_cells import (
    BUCKETS_OF_PARTITIONS,
    CELLS,
    SCHEMA,
    SQL_COLUMNS,
    Cell,
    CellTable,
    Model,
    sorted_rows,
)
from tests.interop.oracle import Oracle, WriteOperation
from tests.interop.same_rows import assert_same_rows
from tests.interop.test_lookup_index import SEVERAL_GROUPS

pytestmark = pytest.mark.oracle

ROUNDS = 3


@pytest.mark.parametrize("cell", sample(CELLS, one_in=240), ids=str)
def test_both_write_in_turn_for_three_rounds(oracle: Oracle, tmp_path: Path, cell: Cell) -> None:
    table = CellTable(cell, tmp_path / "orders")
    odd = "a/b=c:%20" if table.is_encoded else "ü d"
    model = Model(bool(table.keys.record), table.index.is_global, ("north", odd, None))
    if cell.creator == "lakemark":
        table.create()
        add(table.open(), model.upserts(range(30), 10, 0))
    else:
        rows, apache = model.upserts(range(30), 10, 0), table.apache()
        if table.keys.is_created_by_sql:
            oracle.create_table(table.path, SQL_COLUMNS, apache)
        splits = SEVERAL_GROUPS if table.index.kind is IndexKind.LOOKUP else {}
        oracle.write(table.path, rows, apache, operation(table), options=splits)
        if cell.keys in ("custom", "custom_seconds"):
            store_time_options(table)
    if cell.index == "partition_buckets":
        change_bucket_counts(oracle, table)
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
    add(opened, model.upserts([*range(turn, 24, 2), *range(28 + turn, 33 + turn)], ts, turn))
    add(opened, model.upserts([n for n in range(0, 30, 3) if n in model.rows], ts - 60, turn + 1))
    if model.has_keys:
        gone = model.deletes([turn, turn + 8, turn + 16, 99], ts)
        opened.delete(gone.select(table.keys.record))


def add(table: lakemark.Table, rows: pa.Table) -> None:
    """Upsert rows, or insert them if they get automatic keys."""
    write = table.insert if table.properties.has_automatic_keys else table.upsert
    write(rows)


def apache_writes(oracle: Oracle, table: CellTable, model: Model, ts: int, turn: int) -> None:
    """Change keys that lakemark has added, changed and deleted, and delete some of them."""
    rows = model.upserts([*range(turn % 2, 20, 3), *range(30 + turn, 36 + turn)], ts, turn + 1)
    oracle.write(table.path, rows, table.apache(), operation(table))
    if model.has_keys:
        stored = sorted(model.rows)
        gone = model.deletes([stored[turn], stored[turn + 5], stored[-turn]], ts + 1)
        oracle.write(table.path, gone, table.apache(), "delete")


def operation(table: CellTable) -> WriteOperation:
    return "upsert" if table.keys.record else "insert"


def change_bucket_counts(oracle: Oracle, table: CellTable) -> None:
    """Give some partitions other bucket counts, which only a procedure of Apache Hudi does."""
    apache = table.apache()
    call = (
        f"CALL partition_bucket_index_manager(table => '{apache.name}', overwrite => "
        f"'{BUCKETS_OF_PARTITIONS}', bucket_number => 2, dry_run => false)"
    )
    options = {**apache.version_options, **table.keys.options}
    with oracle.named(apache.name, table.path), oracle.settings(options):
        assert oracle.query(call).column("result").to_pylist() == ["SUCCESS"]


def compact(oracle: Oracle, table: CellTable, turn: int) -> None:
    if turn % 2:
        table.open().compact()
    else:
        options = {"hoodie.metadata.enable": str(table.has_metadata).lower()}
        oracle.compact(table.path, options={**table.apache().write_options(), **options})


def check(oracle: Oracle, table: CellTable, model: Model) -> None:
    """Check that both read the rows of the model, and that the metadata table equals the files."""
    ours = table.open().snapshot().read_all()
    assert sorted_rows(ours.select(SCHEMA.names).to_pylist()) == model.sorted_rows()
    from_path = "hoodie.datasource.read.extract.partition.values.from.path"
    theirs = oracle.read(table.path, options={from_path: "true"} if table.reads_folders else {})
    ignored = [*table.keys.partition]
    if not table.keys.meta_columns:
        ignored += [name for name in theirs.column_names if name.startswith("_hoodie_")]
    assert_same_rows(ours, theirs, ignoring=ignored)
    differences = lakemark.open(table.path).metadata_differences()
    if table.cell.index == "partition_buckets":
        # Apache Hudi does not narrow the statistics of partitions whose files it has replaced.
        differences = [one for one in differences if one.path[-1:] not in ("", "/")]
    assert not differences, differences[:3]


def store_time_options(table: CellTable) -> None:
    """Store how times are formatted, which Apache Hudi does not do for this key generator."""
    stored = table.path / PROPERTIES_PATH
    values = TableProperties.parse(stored.read_bytes()).values
    stored.write_bytes(TableProperties({**values, **table.keys.options}).to_bytes())
    stored.with_name(f".{stored.name}.crc").unlink()  # Hadoop's checksum of the former file
