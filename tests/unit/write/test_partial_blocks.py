from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.log.data_block import read_rows
from lakemark.log.log_block import HeaderKey, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.model.changes import CHANGE_KIND_FIELD, WRITTEN_COLUMNS, ChangeKind
from lakemark.model.file_names import LogFileName
from lakemark.model.file_slice import LogFile
from lakemark.model.meta_columns import META_COLUMNS, PARTITION_PATH, RECORD_KEY
from lakemark.model.written_columns import pack
from lakemark.read.file_group_reader import all_visible
from lakemark.read.log_changes import LogChanges
from lakemark.schema.avro import to_avro
from lakemark.storage import Storage
from lakemark.write.log_file_writer import LogFileWriter
from tests.depth import examples
from tests.golden.golden_table import unpack
from tests.unit.write.tables import (
    AVRO_SCHEMA,
    FILE_ID,
    INSTANT,
    SCHEMA,
    memory,
    records,
    rows_of,
)

NAME = LogFileName(FILE_ID, INSTANT, 1, "0-0-0")
ALWAYS = (*META_COLUMNS, "ts")
OPTIONAL = [name for name in SCHEMA.names if name not in ALWAYS]

each_format = pytest.mark.parametrize("block_format", ["parquet", "avro"])


def _changes(batch: list[dict[str, object]], written: Sequence[frozenset[str]]) -> pa.Table:
    """Create upserts, which are null in columns that were not written."""
    blanked = [
        {name: cell for name, cell in row.items() if name in own or name in ALWAYS}
        for row, own in zip(batch, written, strict=True)
    ]
    flags = [[name in own or name in ALWAYS for name in SCHEMA.names] for own in written]
    kinds = pa.array([int(ChangeKind.UPSERT)] * len(batch), pa.int8())
    bits = pack(np.array(flags, np.bool_).reshape(len(batch), len(SCHEMA)))
    changes = rows_of(blanked).append_column(CHANGE_KIND_FIELD, kinds)
    return changes.append_column(WRITTEN_COLUMNS, bits)


def _write(storage: Storage, changes: pa.Table, block_format: str) -> None:
    with LogFileWriter(
        storage, str(NAME), INSTANT, SCHEMA, AVRO_SCHEMA, block_format, ("ts",)
    ) as writer:
        writer.append(changes)
        writer.close()


def _read(storage: Storage) -> pa.Table:
    info = storage.head(str(NAME))
    assert info is not None
    log = LogFile("", NAME, info.size_bytes)
    tables = LogChanges(storage, SCHEMA, ("ts",), all_visible).read([log])
    return pa.concat_tables(tables)


@each_format
@settings(max_examples=examples(20), deadline=None)
@given(data=st.data())
def test_partial_rows_are_read_with_their_written_columns(
    block_format: str, data: st.DataObject
) -> None:
    batch = data.draw(records(min_size=1))
    some = st.frozensets(st.sampled_from(OPTIONAL)) | st.just(frozenset(OPTIONAL))
    written = data.draw(st.lists(some, min_size=len(batch), max_size=len(batch)))
    storage, changes = memory(), _changes(batch, written)
    _write(storage, changes, block_format)
    found = _read(storage)
    if WRITTEN_COLUMNS not in found.column_names:
        changes = changes.drop_columns([WRITTEN_COLUMNS])
    assert found.schema.names == changes.schema.names
    assert found.sort_by(RECORD_KEY).to_pylist() == changes.sort_by(RECORD_KEY).to_pylist()


@each_format
def test_there_is_one_block_for_each_set_of_columns(block_format: str) -> None:
    sets = [frozenset(["note"]), frozenset(OPTIONAL), frozenset(["note"]), frozenset(["pos"])]
    batch = [{RECORD_KEY: f"k{i}", PARTITION_PATH: "", "ts": i} for i in range(len(sets))]
    storage = memory()
    _write(storage, _changes(batch, sets), block_format)
    blocks = _blocks(storage)
    found = [(block.is_partial, read_rows(block).column("ts").to_pylist()) for block in blocks]
    assert found == [(True, [0, 2]), (False, [1]), (True, [3])]
    assert [f["name"] for f in blocks[0].avro_schema["fields"]] == [*ALWAYS, "note"]


def test_many_columns_give_the_correct_sets() -> None:
    schema = pa.schema([*SCHEMA, *((f"c{i}", pa.int32()) for i in range(9))])
    names = [f"c{i}" for i in range(9)]
    rows = pa.Table.from_pylist(
        [{RECORD_KEY: f"k{i}", "ts": i, f"c{i}": i} for i in range(9)], schema
    )
    flags = [[n in ALWAYS or n == own for n in schema.names] for own in names]
    kinds = pa.array([0] * 9, pa.int8())
    changes = rows.append_column(CHANGE_KIND_FIELD, kinds)
    changes = changes.append_column(WRITTEN_COLUMNS, pack(np.array(flags)))
    storage = memory()
    avro_schema = to_avro(schema, "trips")
    with LogFileWriter(storage, str(NAME), INSTANT, schema, avro_schema) as writer:
        writer.append(changes)
        status = writer.close()
    assert status.num_data_blocks == status.num_writes == len(names)
    assert [read_rows(block).column_names[-1] for block in _blocks(storage)] == names


@each_format
@pytest.mark.parametrize("version", [8, 9])
def test_partial_blocks_have_the_layout_of_apache_hudi(
    version: int, block_format: str, tmp_path: Path
) -> None:
    golden = unpack(f"v{version}_mor_partial_{block_format}", tmp_path)
    schema = golden.table.schema
    assert schema is not None
    avro_schema = to_avro(schema, golden.properties.table_name)
    logs = [log.path for s in golden.view.latest_slices() for log in s.logs]
    theirs = [b for log in logs for b in _blocks(golden.storage, log) if b.is_partial]
    assert theirs
    for block in theirs:
        storage, rows = memory(), read_rows(block)
        with LogFileWriter(
            storage, str(NAME), block.header[HeaderKey.INSTANT_TIME], schema, avro_schema,
            block_format, ("ts",),
        ) as writer:  # fmt: skip
            writer.append(_as_changes(rows, schema))
            writer.close()
        (ours,) = _blocks(storage)
        assert ours.type is block.type
        assert read_rows(ours) == rows
        assert _without_docs(ours.avro_schema) == _without_docs(block.avro_schema)
        others = [
            {k: v for k, v in b.header.items() if k != HeaderKey.SCHEMA} for b in (ours, block)
        ]
        assert others[0] == others[1]


def _as_changes(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert rows of some columns to the layout of changes."""
    flags = np.array([[name in rows.column_names for name in schema.names]] * rows.num_rows)
    columns = [
        rows.column(f.name) if f.name in rows.column_names else pa.nulls(rows.num_rows, f.type)
        for f in schema
    ]
    table = pa.table(columns, schema=schema)
    kinds = pa.array([0] * rows.num_rows, pa.int8())
    changes = table.append_column(CHANGE_KIND_FIELD, kinds)
    return changes.append_column(WRITTEN_COLUMNS, pack(flags))


def _without_docs(avro_schema: Mapping[str, object]) -> Mapping[str, object]:
    fields = avro_schema["fields"]
    assert isinstance(fields, list)
    plain = [{k: v for k, v in field.items() if k != "doc"} for field in fields]
    return {**avro_schema, "fields": plain}


def _blocks(storage: Storage, path: str = str(NAME)) -> list[LogBlock]:
    info = storage.head(path)
    assert info is not None
    with storage.open(path) as file:
        return list(read_blocks(file, info.size_bytes, path))
