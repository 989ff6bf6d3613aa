from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lakemark.errors import CorruptData, HudiError, InvalidConfig, SnapshotChanged, Unsupported
from lakemark.log.log_block import BlockType, HeaderKey
from lakemark.merge.record_merger import commit_time_merger, event_time_merger
from lakemark.model.file_names import BaseFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice
from lakemark.model.meta_columns import with_meta_columns
from lakemark.read import log_changes
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.log_changes import DeleteMarker
from tests.depth import examples
from tests.unit.read.slices import (
    SCHEMA,
    USER_SCHEMA,
    Slice,
    command_block,
    data_block,
    delete_block,
    row,
    rows_of,
)


@pytest.fixture
def file_slice(tmp_path: Path) -> Slice:
    return Slice(tmp_path)


@pytest.mark.parametrize("kind", [BlockType.PARQUET_DATA, BlockType.AVRO_DATA])
def test_blocks_of_several_logs_are_merged_onto_the_base(
    file_slice: Slice, kind: BlockType
) -> None:
    file_slice.base([row("a", 1), row("b", 1), row("c", 9)])
    file_slice.log(data_block([row("d", 1), row("b", 2, "new"), row("c", 2, "late")], kind=kind))
    file_slice.log(delete_block(["a", "c"], pa.array([5, 5])))
    assert file_slice.read() == [
        {"id": "b", "ts": 2, "text": "new"},
        {"id": "c", "ts": 9, "text": None},
        {"id": "d", "ts": 1, "text": None},
    ]


@pytest.mark.parametrize("ordering", [None, pa.array([5], pa.int32())], ids=["zero", "int"])
def test_delete_with_ordering_value_of_another_class_wins(
    file_slice: Slice, ordering: pa.Array | None
) -> None:
    file_slice.base([row("a", 9)]).log(delete_block(["a"], ordering))
    assert file_slice.read() == []


def test_base_row_outlives_unconditional_delete_after_newer_log_row(file_slice: Slice) -> None:
    """Logs are folded before they are merged with the base file.

    So the delete, which the fold drops, does not reach the base row.
    """
    file_slice.log(
        data_block([row("a", 9), row("b", 9)]),
        delete_block(["a", "b"], None),
        data_block([row("a", 1), row("b", 1)]),
    )
    assert [r["ts"] for r in file_slice.read()] == [1, 1]
    file_slice.base([row("a", 5)])
    assert [r["ts"] for r in file_slice.read()] == [5, 1]


def test_flagged_data_row_deletes_by_its_ordering_value(file_slice: Slice) -> None:
    flagged = with_meta_columns(
        pa.schema(
            [*USER_SCHEMA, ("_hoodie_is_deleted", pa.bool_()), ("_hoodie_operation", pa.string())]
        )
    )
    file_slice.base([row(key, 5) for key in "abcde"])
    file_slice.log(
        data_block(
            [
                row("a", 6, _hoodie_is_deleted=True),
                row("b", 4, _hoodie_is_deleted=True),
                row("c", 6, _hoodie_operation="D"),
                row("d", 6, _hoodie_operation="U"),
                row("e", 6, _hoodie_operation="-U"),
            ],
            flagged,
        )
    )
    assert [r["id"] for r in file_slice.read()] == ["b", "d"]


def test_delete_marker_column_deletes(file_slice: Slice) -> None:
    file_slice.base([row("a", 5), row("b", 5)]).log(
        data_block([row("a", 6, "d"), row("b", 6, "u")])
    )
    marker = DeleteMarker("text", "d")
    assert [r["id"] for r in file_slice.read(delete_marker=marker)] == ["b"]


def test_slice_without_base_file_is_read(file_slice: Slice) -> None:
    file_slice.log(data_block([row("a", 1)]), data_block([row("b", 1), row("a", 2)]))
    assert [(r["id"], r["ts"]) for r in file_slice.read()] == [("a", 2), ("b", 1)]


@pytest.mark.skipif(sys.platform != "linux", reason="counts open files in /proc")
@pytest.mark.parametrize("held_bytes", [0, 32 << 20])
def test_more_logs_than_open_files_are_read(
    file_slice: Slice, held_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_changes, "_HELD_BYTES", held_bytes)
    file_slice.base([row("a", 0)])
    for version in range(1, 60):
        file_slice.log(data_block([row("a", version)], kind=BlockType.PARQUET_DATA))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 24, limits[1]))
    try:
        assert file_slice.read() == [{"id": "a", "ts": 59, "text": None}]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_invisible_blocks_are_skipped(file_slice: Slice) -> None:
    file_slice.base([row("a", 1)])
    file_slice.log(
        data_block([row("a", 2, "rolled back")], instant="11"),
        command_block(instant="12", target="11"),
        data_block([row("a", 3, "not visible")], instant="99"),
        delete_block(["a"], None, instant="99"),
    )
    assert [r["ts"] for r in file_slice.read(is_visible=lambda instant: instant < "99")] == [1]


def test_log_compaction_replaces_its_source_blocks(file_slice: Slice) -> None:
    header = {HeaderKey.COMPACTED_BLOCK_TIMES: "11,12"}
    file_slice.base([row("a", 1, "base")])
    file_slice.log(data_block([row("a", 1, "old")], instant="11"))
    file_slice.log(data_block([row("b", 1, "rewritten elsewhere")], instant="12"))
    file_slice.log(data_block([row("a", 1, "once")], instant="13", header=header))
    assert [r["text"] for r in file_slice.read()] == ["once"]


def test_older_files_are_read_in_the_current_columns(file_slice: Slice) -> None:
    old = with_meta_columns(pa.schema([("id", pa.string()), ("ts", pa.int32())]))
    file_slice.base([row("a", 1), row("b", 1)], old)
    file_slice.log(data_block([row("b", 2)], old))
    assert file_slice.read() == [
        {"id": "a", "ts": 1, "text": None},
        {"id": "b", "ts": 2, "text": None},
    ]


def test_column_missing_in_all_files_is_null(file_slice: Slice) -> None:
    old = with_meta_columns(pa.schema([("id", pa.string()), ("ts", pa.int64())]))
    file_slice.base([row("a", 1), row("b", 1)], old)
    assert rows_of(file_slice.reader().read(file_slice.value, ["text"])) == [{"text": None}] * 2


def test_ordering_field_inside_a_struct_orders_deletes(file_slice: Slice) -> None:
    meta = pa.struct([("lsn", pa.int64()), ("name", pa.string())])
    schema = with_meta_columns(pa.schema([("id", pa.string()), ("meta", meta)]))
    rows = [
        {"_hoodie_record_key": key, "id": key, "meta": {"lsn": lsn, "name": "x"}}
        for key, lsn in [("a", 1), ("b", 9)]
    ]
    file_slice.base(rows, schema).log(delete_block(["a", "b"], pa.array([5, 5])))
    reader = FileGroupReader(file_slice.storage, schema, event_time_merger(["meta.lsn"]))
    assert rows_of(reader.read(file_slice.value, ["id"])) == [{"id": "b"}]


def test_merge_counts_inserts_updates_and_deletes(file_slice: Slice) -> None:
    file_slice.base([row("a", 1), row("b", 1), row("c", 1)])
    file_slice.log(data_block([row("a", 2), row("d", 1)]), delete_block(["b", "e"], None))
    stream = file_slice.reader().merge(file_slice.value)
    assert sum(rows.num_rows for rows in stream) == 3
    assert (stream.counts.inserted, stream.counts.updated, stream.counts.deleted) == (1, 1, 1)


def test_last_change_wins_by_commit_time_deletes_included(file_slice: Slice) -> None:
    file_slice.base([row("a", 9), row("b", 9)])
    file_slice.log(data_block([row("a", 1, "last")]), delete_block(["b"], pa.array([1])))
    reader = FileGroupReader(file_slice.storage, SCHEMA, commit_time_merger())
    assert [r["text"] for r in rows_of(reader.read(file_slice.value))] == ["last"]


@pytest.mark.refuses("Base files in other formats than Parquet and HFile, such as ORC")
def test_unsupported_file_is_refused_by_name(file_slice: Slice) -> None:
    orc = FileSlice(
        FileGroupId("", "g"), "10", BaseFile("", BaseFileName("g", "0-0-0", "10", "orc"), 1)
    )
    with pytest.raises(Unsupported, match=r"g_0-0-0_10\.orc"):
        list(file_slice.reader().read(orc))
    with pytest.raises(InvalidConfig, match="colour"):
        list(file_slice.reader().read(file_slice.value, ["colour"]))


def test_values_that_do_not_fit_the_current_column_are_corrupt(file_slice: Slice) -> None:
    old = with_meta_columns(pa.schema([("id", pa.string()), ("ts", pa.string())]))
    with pytest.raises(CorruptData, match="'ts'"):
        file_slice.base([row("a", 1) | {"ts": "soon"}], old).read()


def test_file_cleaned_meanwhile_raises_snapshot_changed(file_slice: Slice) -> None:
    file_slice.base([row("a", 1)]).log(data_block([row("a", 2)]))
    (value := file_slice.value)
    assert value.base is not None
    file_slice.storage.delete([value.base.path])
    with pytest.raises(SnapshotChanged, match=str(value.base.name)):
        list(file_slice.reader().read(value))


@settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), in_base=st.booleans())
@example(position=0.25, bit=7, in_base=True)
def test_flipped_bit_raises_a_lakemark_error_or_is_harmless(
    tmp_path: Path, position: float, bit: int, in_base: bool
) -> None:
    damaged = Slice(tmp_path).base([row("a", 1), row("b", 1)])
    damaged.log(data_block([row("a", 2)]), delete_block(["b"], pa.array([5])))
    value = damaged.value
    assert value.base is not None
    path = tmp_path / (value.base.path if in_base else value.logs[0].path)
    data = bytearray(path.read_bytes())
    data[int(position * len(data))] ^= 1 << bit
    path.write_bytes(data)
    try:
        damaged.read()
    except HudiError:
        pass


@pytest.mark.parametrize("ordering", [["text"], ["ts", "text"]], ids=len)
def test_delete_without_ordering_value_wins_over_rows_ordered_by_text(
    file_slice: Slice, ordering: list[str]
) -> None:
    file_slice.base([row("a", 1, "z"), row("b", 1, "z")]).log(delete_block(["a"], None))
    reader = file_slice.reader(merger=event_time_merger(ordering))
    assert [r["id"] for r in rows_of(reader.read(file_slice.value))] == ["b"]
