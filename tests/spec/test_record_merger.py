"""The specification "Record Merger" holds, sentence by sentence: merge modes.

The docstring of a test begins with the section, and quotes the sentence in short. All tests use the
real writer, the real reader and the real compaction on local disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.table_properties import MergeMode, TableProperties, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import CorruptData, InvalidConfig
from lakemark.model.changes import ChangeKind
from lakemark.read.queries import ReadOptimized
from streamer.config.load import validated
from tests.golden.golden_table import unpack
from tests.merging.written_table import KEY, Row, WrittenTable, changes_of
from tests.spec.tables import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    ORDERS,
    commit_time,
    event_time,
    properties,
)

#: States of one order that two services write, in the order in which they happened.
CREATED: Row = {KEY: "1", "ts": 10, "state": "created"}
PAID: Row = {KEY: "1", "ts": 20, "state": "paid"}
CANCELED: Row = {KEY: "1", "ts": 30, "state": "canceled"}

Make = Callable[..., WrittenTable]
#: Writes some changes in one way, and reads the result.
Way = Callable[[Make, Path, list[Row]], list[dict[str, object]]]


def states(rows: list[dict[str, object]]) -> list[object]:
    return [row["state"] for row in rows]


def precombined(make: Make, folder: Path, changes: list[Row]) -> list[dict[str, object]]:
    """Write all changes in one batch."""
    table = make(folder)
    table.upsert(*changes)
    return table.rows()


def queried(make: Make, folder: Path, changes: list[Row]) -> list[dict[str, object]]:
    """Write each change in its own commit; the query merges them."""
    table = make(folder)
    for change in changes:
        table.upsert(change)
    return table.rows()


def compacted(make: Make, folder: Path, changes: list[Row]) -> list[dict[str, object]]:
    """Write each change in its own commit, merge them by a compaction, and read only base files."""
    table = make(folder)
    for change in changes:
        table.upsert(change)
    assert table.compact()
    read: pa.Table = (
        table.open().scan(ReadOptimized(), columns=table.schema.names).to_reader().read_all()
    )
    return read.to_pylist()  # type: ignore[no-any-return]


def rewritten(make: Make, folder: Path, changes: list[Row]) -> list[dict[str, object]]:
    """Write each change in a commit that rewrites the base file."""
    table = make(folder, table_type=COPY_ON_WRITE)
    for change in changes:
        table.upsert(change)
    return table.rows()


WAYS: dict[str, Way] = {
    "precombine": precombined,
    "query": queried,
    "compaction": compacted,
    "copy on write": rewritten,
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@each_way
def test_result_does_not_depend_on_the_order_of_arrival(way: Way, tmp_path: Path) -> None:
    """Record Merger: changes to one key may arrive late, or in any order."""
    arrivals = [list(order) for order in permutations([CREATED, PAID, CANCELED])]
    found = [states(way(event_time, tmp_path, arrival)) for arrival in arrivals]
    assert found == [["canceled"]] * len(arrivals)


@pytest.mark.parametrize("make", [event_time, commit_time])
def test_queries_writers_and_services_give_the_same_results(make: Make, tmp_path: Path) -> None:
    """Merge Modes: the merge is deterministic for snapshot queries, writers and table services."""
    changes = [CREATED, CANCELED, PAID, {**CREATED, KEY: "2"}, {**CREATED, "note": "again"}]
    first, *others = [way(make, tmp_path, changes) for way in WAYS.values()]
    assert others == [first] * len(others)
    assert states(first) == ["canceled" if make is event_time else "created", "created"]


def test_changes_of_a_batch_are_combined_before_they_are_written(tmp_path: Path) -> None:
    """Merge Modes, writing: combining the input reduces the records written to log files."""
    table = event_time(tmp_path)
    table.upsert(CREATED)
    assert table.upsert(CANCELED, PAID, CREATED).records == 1
    assert states(table.rows()) == ["canceled"]


def test_the_mode_decides_which_change_of_a_batch_is_written(tmp_path: Path) -> None:
    """Merge Modes, writing: the merge mode decides how changes of one batch are combined."""
    assert states(precombined(event_time, tmp_path, [CANCELED, PAID])) == ["canceled"]
    assert states(precombined(commit_time, tmp_path, [CANCELED, PAID])) == ["paid"]


def test_full_update_is_merged_with_the_stored_record_in_copy_on_write(tmp_path: Path) -> None:
    """Merge Modes, writing: a full update is merged against the existing record of a COW table."""
    table = event_time(tmp_path, table_type=COPY_ON_WRITE)
    table.upsert({**CREATED, "note": "by hand"})
    table.upsert(PAID)
    assert table.rows() == [{**PAID, "note": None}]
    table.upsert(CREATED)
    assert table.rows() == [{**PAID, "note": None}]


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_partial_update_is_merged_with_the_stored_record(
    table_type: TableType, tmp_path: Path
) -> None:
    """Merge Modes, writing: a partial update changes only the columns that it has."""
    table = event_time(tmp_path, table_type=table_type)
    table.upsert({**CREATED, "note": "by hand"})
    table.upsert_parts(PAID)
    assert table.rows() == [{**PAID, "note": "by hand"}]
    table.compact()
    assert table.rows() == [{**PAID, "note": "by hand"}]


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_delete_is_merged_with_the_stored_record(table_type: TableType, tmp_path: Path) -> None:
    """Merge Modes, writing: a delete removes the existing record, unless the delete is older."""
    table = event_time(tmp_path, table_type=table_type)
    table.upsert(PAID)
    table.delete(CREATED)
    assert states(table.rows()) == ["paid"]
    table.delete(CANCELED)
    assert table.rows() == []


@pytest.mark.parametrize(("make", "state"), [(event_time, "paid"), (commit_time, "created")])
def test_compaction_merges_all_logs_by_the_merge_mode(
    make: Make, state: str, tmp_path: Path
) -> None:
    """Merge Modes, compaction: the merge mode decides how logs are merged with base files."""
    table = make(tmp_path)
    table.upsert({**CREATED, "ts": 5}, {**CREATED, KEY: "2"})
    table.upsert(PAID)
    table.delete({KEY: "2", "ts": 11})
    table.upsert(CREATED)
    before = table.rows()
    assert table.compact()
    assert table.rows() == before
    assert states(before) == [state]
    (file_slice,) = table.open().view().latest_slices()
    assert not file_slice.logs


def test_query_merges_for_any_projection(tmp_path: Path) -> None:
    """Merge Modes, query: logs are merged for any projection, also without the ordering column."""
    table = event_time(tmp_path)
    table.upsert(PAID)
    table.upsert(CREATED)
    assert table.rows(["state"]) == [{"state": "paid"}]
    assert table.open().scan(columns=["note"]).to_reader().read_all().to_pylist() == [
        {"note": None}
    ]


def test_query_filters_merged_rows(tmp_path: Path) -> None:
    """Merge Modes, query: a filter does not match a value that a change has replaced."""
    table = event_time(tmp_path)
    table.upsert(CREATED, {**CREATED, KEY: "2"})
    table.upsert(PAID)

    def found(where: str) -> list[str]:
        ids: list[str] = (
            table.open().scan(columns=[KEY], where=where).to_reader().read_all()[KEY].to_pylist()
        )
        return ids

    assert found("state = 'created'") == ["2"]
    assert found("state = 'paid'") == ["1"]


@pytest.mark.parametrize(
    ("ordering", "mode"), [("", MergeMode.COMMIT_TIME), ("ts", MergeMode.EVENT_TIME)]
)
def test_the_mode_is_inferred_from_the_ordering_fields(ordering: str, mode: MergeMode) -> None:
    """Merge Modes: EVENT_TIME_ORDERING with an ordering field, else COMMIT_TIME_ORDERING."""
    stored = {keys.TABLE_NAME: "orders", keys.ORDERING_FIELDS: ordering}
    assert TableProperties(stored).merge_mode is mode
    tree: dict[str, object] = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": {"schema": {"id": "string", "ts": "bigint"}},
        "table": {
            "path": "/lake/t",
            "record_key": "id",
            "ordering": [ordering] if ordering else [],
        },
    }
    assert f"{validated(tree).table.merge_mode}_ordering".upper() == mode.value


def test_there_are_three_merge_modes() -> None:
    """Merge Modes: COMMIT_TIME_ORDERING, EVENT_TIME_ORDERING and CUSTOM; others are refused."""
    assert {*MergeMode} == {"COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING", "CUSTOM"}
    stored = properties(MergeMode.EVENT_TIME, more={keys.MERGE_MODE: "ARRIVAL_TIME_ORDERING"})
    with pytest.raises(CorruptData, match="ARRIVAL_TIME_ORDERING"):
        TableProperties.parse(stored.to_bytes())


def test_the_ordering_field_may_be_stored_as_precombine_field(tmp_path: Path) -> None:
    """EVENT_TIME_ORDERING: the ordering field may be named by its older name, precombine field."""
    stored = properties(MergeMode.EVENT_TIME).values
    renamed = {keys.PRECOMBINE_FIELD: stored[keys.ORDERING_FIELDS]}
    left_out = (keys.ORDERING_FIELDS, keys.MERGE_MODE, keys.MERGE_STRATEGY_ID)
    values = {key: value for key, value in stored.items() if key not in left_out}
    table = WrittenTable.create(tmp_path, ORDERS, TableProperties({**values, **renamed}))
    table.upsert(PAID)
    table.upsert(CREATED)
    assert states(table.rows()) == ["paid"]


def test_without_an_ordering_field_the_new_record_replaces_the_old_one(tmp_path: Path) -> None:
    """Merge Modes: COMMIT_TIME_ORDERING replaces the old record with the one of the new batch."""
    table = commit_time(tmp_path)
    table.upsert({**CANCELED, "note": "first"})
    table.upsert(CREATED)
    assert table.rows() == [{**CREATED, "note": None}]


def test_several_ordering_fields_compare_one_after_the_other(tmp_path: Path) -> None:
    """Merge Modes: one or more ordering fields; the first one that differs decides."""
    schema = pa.schema([*ORDERS, ("line", pa.int32())])
    stored = properties(MergeMode.EVENT_TIME, ("ts", "line"))
    table = WrittenTable.create(tmp_path, schema, stored)
    table.upsert({**PAID, "line": 5})
    table.upsert({**CREATED, "line": 9})
    table.upsert({**PAID, "line": 4, "state": "late"})
    assert states(table.rows()) == ["paid"]
    table.upsert({**PAID, "line": 5, "state": "tie"})
    assert states(table.rows()) == ["tie"]
    table.delete({**PAID, "line": 4})
    assert states(table.rows()) == ["tie"]
    table.delete({**PAID, "line": 6})
    assert table.rows() == []


def test_explicit_merge_mode_is_stored_in_the_table(tmp_path: Path) -> None:
    """Merge Modes: the requested mode is persisted as hoodie.record.merge.mode."""
    spec = TableSpec(
        name="t", record_key=("id",), ordering=("ts",), merge_mode=MergeMode.COMMIT_TIME
    )
    stored = TableProperties.parse(spec.to_properties().to_bytes())
    assert stored.values[keys.MERGE_MODE] == "COMMIT_TIME_ORDERING"
    assert stored.merge_mode is MergeMode.COMMIT_TIME, "though it has an ordering field"


@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_all_reads_and_writes_use_the_mode_of_the_table(
    table_type: TableType, tmp_path: Path
) -> None:
    """Merge Modes: once persisted, all subsequent reads and writes use this mode."""
    table = commit_time(tmp_path, ORDERS, table_type, ordering=("ts",))
    table.upsert(CANCELED)
    table.upsert(PAID, CREATED)
    assert states(table.rows()) == ["created"]
    table.compact()
    assert states(table.rows()) == ["created"]


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        (MergeMode.EVENT_TIME, MergeMode.COMMIT_TIME),
        (MergeMode.COMMIT_TIME, MergeMode.EVENT_TIME),
    ],
)
def test_writer_with_another_merge_mode_is_refused(stored: MergeMode, wanted: MergeMode) -> None:
    """Merge Modes, note: the mode should not be altered once a table is created.

    In Apache Hudi a write config may override it, and then a compaction merges differently from the
    queries before it. lakemark refuses such a writer.
    """
    found = TableSpec(
        name="t", record_key=("id",), ordering=("ts",), merge_mode=stored
    ).to_properties()
    requested = TableSpec(name="t", record_key=("id",), ordering=("ts",), merge_mode=wanted)
    with pytest.raises(InvalidConfig, match="merge_mode"):
        requested.check(found, "/lake/t")


@each_way
def test_latest_write_wins_by_commit_time(way: Way, tmp_path: Path) -> None:
    """COMMIT_TIME_ORDERING: the record of the latest write is the result, for any content."""
    assert states(way(commit_time, tmp_path, [CANCELED, PAID, CREATED])) == ["created"]


def test_ordered_change_log_is_applied_in_sequence(tmp_path: Path) -> None:
    """COMMIT_TIME_ORDERING: overwrites and deletes take effect in the order of the source's log."""
    table = commit_time(tmp_path)
    table.upsert({**CREATED, "ts": 1}, {**CREATED, KEY: "2", "ts": 2})
    table.delete({KEY: "1", "ts": 3})
    assert [row[KEY] for row in table.rows()] == ["2"]
    table.upsert({**PAID, "ts": 4})
    assert states(table.rows()) == ["paid", "created"]


@each_way
def test_highest_ordering_value_wins_by_event_time(way: Way, tmp_path: Path) -> None:
    """EVENT_TIME_ORDERING: the record with the highest ordering value is the merged result."""
    assert states(way(event_time, tmp_path, [PAID, CANCELED, CREATED])) == ["canceled"]


@each_way
def test_a_canceled_order_is_not_created_again(way: Way, tmp_path: Path) -> None:
    """EVENT_TIME_ORDERING: an older state that arrives late does not re-create the order."""
    assert states(way(event_time, tmp_path, [CANCELED, CREATED])) == ["canceled"]


@each_way
def test_a_paid_order_does_not_wait_for_its_payment_again(way: Way, tmp_path: Path) -> None:
    """EVENT_TIME_ORDERING: the status does not jump back from paid to created."""
    assert states(way(event_time, tmp_path, [CREATED, PAID, CREATED])) == ["paid"]


#: Changes of the writers of the golden tables ``*_non_blocking_*``, in the order in which they
#: completed: numbers of records, event time and version. The first version began before the three
#: that are listed above it, and wrote to the same file groups.
_WRITES = (
    (range(30), 100, 0),
    (range(5, 15), 200, 2),
    (range(12, 20), 210, 3),
    (range(4), 150, 4),
    (range(10), 200, 1),
    ((3, 4), 300, 5),
)
_AFTER_THE_COMPACTION = ((4, 5), 190, 6)


@pytest.mark.parametrize(
    ("name", "writes"),
    [
        ("v8_mor_non_blocking_writers", [*_WRITES, _AFTER_THE_COMPACTION]),
        ("v9_mor_non_blocking_writers", [*_WRITES, _AFTER_THE_COMPACTION]),
        ("v9_mor_non_blocking_pending", _WRITES),
    ],
)
def test_event_time_orders_changes_of_non_blocking_writers(
    name: str, writes: Sequence[tuple[Sequence[int], int, int]], tmp_path: Path
) -> None:
    """EVENT_TIME_ORDERING: with non-blocking concurrency control, streams give the right result.

    Commits begin and complete in any order, also with a compaction in between. Each row is a change
    with the largest event time of its key. If several changes have this time, the order of their
    requests decides, or a compaction between them.
    """
    table = unpack(name, tmp_path).table
    found = table.scan(columns=["id", "ts", "qty"]).to_reader().read_all().to_pylist()
    assert len(found) == 30
    for number, row in enumerate(sorted(found, key=lambda row: str(row["id"]))):
        versions = {version: ts for of, ts, version in writes if number in of}
        latest = {v for v, ts in versions.items() if ts == max(versions.values())}
        assert row["qty"] - number * 10 in latest, row
        assert row["ts"] == max(versions.values()), row


def test_a_deleted_order_stays_deleted_when_an_older_state_arrives(tmp_path: Path) -> None:
    """EVENT_TIME_ORDERING: a delete is ordered like every other change.

    This is true as long as a log contains the delete. A compaction drops it, as in Apache Hudi.
    """
    table = event_time(tmp_path)
    table.upsert(CREATED, {**CREATED, KEY: "2"})
    table.delete(CANCELED)
    table.upsert(PAID)
    assert [row[KEY] for row in table.rows()] == ["2"]
    table.compact()
    table.upsert(PAID)
    assert states(table.rows()) == ["paid", "created"]


def test_delete_without_ordering_value_always_wins(tmp_path: Path) -> None:
    """EVENT_TIME_ORDERING does not define a delete without a value. As in Apache Hudi, it wins."""
    table = event_time(tmp_path)
    table.upsert(CANCELED, {**CREATED, KEY: "2"})
    table.delete({KEY: "1"}, kind=ChangeKind.COMMIT_TIME_DELETE)
    assert [row[KEY] for row in table.rows()] == ["2"]


@each_way
def test_merging_is_associative(way: Way, tmp_path: Path) -> None:
    """Implementation Guidelines, 5: three versions give one result, however they are grouped.

    Either the first two are merged and then the third, or the first with the result of the other
    two.
    """
    for order in permutations([CREATED, PAID, CANCELED]):
        left, right = event_time(tmp_path), event_time(tmp_path)
        left.upsert(order[0], order[1])
        left.upsert(order[2])
        right.upsert(order[0])
        right.upsert(order[1], order[2])
        assert left.rows() == right.rows() == way(event_time, tmp_path, list(order))


def test_unconditional_deletes_are_not_associative_in_apache_hudi_either(tmp_path: Path) -> None:
    """Apache Hudi itself does not follow Implementation Guidelines, 5; lakemark returns its answer.

    A query folds the logs first. If changes after the delete are older than the row of the base
    file, that row returns. A compaction after the delete, or copy-on-write, drops the row
    permanently.
    """
    found = {}
    for way in ("query", "compaction between", "copy on write"):
        kind = COPY_ON_WRITE if way == "copy on write" else MERGE_ON_READ
        table = event_time(tmp_path, table_type=kind)
        table.upsert(PAID)
        table.delete({KEY: "1"}, kind=ChangeKind.COMMIT_TIME_DELETE)
        if way == "compaction between":
            table.compact()
        table.upsert(CREATED)
        found[way] = states(table.rows())
    assert found == {
        "query": ["paid"],
        "compaction between": ["created"],
        "copy on write": ["created"],
    }


def test_a_data_row_that_is_flagged_as_deleted_is_ordered_like_data(tmp_path: Path) -> None:
    """Implementation Guidelines, 2 and 3: a merged record may be a delete, and keeps its order."""
    for kind in (MERGE_ON_READ, COPY_ON_WRITE):
        table = event_time(tmp_path, table_type=kind)
        table.upsert(PAID)
        late = changes_of(ORDERS, [(CREATED, ChangeKind.FLAGGED_DELETE)])
        table.commit(late)
        assert states(table.rows()) == ["paid"]
        table.commit(changes_of(ORDERS, [(CANCELED, ChangeKind.FLAGGED_DELETE)]))
        assert table.rows() == []
