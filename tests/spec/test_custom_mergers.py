"""The specification "Record Merger", sentence by sentence: the ``CUSTOM`` mode."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from table.config import keys
from table.config.merger_name import MergerName
from table.config.table_properties import MergeMode, TableType
from table.config.table_spec import TableSpec
from table.errors import InvalidConfig, Unsupported
from table.hudi_table import open_table
from table.merge.custom import BufferedRecord, BufferedRecordMerger, RecordContext, load_merger
from table.model.changes import ChangeKind
from table.storage import StorageLocation
from tests.merging.written_table import KEY, Row, WrittenTable, changes_of
from tests.spec.order_mergers import DeletingMerger, OrderMerger
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
) -> WrittenTable:
    name = MergerName(path_of(merger), merger.merging_strategy)
    spec = TableSpec("orders", (KEY,), table_type, ordering=("ts",), merger=name)
    path = folder / f"table-{len(list(folder.iterdir()))}"
    return WrittenTable.create(path, SCHEMA, spec.to_properties(), name.class_path)


@both_table_types
def test_order_info_is_merged_into_the_record_that_has_payment_info(
    table_type: TableType, tmp_path: Path
) -> None:
    """CUSTOM: not only the correct status, but order_info from created merged into canceled.

    Whichever of the two services is heard first.
    """
    for changes in permutations([CREATED, CANCELED]):
        table = table_of(tmp_path, table_type=table_type)
        for change in changes:
            table.upsert(change)
        assert table.rows() == [RECONCILED]
        table.compact()
        assert table.rows() == [RECONCILED]


def test_records_of_one_batch_are_merged_by_the_same_logic(tmp_path: Path) -> None:
    """CUSTOM, in the path that combines the records of one batch."""
    table = table_of(tmp_path)
    table.upsert(CANCELED, CREATED)
    assert table.rows() == [RECONCILED]


def test_downstream_filters_across_both_without_a_join(tmp_path: Path) -> None:
    """CUSTOM: queries simply filter fields across order_info and payment_info."""
    table = table_of(tmp_path)
    table.upsert(CREATED, {**CREATED, KEY: "2", "order_info": "a lamp"})
    table.upsert(CANCELED, {**CANCELED, KEY: "2"})
    where = "order_info = 'two books' and payment_info = 'card expired'"
    found = table.open().snapshot([KEY, "state"], where).read_all()
    assert found.to_pylist() == [{KEY: "1", "state": "canceled"}]


def test_the_strategy_is_kept_in_the_table(tmp_path: Path) -> None:
    """CUSTOM: the strategy id is persisted in the table config; the merger returns the same."""
    values = table_of(tmp_path).open().properties.values
    assert values[keys.MERGE_MODE] == MergeMode.CUSTOM
    assert values[keys.MERGE_STRATEGY_ID] == OrderMerger.merging_strategy


def test_the_merger_is_found_by_the_strategy_of_the_table(tmp_path: Path) -> None:
    """Merge Mode Configs: of the implementations, the first with the strategy id is taken."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.upsert(CANCELED)
    location = StorageLocation(str(table.path))
    given = [DeletingMerger(), OrderMerger()]
    rows = open_table(location, mergers=given).snapshot(SCHEMA.names).read_all()
    assert rows.to_pylist() == [RECONCILED]
    with pytest.raises(Unsupported, match=OrderMerger.merging_strategy):
        open_table(location, mergers=[DeletingMerger()]).snapshot().read_all()
    with pytest.raises(Unsupported, match=OrderMerger.merging_strategy):
        open_table(location).snapshot().read_all()


def test_custom_logic_needs_strategy_and_class(tmp_path: Path) -> None:
    """Merge Mode Configs: with custom logic both the id and the class have to be specified."""
    with pytest.raises(InvalidConfig, match="merger"):
        TableSpec("t", (KEY,), merge_mode=MergeMode.CUSTOM).to_properties()
    with pytest.raises(InvalidConfig, match="UUID"):
        MergerName("shop.mergers:Orders", "latest")


class _Forgetful(BufferedRecordMerger):
    """Returns nothing."""

    merging_strategy = "4d9f3a5e-6f0c-4f3e-9f2b-0a4f0f0f6a13"

    def merge(
        self, older: BufferedRecord, newer: BufferedRecord, context: RecordContext
    ) -> BufferedRecord:
        return None  # type: ignore[return-value]


def test_a_merger_that_returns_nothing_is_refused(tmp_path: Path) -> None:
    """Implementation Guidelines, 1: merge must return a record; one that does not is named."""
    table = table_of(tmp_path, _Forgetful)
    with pytest.raises(InvalidConfig, match="_Forgetful"):
        table.upsert(CREATED, CANCELED)


@both_table_types
def test_a_result_that_is_a_delete_deletes_the_row(table_type: TableType, tmp_path: Path) -> None:
    """Implementation Guidelines, 2: a result with operation DELETE removes the row of its key."""
    table = table_of(tmp_path, DeletingMerger, table_type)
    table.upsert(CREATED, {**CREATED, KEY: "2"})
    table.upsert({**CANCELED, "ts": 40, "state": "refunded"})
    assert [row[KEY] for row in table.rows()] == ["2"]
    table.compact()
    assert [row[KEY] for row in table.rows()] == ["2"]


def test_a_result_keeps_its_ordering_value_for_merges_to_come(tmp_path: Path) -> None:
    """Implementation Guidelines, 3: an older record that arrives later still meets that value."""
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


def test_an_unconditional_delete_reaches_the_merger(tmp_path: Path) -> None:
    """Implementation Guidelines, 1 and 2: a delete may have no data; the merger sees it too."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.commit(changes_of(SCHEMA, [({KEY: "1"}, ChangeKind.COMMIT_TIME_DELETE)]))
    assert table.rows() == []


def test_merging_is_associative_for_the_states_of_an_order(tmp_path: Path) -> None:
    """Implementation Guidelines, 5: three versions, grouped either way, come to the same."""
    shipped: Row = {KEY: "1", "ts": 40, "state": "shipped"}
    for order in permutations([CREATED, CANCELED, shipped]):
        left, right = table_of(tmp_path), table_of(tmp_path)
        left.upsert(order[0], order[1])
        left.upsert(order[2])
        right.upsert(order[0])
        right.upsert(order[1], order[2])
        assert left.rows() == right.rows() == [{**RECONCILED, **shipped}]


def test_a_partial_record_is_merged_with_the_columns_that_it_carries(tmp_path: Path) -> None:
    """CUSTOM: the merger API supports full and partial merges."""
    table = table_of(tmp_path)
    table.upsert(CREATED)
    table.upsert_parts(CANCELED)
    assert table.rows() == [RECONCILED]
    table.compact()
    assert table.rows() == [RECONCILED]


def test_a_merger_is_named_by_its_class() -> None:
    """Merge Mode Configs: the implementation class is what a writer is told."""
    assert isinstance(load_merger(path_of(OrderMerger)), OrderMerger)
