from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakemark.log.data_block import read_rows
from lakemark.log.delete_block import read_deletes
from lakemark.log.log_block import BlockType, HeaderKey, LogBlock
from lakemark.log.log_reader import read_blocks
from lakemark.model.changes import CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.file_names import LogFileName
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY
from lakemark.schema.avro import to_json
from lakemark.schema.field_path import column_at
from lakemark.storage import Storage
from lakemark.write.log_file_writer import LogFileWriter
from lakemark.write.row_groups import row_bytes
from lakemark.write.write_status import WriteStatus
from tests.depth import examples
from tests.unit.write.tables import (
    AVRO_SCHEMA,
    FILE_ID,
    INSTANT,
    SCHEMA,
    memory,
    records,
    rows_of,
)

PATH = f"r0/{LogFileName(FILE_ID, INSTANT, 1, '0-0-0')}"
FORMATS = {"parquet": BlockType.PARQUET_DATA, "avro": BlockType.AVRO_DATA}


def _changes(batch: list[dict[str, object]], kinds: Sequence[ChangeKind]) -> pa.Table:
    kind_column = pa.array([int(kind) for kind in kinds], pa.int8())
    return rows_of(batch).append_column(CHANGE_KIND_FIELD, kind_column)


def _write(
    storage: Storage,
    changes: Sequence[pa.Table],
    block_format: str = "parquet",
    ordering: Sequence[str] = ("ts",),
    is_event_time: bool = True,
    max_block_bytes: int = 64 << 20,
) -> WriteStatus:
    with LogFileWriter(
        storage, PATH, INSTANT, SCHEMA, AVRO_SCHEMA, block_format, ordering, is_event_time,
        max_block_bytes,
    ) as writer:  # fmt: skip
        for table in changes:
            writer.append(table)
        return writer.close()


def _blocks(storage: Storage) -> list[LogBlock]:
    info = storage.head(PATH)
    assert info is not None
    with storage.open(PATH) as file:
        return list(read_blocks(file, info.size_bytes, PATH))


_KINDED = records(min_size=1).flatmap(
    lambda batch: st.tuples(
        st.just(batch),
        st.lists(st.sampled_from(ChangeKind), min_size=len(batch), max_size=len(batch)),
    )
)


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(_KINDED, max_size=3), st.sampled_from(sorted(FORMATS)), st.integers(50, 900))
def test_each_append_writes_upserts_then_deletes(
    appends: list[tuple[list[dict[str, object]], list[ChangeKind]]],
    block_format: str,
    max_block_bytes: int,
) -> None:
    storage = memory()
    changes = [_changes(*append) for append in appends]
    status = _write(storage, changes, block_format, max_block_bytes=max_block_bytes)
    expected: list[object] = []
    for table, (_, kinds) in zip(changes, appends, strict=True):
        rows = table.select(SCHEMA.names).to_pylist()
        kinded = list(zip(rows, kinds, strict=True))
        expected += [row for row, kind in kinded if kind is ChangeKind.UPSERT]
        expected += [
            (
                row[RECORD_KEY],
                row[PARTITION_PATH],
                None if kind is ChangeKind.COMMIT_TIME_DELETE else row["ts"],
            )
            for row, kind in kinded
            if kind is not ChangeKind.UPSERT
        ]
    blocks = _blocks(storage)
    assert [record for block in blocks for record in _records(block)] == expected
    data_blocks = [block for block in blocks if block.type is FORMATS[block_format]]
    upserts = [record for record in expected if isinstance(record, dict)]
    info = storage.head(PATH)
    assert info is not None
    assert status == WriteStatus(
        size_bytes=info.size_bytes,
        num_writes=len(upserts),
        num_deletes=len(expected) - len(upserts),
        num_data_blocks=len(data_blocks),
        num_delete_blocks=len(blocks) - len(data_blocks),
    )
    for block in data_blocks:
        rows = read_rows(block)
        assert rows.num_rows == 1 or row_bytes(rows).sum() <= max_block_bytes


def _records(block: LogBlock) -> list[object]:
    assert block.header == {
        HeaderKey.SCHEMA: to_json(AVRO_SCHEMA),
        HeaderKey.INSTANT_TIME: INSTANT,
    }
    if block.type is not BlockType.DELETE:
        return list(read_rows(block).to_pylist())
    deletes = read_deletes(block)
    (times,), _ = deletes.ordering_as([pa.int64()])
    columns = (deletes.record_keys, deletes.partition_paths, times)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("is_event_time", [True, False])
def test_delete_always_wins_without_event_time(is_event_time: bool) -> None:
    storage = memory()
    record = {"_hoodie_record_key": "a", "_hoodie_partition_path": "r0", "ts": 5}
    _write(storage, [_changes([record], [ChangeKind.DELETE])], is_event_time=is_event_time)
    (block,) = _blocks(storage)
    assert read_deletes(block).commit_time.tolist() == [not is_event_time]


def test_deletes_are_ordered_by_a_field_in_a_struct_and_by_several() -> None:
    storage = memory()
    record = {"_hoodie_record_key": "a", "ts": 5, "pos": {"lat": None, "at": 7}}
    changes = _changes([record], [ChangeKind.DELETE])
    _write(storage, [changes], ordering=("pos.at", "ts"))
    (block,) = _blocks(storage)
    types = [column_at(changes, "pos.at").type, pa.int64()]
    ordering, wins_always = read_deletes(block).ordering_as(types)
    assert [values.to_pylist() for values in ordering] == [[7], [5]]
    assert not wins_always.any()


def test_abandoned_file_is_removed() -> None:
    storage = memory()
    with LogFileWriter(storage, PATH, INSTANT, SCHEMA, AVRO_SCHEMA) as writer:
        writer.append(_changes([{"_hoodie_record_key": "a"}], [ChangeKind.UPSERT]))
    assert storage.list_tree("") == []


@pytest.mark.parametrize("block_format", sorted(FORMATS))
def test_a_second_attempt_writes_the_same_bytes(block_format: str) -> None:
    storage = memory()
    changes = [_changes([{"_hoodie_record_key": "a"}], [ChangeKind.UPSERT])] * 2
    first = _write(storage, changes, block_format)
    assert first == _write(storage, changes, block_format)
