"""Keys that are unique in the whole table: rows move if their partition changes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakemark
from lakemark.config import keys
from lakemark.config.parquet_settings import PARQUET_DEFAULTS, ParquetSettings
from lakemark.config.table_properties import TableType
from lakemark.errors import InvalidConfig, Refused, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.model.changes import ChangeKind
from lakemark.model.format_version import WRITTEN, FormatVersion
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from tests.depth import examples
from tests.table_services import make_plain, new_storage
from tests.tables import (
    SCHEMA,
    Row,
    commit,
    contents,
    lookup_writer,
    make,
    write_files,
    writer,
)

#: Four records fill a file, whatever its size.
SIZING = ParquetSettings(max_file_bytes=4 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=0)

each_type = pytest.mark.parametrize("table_type", TableType)
each_version = pytest.mark.parametrize("version", WRITTEN)


def new_table(
    table_type: TableType,
    sizing: ParquetSettings = SIZING,
    version: FormatVersion = FormatVersion.V9,
) -> TableWriter:
    storage = new_storage()
    make_plain(storage, table_type, version)
    return lookup_writer(storage, sizing, global_keys=True)


def rows_of(to: TableWriter) -> dict[str, tuple[str, int, int]]:
    """Read region, ordering value and payload of each key."""
    found = writer(to.table.storage).table.scan(columns=SCHEMA.names).to_table().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is stored twice"
    return {row["id"]: (row["region"], row["ts"], row["v"]) for row in found}


# The model


@dataclass
class Model:
    """The row of each key: region, ordering value and payload."""

    rows: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def apply(self, batch: Iterable[Row]) -> None:
        """Fold the changes of each key one after the other, then merge the results with rows."""
        folded: dict[str, Row] = {}
        for change in batch:
            before = folded.get(change.id)
            if before is None or _wins(change, before):
                folded[change.id] = change
        for change in folded.values():
            stored = self.rows.get(change.id)
            if stored and change.kind is not _UNCONDITIONAL and change.ts < stored[1]:
                continue
            if change.kind is ChangeKind.UPSERT:
                self.rows[change.id] = change.region, change.ts, change.v
            else:
                self.rows.pop(change.id, None)


_UNCONDITIONAL = ChangeKind.COMMIT_TIME_DELETE


def _wins(change: Row, before: Row) -> bool:
    if change.kind is _UNCONDITIONAL:
        return True
    if before.kind is _UNCONDITIONAL:
        return change.kind is ChangeKind.UPSERT
    return change.ts >= before.ts


CHANGES = st.builds(
    Row,
    st.sampled_from("abcdef"),
    st.integers(1, 9),
    st.integers(0, 99),
    st.sampled_from(["north", "south", "west"]),
    st.sampled_from([ChangeKind.UPSERT] * 4 + [ChangeKind.DELETE, _UNCONDITIONAL]),
)
SIZINGS = st.sampled_from(
    [
        SIZING,
        ParquetSettings(),
        ParquetSettings(max_file_bytes=2 * PARQUET_DEFAULTS.record_bytes, small_file_bytes=1 << 30),
    ]
)


@each_type
@each_version
@settings(deadline=None, max_examples=examples(8))
@given(
    steps=st.lists(st.none() | st.lists(CHANGES, min_size=1, max_size=8), min_size=2, max_size=7),
    sizing=SIZINGS,
)
def test_rows_are_those_of_the_model(
    table_type: TableType,
    version: FormatVersion,
    steps: list[list[Row] | None],
    sizing: ParquetSettings,
) -> None:
    to, model = new_table(table_type, sizing, version), Model()
    for step in steps:
        if step is None:
            to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
            continue
        commit(to, step)
        model.apply(step)
        assert rows_of(to) == model.rows


# Moves


@each_type
@each_version
def test_row_moves_in_one_commit(table_type: TableType, version: FormatVersion) -> None:
    to = new_table(table_type, version=version)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    instant = commit(to, [Row("a", 2, 2, "south")])
    assert rows_of(to) == {"a": ("south", 2, 2), "b": ("north", 1, 1)}
    written = to.table.store.read_commit(instant)
    assert {stat.partition_path for stat in written.write_stats} == {"north", "south"}
    assert written.extra_metadata[keys.INDEX] == keys.GLOBAL_LOOKUP
    commit(to, [Row("a", 3, 3)])
    assert rows_of(to)["a"] == ("north", 3, 3), "the row moved back"


@each_type
def test_late_change_does_not_move_the_row(table_type: TableType) -> None:
    to = new_table(table_type)
    commit(to, [Row("a", 5, 5)])
    assert write_files(to, [Row("a", 4, 4, "south")]) == []
    to.cancel()
    assert rows_of(to) == {"a": ("north", 5, 5)}


@each_type
def test_delete_finds_the_row_in_another_partition(table_type: TableType) -> None:
    to = new_table(table_type)
    commit(to, [Row("a", 5, 5), Row("b", 5, 5)])
    commit(
        to,
        [
            Row("a", 6, region="south", kind=ChangeKind.DELETE),
            Row("b", 4, region="south", kind=ChangeKind.DELETE),
        ],
    )
    assert rows_of(to) == {"b": ("north", 5, 5)}, "the delete of b is late"


def test_row_moves_out_of_a_group_in_a_pending_compaction() -> None:
    to = new_table(TableType.MERGE_ON_READ)
    commit(to, [Row("a", 1, 1), Row("b", 1, 1)])
    commit(to, [Row("a", 2, 2)])
    planned = to.compactions_to_do(CompactionPolicy(1))
    commit(to, [Row("a", 3, 3, "south")])
    assert rows_of(to) == {"a": ("south", 3, 3), "b": ("north", 1, 1)}
    assert to.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert planned
    assert rows_of(to) == {"a": ("south", 3, 3), "b": ("north", 1, 1)}
    commit(to, [Row("a", 4, 4)])
    assert rows_of(to)["a"] == ("north", 4, 4)


def test_key_that_two_partitions_have_is_refused_by_name() -> None:
    to = new_table(TableType.COPY_ON_WRITE)
    partial = lookup_writer(to.table.storage, SIZING)
    commit(partial, [Row("a", 1, 1), Row("a", 1, 1, "south")])
    with pytest.raises(Refused, match=r"'a' has a row in each of the file groups .*unique"):
        write_files(to, [Row("a", 2, 2)])


# Two writers


@each_type
def test_writers_of_one_new_key_in_two_partitions_conflict(table_type: TableType) -> None:
    first = new_table(table_type)
    commit(first, [Row("a", 1, 1)])
    second = lookup_writer(first.table.storage, SIZING, global_keys=True)
    stats = write_files(first, [Row("k", 2, 2)])
    commit(second, [Row("k", 3, 3, "south")])
    with pytest.raises(WriteConflict, match="both write new keys to the table"):
        first.commit(stats, {})
    first.abandon()
    commit(first, [Row("k", 4, 4)])
    assert rows_of(first)["k"] == ("north", 4, 4)


@each_type
def test_move_and_update_of_one_key_conflict(table_type: TableType) -> None:
    first = new_table(table_type)
    commit(first, [Row("a", 1, 1)])
    second = lookup_writer(first.table.storage, SIZING, global_keys=True)
    stats = write_files(first, [Row("a", 2, 2)])
    commit(second, [Row("a", 3, 3, "south")])
    with pytest.raises(WriteConflict, match=r"both write file group .* 'north'"):
        first.commit(stats, {})


@each_type
def test_writers_conflict_on_a_key_whose_delete_a_file_still_has(table_type: TableType) -> None:
    first = new_table(table_type)
    commit(first, [Row("a", 1, 1), Row("b", 1, 1)])
    commit(first, [Row("a", 2, kind=ChangeKind.DELETE)])
    second = lookup_writer(first.table.storage, SIZING, global_keys=True)
    stats = write_files(first, [Row("a", 3, 3)])
    commit(second, [Row("a", 3, 3, "south")])
    with pytest.raises(WriteConflict, match="both write new keys to the table"):
        first.commit(stats, {})


def test_updates_in_different_partitions_do_not_conflict() -> None:
    first = new_table(TableType.MERGE_ON_READ)
    commit(first, [Row("a", 1, 1), Row("b", 1, 1, "south")])
    second = lookup_writer(first.table.storage, SIZING, global_keys=True)
    stats = write_files(first, [Row("a", 2, 2)])
    commit(second, [Row("b", 3, 3, "south"), Row("k", 3, 3)])
    first.commit(stats, {})
    assert contents(first.table.storage) == {"a": (2, 2), "b": (3, 3), "k": (3, 3)}


# The Python API


def rows(*given: tuple[str, str, int]) -> pa.Table:
    listed = [{"id": key, "region": region, "ts": ts, "v": ts} for key, region, ts in given]
    return pa.Table.from_pylist(listed, schema=SCHEMA)


@each_type
def test_python_program_moves_rows(tmp_path: Path, table_type: TableType) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage, table_type)
    commit(lookup_writer(storage), [Row("a", 1, 1), Row("b", 1, 1), Row("c", 1, 1, "south")])
    table = lakemark.open(tmp_path, partition_change="move")
    assert table.upsert(rows(("a", "south", 2), ("b", "north", 2))).upserts == 2
    assert table.upsert(rows(("a", "north", 1))).upserts in (0, 1)
    later = lakemark.open(tmp_path)  # inherits the rule from the commits
    later.upsert(rows(("b", "west", 3), ("d", "west", 3)))
    later.delete(["c"])
    found = later.snapshot(["id", "region"]).read_all().to_pylist()
    assert {row["id"]: row["region"] for row in found} == {"a": "south", "b": "west", "d": "west"}
    assert len(found) == 3
    assert later.metadata_differences() == []


def test_row_that_is_ordered_by_a_field_of_a_struct_moves(tmp_path: Path) -> None:
    meta = pa.struct([("ts", pa.int64())])
    schema = pa.schema([("id", pa.string()), ("region", pa.string()), ("meta", meta)])
    lakemark.create(
        tmp_path / "t",
        schema=schema,
        record_key="id",
        partition_by="region",
        ordering="meta.ts",
        index="lookup",
    )
    table = lakemark.open(tmp_path / "t", partition_change="move")
    for region, ts in (("north", 5), ("south", 6), ("west", 4)):
        row = {"id": "a", "region": region, "meta": {"ts": ts}}
        table.upsert(pa.Table.from_pylist([row], schema=schema))
    assert table.snapshot(["region"]).read_all()["region"].to_pylist() == ["south"]


@each_type
def test_python_program_moves_rows_of_a_record_index(tmp_path: Path, table_type: TableType) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage, table_type, ["record_index"])
    commit(lookup_writer(storage), [Row("a", 1, 1), Row("b", 1, 1), Row("c", 1, 1, "south")])
    with pytest.raises(Refused, match="open the table with partition_change='move'"):
        lakemark.open(tmp_path).upsert(rows(("a", "south", 2)))
    table = lakemark.open(tmp_path, partition_change="move")
    table.upsert(rows(("a", "south", 2), ("b", "north", 2), ("c", "north", 0), ("a", "west", 1)))
    table.delete(["b"])
    table.upsert(rows(("a", "north", 3), ("b", "west", 1)))
    found = table.snapshot(["id", "region", "ts"]).read_all().to_pylist()
    expected = {("a", "north", 3), ("b", "west", 1), ("c", "south", 1)}
    assert {tuple(row.values()) for row in found} == expected
    assert table.metadata_differences() == []


def test_writers_of_a_record_index_conflict_only_on_the_same_key() -> None:
    storage = new_storage()
    make(storage, indexes=["record_index"])
    first, second = (lookup_writer(storage, SIZING, global_keys=True) for _ in range(2))
    commit(first, [Row("a", 1, 1)])
    stats = write_files(first, [Row("k", 2, 2, "south")])
    commit(second, [Row("l", 3, 3, "west")])
    first.commit(stats, {})
    stats = write_files(first, [Row("m", 4, 4, "south")])
    commit(second, [Row("m", 5, 5, "west")])
    with pytest.raises(WriteConflict, match="has added record key 'm' to partition 'west'"):
        first.commit(stats, {})


def test_writer_that_would_store_keys_twice_is_refused(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage)
    commit(lookup_writer(storage), [Row("a", 1, 1)])
    lakemark.open(tmp_path, partition_change="move").upsert(rows(("a", "south", 2)))
    other = lakemark.open(tmp_path, partition_change="allow")
    with pytest.raises(InvalidConfig, match=r"unique in the whole table .*global_lookup"):
        other.upsert(rows(("a", "north", 3)))


def test_moves_are_refused_for_bucket_indexes(tmp_path: Path) -> None:
    created = lakemark.create(
        tmp_path / "t", schema=SCHEMA, record_key="id", partition_by="region", ordering="ts"
    )
    created.upsert(rows(("a", "north", 1)))
    table = lakemark.open(tmp_path / "t", partition_change="move")
    with pytest.raises(
        InvalidConfig, match=r"has a bucket index, .* or no rows yet, but partition_change"
    ):
        table.upsert(rows(("a", "south", 2)))


def test_moves_are_refused_with_partial_updates(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    make(storage)
    commit(lookup_writer(storage), [Row("a", 1, 1)])
    properties = (tmp_path / ".hoodie/hoodie.properties").read_text()
    partial = f"{properties}\nhoodie.table.partial.update.mode=IGNORE_DEFAULTS\n"
    (tmp_path / ".hoodie/hoodie.properties").write_text(partial)
    with pytest.raises(lakemark.Unsupported, match="partial updates, with which lakemark does not"):
        lakemark.open(tmp_path, partition_change="move").upsert(rows(("a", "south", 2)))


def test_unknown_rule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="partition_change"):
        lakemark.open(tmp_path, partition_change="stay")


def test_a_delete_finds_a_key_that_another_writer_added_to_the_record_index(
    tmp_path: Path,
) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "orders")))
    make(storage, indexes=["record_index"])
    commit(lookup_writer(storage), [Row("a", 1, 1)])
    url = storage.location.url
    ours = lakemark.open(url)
    assert ours.scan(where="id = 'a'").to_table().num_rows == 1
    lakemark.open(url).upsert(rows(("b", "south", 1)))
    ours.delete(["b"])
    assert lakemark.open(url).scan().to_table().column("id").to_pylist() == ["a"]


def test_a_writer_that_allows_double_keys_stops_when_another_begins_to_move_rows(
    tmp_path: Path,
) -> None:
    url = str(tmp_path / "orders")
    created = lakemark.create(
        url, schema=SCHEMA, record_key="id", partition_by="region", ordering="ts", index="lookup"
    )
    created.upsert(rows(("a", "north", 1)))
    lakemark.open(url, partition_change="move").upsert(rows(("b", "north", 1)))
    with pytest.raises(Refused, match="partition_change='move'"):
        created.upsert(rows(("a", "south", 2)))


class _Unrecorded(WriterSettings):
    """Settings of a writer that does not record its index, like Apache Hudi."""

    def index_metadata(self) -> dict[str, str]:
        return {}


def test_a_writer_that_allows_double_keys_stops_although_another_engine_has_written_since() -> None:
    storage = new_storage()
    make_plain(storage)
    allowing, moving = lookup_writer(storage), lookup_writer(storage, global_keys=True)
    commit(allowing, [Row("a", 1, 1)])
    commit(moving, [Row("a", 2, 2, region="south")])
    moving.settings = _Unrecorded(None, global_keys=True)
    commit(moving, [Row("b", 2, 2)])
    with pytest.raises(Refused, match="began to keep each record key unique"):
        commit(allowing, [Row("a", 3, 3)])
    assert contents(storage) == {"a": (2, 2), "b": (2, 2)}
