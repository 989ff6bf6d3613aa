"""The specification "Record Merger" holds, sentence by sentence: the ``CUSTOM`` mode."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.merger_name import MergerName
from lakemark.config.table_properties import MergeMode, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.merge.custom import BufferedRecord, BufferedRecordMerger, RecordContext, load_merger
from lakemark.model.changes import ChangeKind
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from tests.merging.written_table import KEY, Row, WrittenTable, changes_of
from tests.spec.order_mergers import (
    DeletingMerger,
    FirstMerger,
    ForgettingMerger,
    OrderMerger,
    RevivingMerger,
    VisitMerger,
    WitnessMerger,
)
from tests.spec.tables import COPY_ON_WRITE, MERGE_ON_READ

SCHEMA = pa.schema(
    [
        (KEY, pa.string()),
        ("ts", pa.int64()),
        ("state", pa.string()),
        ("order_info", pa.string()),
        ("payment_info", pa.string()),
    ]
)
CREATED: Row = {KEY: "1", "ts": 10, "state": "created", "order_info": "two books"}
CANCELED: Row = {KEY: "1", "ts": 30, "state": "canceled", "payment_info": "card expired"}
RECONCILED: Row = {**CREATED, **CANCELED}

both_table_types = pytest.mark.parametrize("table_type", [MERGE_ON_READ, COPY_ON_WRITE])


def path_of(merger: type[BufferedRecordMerger]) -> str:
    return f"{merger.__module__}:{merger.__qualname__}"


def table_of(
    folder: Path,
    merger: type[BufferedRecordMerger] = OrderMerger,
    table_type: TableType = MERGE_ON_READ,
    schema: pa.Schema = SCHEMA,
) -> WrittenTable:
    name = MergerName(path_of(merger), merger.merging_strategy)
    spec = TableSpec(
        name="orders", record_key=(KEY,), table_type=table_type, ordering=("ts",), merger=name
    )
    path = folder / f"table-{len(list(folder.iterdir()))}"
    return WrittenTable.create(path, schema, spec.to_properties(), name.class_path)


@both_table_types
def test_order_info_is_merged_into_the_record_that_has_payment_info(
    table_type: TableType, tmp_path: Path
) -> None:
    """CUSTOM: the result has the correct status, and the order_info of the created record.

    The order in which the records of the two services arrive does not matter.
    """
    for changes in permutations([CREATED, CANCELED]):
        table = table_of(tmp_path, table_type=table_type)
        for change in changes:
            table.upsert(change)
        assert table.rows() == [RECONCILED]
        table.compact()
        assert table.rows() == [RECONCILED]


def test_records_of_one_batch_are_merged_by_the_same_logic(tmp_path: Path) -> None:
    """CUSTOM: the merger also combines the records of one batch."""
    table = table_of(tmp_path)
    table.upsert(CANCELED, CREATED)
    assert table.rows() == [RECONCILED]


def test_queries_filter_both_parts_without_a_join(tmp_path: Path) -> None:
    """CUSTOM: queries simply filter fields across order_info and payment_info."""
    table = table_of(tmp_path)
    table.upsert(CREATED, {**CREATED, KEY: "2", "order_info": "a lamp"})
    table.upsert(CANCELED, {**CANCELED, KEY: "2"})
    where = "order_info = 'two books' and payment_info = 'card expired'"
    found = table.open().scan(columns=[KEY, "state"], where=where).to_reader().read_all()
    assert found.to_pylist() == [{KEY: "1", "state": "canceled"}]


def test_strategy_id_is_stored_in_the_table(tmp_path: Path) -> None:
    """CUSTOM: the table config contains the strategy id that the merger returns."""
    values = table_of(tmp_path).open().properties.values
    assert values[keys.MERGE_MODE] == MergeMode.CUSTOM
    assert values[keys.MERGE_STRATEGY_ID] == OrderMerger.merging_strategy


def test_merger_is_selected_by_the_strategy_id_of_the_table(tmp_path: Path) -> None:
    """Merge Mode Configs: the first implementation with the table's strategy id is used."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.upsert(CANCELED)
    location = StorageLocation(str(table.path))
    given = [DeletingMerger(), OrderMerger()]
    rows = open_table(location, mergers=given).scan(columns=SCHEMA.names).to_reader().read_all()
    assert rows.to_pylist() == [RECONCILED]
    with pytest.raises(Unsupported, match=OrderMerger.merging_strategy):
        open_table(location, mergers=[DeletingMerger()]).scan().to_reader().read_all()
    with pytest.raises(Unsupported, match=OrderMerger.merging_strategy):
        open_table(location).scan().to_reader().read_all()


def test_the_order_of_the_mergers_matters(tmp_path: Path) -> None:
    """Merge Mode Configs: if several implementations have the strategy id, the first is used."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.upsert(CANCELED)
    location, first, order = StorageLocation(str(table.path)), FirstMerger(), OrderMerger()
    found = [
        open_table(location, mergers=mergers)
        .scan(columns=["state"])
        .to_reader()
        .read_all()
        .to_pylist()
        for mergers in ([order, first], [first, order])
    ]
    assert found == [[{"state": "canceled"}], [{"state": "created"}]]


def test_custom_mode_requires_strategy_id_and_class(tmp_path: Path) -> None:
    """Merge Mode Configs: custom logic requires both the strategy id and the class."""
    with pytest.raises(InvalidConfig, match="merger"):
        TableSpec(name="t", record_key=(KEY,), merge_mode=MergeMode.CUSTOM).to_properties()
    with pytest.raises(InvalidConfig, match="UUID"):
        MergerName("shop.mergers:Orders", "latest")


@both_table_types
def test_older_record_is_the_one_written_before(table_type: TableType, tmp_path: Path) -> None:
    """CUSTOM: in every merge the interface takes an older and a newer record."""
    table = table_of(tmp_path, FirstMerger, table_type)
    table.upsert(CANCELED, CREATED)
    table.upsert(CREATED)
    assert [row["state"] for row in table.rows()] == ["canceled"]
    table.upsert({**CREATED, KEY: "2"})
    table.upsert({**CANCELED, KEY: "2"}, CREATED)
    table.compact()
    assert [row["state"] for row in table.rows()] == ["canceled", "created"]


@both_table_types
def test_a_record_comes_with_key_ordering_value_and_operation(
    table_type: TableType, tmp_path: Path
) -> None:
    """CUSTOM: BufferedRecord wraps the data along with key, ordering value and operation.

    In Apache Hudi it also has the identifier of its schema. Here all records of a call have one
    schema, which is in the context.
    """
    table = table_of(tmp_path, WitnessMerger, table_type)
    table.upsert(CREATED)
    WitnessMerger.given.clear()
    table.delete({KEY: "1", "ts": 31})
    assert table.rows() == []
    older, newer, context = WitnessMerger.given[-1]
    assert older.record_key == newer.record_key == "1"
    assert (older.ordering_value, newer.ordering_value) == (10, 31)
    assert (older.is_delete, newer.is_delete) == (False, True)
    assert older.data == {**CREATED, "payment_info": None}
    assert newer.data is None
    assert context.schema.equals(SCHEMA)
    assert context.ordering_fields == ("ts",)


class _Forgetful(BufferedRecordMerger):
    """A merger that returns None."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a13"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        return None  # type: ignore[return-value]


def test_a_merger_that_returns_nothing_is_refused(tmp_path: Path) -> None:
    """Implementation Guidelines, 1: merge must return a record.

    An error names a merger that does not.
    """
    table = table_of(tmp_path, _Forgetful)
    with pytest.raises(InvalidConfig, match="_Forgetful"):
        table.upsert(CREATED, CANCELED)


class _ForgetfulInPart(OrderMerger):
    """A merger that returns None for partial records."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a18"

    def partial_merge(
        self,
        older: BufferedRecord,
        newer: BufferedRecord,
        reader_schema: pa.Schema,
        context: RecordContext,
    ) -> BufferedRecord:
        return None  # type: ignore[return-value]


def test_a_partial_merge_that_returns_nothing_is_refused(tmp_path: Path) -> None:
    """Implementation Guidelines, 1: partialMerge, too, must return a record."""
    table = table_of(tmp_path, _ForgetfulInPart)
    table.upsert(CREATED)
    with pytest.raises(InvalidConfig, match="_ForgetfulInPart"):
        table.upsert_parts(CANCELED, {**CANCELED, "ts": 31})


def test_data_of_a_deleted_record_is_available_to_the_next_merge(tmp_path: Path) -> None:
    """Implementation Guidelines, 1: later merges can use the data of a deleted record.

    This is true within a batch. A log keeps only the key and ordering value of a delete, as in
    Apache Hudi.
    """
    refunded: Row = {KEY: "1", "ts": 40, "state": "refunded"}
    reopened: Row = {KEY: "1", "ts": 50, "state": "reopened", "payment_info": "paid in cash"}
    table = table_of(tmp_path, RevivingMerger)
    table.upsert(CREATED, refunded, reopened)
    assert table.rows() == [{**CREATED, **reopened}]
    table = table_of(tmp_path, RevivingMerger)
    table.upsert({**CREATED, KEY: "2"})
    table.upsert(CREATED, refunded)
    table.upsert(reopened)
    assert table.rows()[0]["order_info"] is None


@both_table_types
def test_result_may_be_a_delete_without_data(table_type: TableType, tmp_path: Path) -> None:
    """Implementation Guidelines, 1: null data is acceptable if it is not needed.

    By guideline 3 the delete keeps its ordering value, so that an older record does not come back.
    """
    table = table_of(tmp_path, ForgettingMerger, table_type)
    table.upsert({**CREATED, KEY: "2"})
    table.upsert(CREATED)
    table.upsert(CREATED, {**CANCELED, "ts": 40, "state": "refunded"}, CANCELED)
    assert [row[KEY] for row in table.rows()] == ["2"]


@both_table_types
def test_delete_result_removes_the_row(table_type: TableType, tmp_path: Path) -> None:
    """Implementation Guidelines, 2: a result with operation DELETE removes the row of its key."""
    table = table_of(tmp_path, DeletingMerger, table_type)
    table.upsert(CREATED, {**CREATED, KEY: "2"})
    table.upsert({**CANCELED, "ts": 40, "state": "refunded"})
    assert [row[KEY] for row in table.rows()] == ["2"]
    table.compact()
    assert [row[KEY] for row in table.rows()] == ["2"]


def test_result_keeps_its_ordering_value_for_later_merges(tmp_path: Path) -> None:
    """Implementation Guidelines, 3: a late older record is still compared with that value."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.upsert(CANCELED)
    table.compact()
    table.upsert({**CREATED, "ts": 20, "state": "paid"})
    assert table.rows() == [RECONCILED]
    table.delete({KEY: "1", "ts": 29})
    assert table.rows() == [RECONCILED]
    table.delete({KEY: "1", "ts": 31})
    assert table.rows() == []


class _Unordered(OrderMerger):
    """A merger that loses the ordering value."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a19"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        return context.merge_with_record(newer, {"ts": None})


def test_a_result_without_ordering_value_is_refused(tmp_path: Path) -> None:
    """Implementation Guidelines, 3: ordering values must be set.

    An error names a merger that does not.
    """
    table = table_of(tmp_path, _Unordered)
    with pytest.raises(InvalidConfig, match=r"_Unordered.*: ts is null|ordering value was lost"):
        table.upsert(CREATED, CANCELED)


@pytest.mark.parametrize("log_format", ["parquet", "avro"])
@both_table_types
def test_record_context_is_sufficient_for_a_merger(
    table_type: TableType, log_format: str, tmp_path: Path
) -> None:
    """Implementation Guidelines, 4: the context provides values, keys and modified records.

    It does so for every field, also inside structs, and for each format of log blocks.
    """
    place = ("place", pa.struct([("city", pa.string())]))
    counted = [("visits", pa.int64()), ("note", pa.string())]
    schema = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), place, *counted])

    def visit(time: int, city: str | None) -> Row:
        return {KEY: "ann", "ts": time, "place": city and {"city": city}, "visits": 1}

    table = table_of(tmp_path, VisitMerger, table_type, schema)
    table = replace(table, log_format=log_format)
    table.upsert(visit(1, "Rome"))
    table.upsert(visit(3, "Oslo"), visit(2, "Bern"))
    counts = {"visits": 3, "note": "ann was in Oslo"}
    assert table.rows() == [{**visit(3, "Oslo"), **counts}]
    table.compact()
    table.upsert(visit(4, None))
    assert table.rows() == [{**visit(4, None), "visits": 4, "note": "ann was in None"}]


def test_unconditional_delete_is_passed_to_the_merger(tmp_path: Path) -> None:
    """Implementation Guidelines, 1 and 2: the merger also gets deletes without data."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.commit(changes_of(SCHEMA, [({KEY: "1"}, ChangeKind.COMMIT_TIME_DELETE)]))
    assert table.rows() == []


def test_merging_is_associative_for_the_states_of_an_order(tmp_path: Path) -> None:
    """Implementation Guidelines, 5: three versions give one result, however they are grouped."""
    shipped: Row = {KEY: "1", "ts": 40, "state": "shipped"}
    for order in permutations([CREATED, CANCELED, shipped]):
        left, right = table_of(tmp_path), table_of(tmp_path)
        left.upsert(order[0], order[1])
        left.upsert(order[2])
        right.upsert(order[0])
        right.upsert(order[1], order[2])
        assert left.rows() == right.rows() == [{**RECONCILED, **shipped}]


def test_partial_record_is_merged_with_its_written_columns(tmp_path: Path) -> None:
    """CUSTOM: the merger API supports full and partial merges."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.upsert_parts(CANCELED)
    assert table.rows() == [RECONCILED]
    table.compact()
    assert table.rows() == [RECONCILED]


def test_partial_result_has_only_the_changed_fields(tmp_path: Path) -> None:
    """CUSTOM: partialMerge returns only the changed fields; the others keep their values."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    lamp: Row = {KEY: "1", "ts": 20, "order_info": "a lamp"}
    unpaid: Row = {KEY: "1", "ts": 30, "payment_info": "card expired"}
    table.upsert_parts(lamp, unpaid)
    assert table.rows() == [{**CREATED, **lamp, **unpaid}]
    table.compact()
    assert table.rows() == [{**CREATED, **lamp, **unpaid}]


@both_table_types
def test_a_partial_result_may_be_a_delete(table_type: TableType, tmp_path: Path) -> None:
    """CUSTOM: partialMerge, too, deletes by the operation of its result."""
    table = table_of(tmp_path, DeletingMerger, table_type)
    table.upsert(CREATED, {**CREATED, KEY: "2"})
    table.upsert_parts({KEY: "1", "ts": 40, "state": "refunded"})
    assert [row[KEY] for row in table.rows()] == ["2"]
    table.compact()
    assert [row[KEY] for row in table.rows()] == ["2"]


def test_a_merger_is_named_by_its_class() -> None:
    """Merge Mode Configs: a writer is configured with the implementation class."""
    assert isinstance(load_merger(path_of(OrderMerger)), OrderMerger)
