"""Non-blocking writers write the same file groups at the same time, and none conflicts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import lakemark
from lakemark.config.merge_settings import PartialUpdateMode
from lakemark.config.table_properties import LoggingMode, MergeMode, TableProperties, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig, Unsupported, WriteConflict
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex, shared_file_id
from lakemark.model.changes import ChangeKind
from lakemark.model.file_names import LogFileName
from lakemark.model.format_version import FormatVersion
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.non_blocking import check_non_blocking
from lakemark.operations.partition_deletion import match_partitions
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import Storage
from lakemark.transaction.multi_writer import MultiWriter
from tests.table_services import new_storage
from tests.tables import SCHEMA, Row, commit, contents, data_files, make, spec, write_files, writer
from tests.unit.operations.tables import FAST, create, rows

NON_BLOCKING = replace(FAST, non_blocking=True)

INDEX = BucketIndex(2, ("id",))


def opened(storage: Storage) -> TableWriter:
    return writer(storage, multi_writer=NON_BLOCKING)


@pytest.fixture(params=[FormatVersion.V8, FormatVersion.V9], ids=str)
def storage(request: pytest.FixtureRequest) -> Storage:
    created = new_storage()
    make(created, version=request.param)
    return created


def test_first_commits_of_a_bucket_create_one_file_group(storage: Storage) -> None:
    """Both begin with a log of the file group that Apache Hudi would choose, too."""
    ann, bob = opened(storage), opened(storage)
    first = write_files(ann, [Row("a", 2, 1)])
    second = write_files(bob, [Row("a", 1, 2), Row("b", 1, 2), Row("c", 1, 2)])
    bob.commit(second, {})
    assert contents(storage) == {"a": (1, 2), "b": (1, 2), "c": (1, 2)}
    ann.commit(first, {})
    expected = {"a": (2, 1), "b": (1, 2), "c": (1, 2)}
    assert contents(storage) == expected
    names = [path.rpartition("/")[2] for path in data_files(storage)]
    logs = [log for log in map(LogFileName.parse, names) if log is not None]
    assert len(logs) == len(names), "a base file of one writer hides the logs of the other"
    assert {log.file_id for log in logs} == {shared_file_id(0), shared_file_id(1)}
    bob.compact_if_due(CompactionPolicy(1), LocalRunner(1))
    assert contents(storage) == expected
    assert metadata_differences(writer(storage).table) == []


def test_existing_file_group_is_kept(storage: Storage) -> None:
    """If another writer has created the file group, non-blocking writers append to it."""
    commit(writer(storage, multi_writer=FAST), [Row("a", 1, 1)])
    ann, bob = opened(storage), opened(storage)
    first, second = write_files(ann, [Row("a", 3, 3)]), write_files(bob, [Row("a", 2, 2)])
    ann.commit(first, {})
    bob.commit(second, {})
    assert contents(storage) == {"a": (3, 3)}
    assert len({stat.file_id for stat in (*first, *second)}) == 1
    assert shared_file_id(0) not in first[0].file_id


def test_delete_wins_over_an_earlier_event_that_is_committed_later(storage: Storage) -> None:
    ann, bob = opened(storage), opened(storage)
    commit(ann, [Row("a", 1, 1)])
    late = write_files(ann, [Row("a", 2, 2)])
    bob.commit(write_files(bob, [Row("a", 3, kind=ChangeKind.DELETE)]), {})
    ann.commit(late, {})
    assert contents(storage) == {}


@pytest.mark.parametrize("blocks_first", [False, True])
def test_second_file_group_of_a_bucket_is_a_conflict(
    storage: Storage, *, blocks_first: bool
) -> None:
    """A writer that is not non-blocking creates the file group by another name."""
    mixed = [opened(storage), writer(storage, multi_writer=FAST)]
    first, second = reversed(mixed) if blocks_first else mixed
    written = write_files(second, [Row("a", 1, 1)])
    commit(first, [Row("a", 2, 2)])
    with pytest.raises(WriteConflict, match="both write file group"):
        second.commit(written, {})
    second.abandon()
    commit(second, [Row("a", 1, 1)])
    assert contents(storage) == {"a": (2, 2)}


def test_file_group_that_was_replaced_is_not_created_again(storage: Storage) -> None:
    """Readers skip every file of a replaced file group, also those that are written later."""
    ann, bob = opened(storage), opened(storage)
    blocking = writer(storage, multi_writer=FAST)
    commit(ann, [Row("a", 5, 1)])
    during = write_files(ann, [Row("a", 6, 2)])
    delete_north(blocking)
    with pytest.raises(WriteConflict, match="'north'"):
        ann.commit(during, {})
    ann.abandon()
    first, second = write_files(ann, [Row("a", 1, 3)]), write_files(bob, [Row("a", 2, 4)])
    ann.commit(first, {})
    bob.commit(second, {})
    assert contents(storage) == {"a": (2, 4)}
    delete_north(blocking)
    commit(bob, [Row("a", 0, 5)])
    assert contents(storage) == {"a": (0, 5)}


def test_columns_that_another_writer_adds_are_no_conflict(storage: Storage) -> None:
    ann, bob = opened(storage), opened(storage)
    commit(ann, [Row("a", 1, 1)])
    written = write_files(ann, [Row("b", 1, 1)])
    given = rows(("c", "north", 1, 1)).cast(SCHEMA)
    added = given.append_column("x", given["id"])
    RowWriter(bob.table, 2).upsert(added, add_columns=True)
    ann.commit(written, {})
    table = writer(storage).table
    assert table.known_schema is not None
    assert table.known_schema.names[-5:] == [*SCHEMA.names, "x"]
    found = table.scan(columns=["id", "x"]).to_reader().read_all().to_pylist()
    assert {row["id"]: row["x"] for row in found} == {"a": None, "b": None, "c": "c"}
    assert metadata_differences(table) == []


def test_column_that_another_writer_widens_is_a_conflict(storage: Storage) -> None:
    ann, bob = opened(storage), opened(storage)
    position = SCHEMA.get_field_index("v")
    ann.evolve(SCHEMA.set(position, pa.field("v", pa.int32())))
    ann.begin()
    commit(bob, [Row("a", 1, 1 << 40)])
    with pytest.raises(WriteConflict, match="v int32 -> int64"):
        ann.commit([], {})


WRITES: dict[str, Callable[[lakemark.Table], Any]] = {
    "insert": lambda table: table.insert(rows(("a", "north", 1, 1))),
    "bulk_insert": lambda table: table.bulk_insert(rows(("a", "north", 1, 1))),
    "insert_overwrite": lambda table: table.insert_overwrite(rows(("a", "north", 1, 1))),
    "delete_partition": lambda table: table.delete_partitions(["north"]),
}


@pytest.mark.parametrize("name", WRITES)
def test_write_that_is_not_a_log_is_refused(name: str) -> None:
    create(f"memory://{name}/orders")
    table = lakemark.open(f"memory://{name}/orders", multi_writer=NON_BLOCKING)
    table.upsert(rows(("a", "north", 1, 1)))
    with pytest.raises(Unsupported, match=f"only upserts and deletes, not {name}"):
        WRITES[name](table)
    assert not table.timeline.pending()
    assert table.delete(["a"]).deletes == 1


TABLES: dict[str, tuple[TableSpec, BucketIndex | None]] = {
    "copy_on_write": (spec(TableType.COPY_ON_WRITE), INDEX),
    "version 6": (spec(version=FormatVersion.V6), INDEX),
    "no bucket index": (spec(), None),
    "order of its commits": (
        replace(spec(), ordering=(), merge_mode=MergeMode.COMMIT_TIME),
        INDEX,
    ),
    "partial updates": (
        replace(spec(), partial_update=PartialUpdateMode.IGNORE_DEFAULTS),
        INDEX,
    ),
    "change data": (replace(spec(), cdc=LoggingMode.DATA_BEFORE), INDEX),
}

#: Properties of a table that Apache Hudi created with a payload whose deletes always win.
PAYLOAD = {
    "hoodie.record.merge.mode": "CUSTOM",
    "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    "hoodie.compaction.payload.class": (
        "org.apache.hudi.common.model.debezium.MySqlDebeziumAvroPayload"
    ),
}


@pytest.mark.parametrize("reason", TABLES)
def test_table_whose_rows_depend_on_the_order_of_commits_is_refused(reason: str) -> None:
    described, index = TABLES[reason]
    with pytest.raises(Unsupported, match=f"because .*{reason}.*multi_writer"):
        check_non_blocking(described.to_properties(), index, "memory://t")


def test_table_whose_deletes_always_win_is_refused() -> None:
    """A compaction drops a delete, so that the result would depend on when the delete completes."""
    stored = TableProperties({**spec().to_properties().values, **PAYLOAD})
    with pytest.raises(Unsupported, match="payload MySqlDebeziumAvroPayload wins over"):
        check_non_blocking(stored, INDEX, "memory://t")


@pytest.mark.parametrize("sharing", [FAST, NON_BLOCKING], ids=["multi_writer", "non_blocking"])
@pytest.mark.parametrize("other", [BucketIndex(4, ("id",)), BucketIndex(2, ("id", "v"), ("v",))])
def test_writer_with_other_buckets_is_refused(
    storage: Storage, sharing: MultiWriter, other: BucketIndex
) -> None:
    """Otherwise a key would have rows in two file groups."""
    ann, bob = (writer(storage, multi_writer=sharing) for _ in range(2))
    bob.settings = replace(bob.settings, index=other)
    bob.begin()
    commit(ann, [Row(key, 1, 1) for key in "abcdefgh"])
    with pytest.raises(InvalidConfig, match=r"another writer .* but this writer uses"):
        bob.commit([], {})
    bob.abandon()
    with pytest.raises(InvalidConfig, match=r"another writer .* but this writer uses"):
        bob.begin()
    assert not writer(storage).table.timeline.pending()


def test_nothing_is_created_by_a_non_blocking_writer_that_could_not_write() -> None:
    where = "memory://unsupported/orders"
    with pytest.raises(Unsupported, match="copy_on_write"):
        create(where, table_type="COPY_ON_WRITE", sharing=NON_BLOCKING)
    table = create(where, sharing=NON_BLOCKING)
    table.upsert(rows(("a", "north", 1, 1)))
    assert table.delete(["a"]).deletes == 1


def test_non_blocking_writer_does_not_detect_conflicts() -> None:
    with pytest.raises(InvalidConfig, match="pass either non_blocking or detects_conflicts_early"):
        replace(NON_BLOCKING, detects_conflicts_early=True)


def delete_north(to: TableWriter) -> None:
    to.table.refresh()
    choose = match_partitions(to.table, ["north"])
    RowWriter(to.table, runner=LocalRunner(1)).delete_partitions(choose)
