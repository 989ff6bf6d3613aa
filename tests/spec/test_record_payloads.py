"""The specification "Record Merger" holds, sentence by sentence: record payloads (deprecated).

Version 9 stores the meaning of a payload as a merge mode and further settings. Each example is
merged in every way that the specification lists.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakemark.config import keys
from lakemark.config.merge_settings import PAYLOAD_CLASSES, merge_settings, payload_settings
from lakemark.config.table_properties import TableProperties, TableType
from lakemark.config.table_spec import TableSpec
from lakemark.errors import InvalidConfig
from lakemark.model.changes import ChangeKind
from tests.merging.written_table import KEY, Row, WrittenTable
from tests.spec.tables import COPY_ON_WRITE, MERGE_ON_READ, PRICES

#: The examples of the specification: the stored record, and the incoming one.
STORED: Row = {KEY: "1", "ts": 2, "name": "name_2", "price": "price_2"}
INCOMING: Row = {KEY: "1", "ts": 1, "name": "name_1", "price": "price_1"}

both_table_types = pytest.mark.parametrize("table_type", [MERGE_ON_READ, COPY_ON_WRITE])


def spec_of(payload: str, table_type: TableType, *ordering: str) -> TableSpec:
    return TableSpec(
        name="prices", record_key=(KEY,), table_type=table_type, ordering=ordering, payload=payload
    )


def table_of(
    folder: Path, payload: str, table_type: TableType, schema: pa.Schema = PRICES
) -> WrittenTable:
    """Create a table with a payload and the ordering column ``ts``; Debezium's has its own."""
    ordering = ["ts"] if "ts" in schema.names else []
    properties = spec_of(payload, table_type, *ordering).to_properties()
    return WrittenTable.create(folder, schema, properties)


def came_to(table: WrittenTable) -> list[dict[str, object]]:
    """Return the result of a query, after a check that a compaction does not change it."""
    before = table.rows()
    table.compact()
    assert table.rows() == before
    return before


@pytest.mark.parametrize("payload_class", PAYLOAD_CLASSES)
def test_payload_configuration_continues_to_work(payload_class: str) -> None:
    """Record Payloads: payload-based configurations continue to work.

    A table of version 9 keeps the class name, and stores its meaning in other settings.
    """
    spec = spec_of(payload_class.rpartition(".")[2], MERGE_ON_READ, "ts")
    if "Debezium" in payload_class:
        spec = spec_of(payload_class, MERGE_ON_READ)
    stored = TableProperties.parse(spec.to_properties().to_bytes())
    found, meant = merge_settings(stored), payload_settings(payload_class)
    assert stored.values[keys.LEGACY_PAYLOAD_CLASS] == payload_class
    assert (found.mode, found.partial_update) == (meant.mode, meant.partial_update)
    assert found.unavailable_value == meant.unavailable_value
    assert found.delete_marker == meant.delete_marker
    assert found.payload is None


@both_table_types
def test_overwrite_with_latest_is_latest_write_wins(table_type: TableType, tmp_path: Path) -> None:
    """OverwriteWithLatestAvroPayload: the latest write wins, whatever its ordering value."""
    table = table_of(tmp_path, "OverwriteWithLatestAvroPayload", table_type)
    table.upsert(STORED)
    table.upsert(INCOMING)
    assert came_to(table) == [INCOMING]


@both_table_types
def test_the_default_payload_honors_the_ordering_field(
    table_type: TableType, tmp_path: Path
) -> None:
    """DefaultHoodieRecordPayload, the example: the stored record has the larger ts, and stays."""
    table = table_of(tmp_path, "DefaultHoodieRecordPayload", table_type)
    table.upsert(STORED)
    table.upsert(INCOMING)
    assert came_to(table) == [STORED]


@pytest.mark.parametrize(
    "payload", ["OverwriteWithLatestAvroPayload", "OverwriteNonDefaultsWithLatestAvroPayload"]
)
def test_overwriting_payloads_precombine_a_batch(payload: str, tmp_path: Path) -> None:
    """OverwriteWithLatestAvroPayload: of a batch, the record with the greatest value is picked.

    This is not so in version 9: Apache Hudi 1.2.0 creates such a table in ``COMMIT_TIME_ORDERING``,
    in which the last record is picked.
    """
    table = table_of(tmp_path, payload, MERGE_ON_READ)
    table.upsert(STORED, INCOMING)
    assert came_to(table) == [INCOMING]


def test_the_default_payload_honors_the_ordering_field_in_precombine_too(tmp_path: Path) -> None:
    """DefaultHoodieRecordPayload honors the ordering field for both precombining and merging."""
    table = table_of(tmp_path, "DefaultHoodieRecordPayload", MERGE_ON_READ)
    table.upsert(STORED, INCOMING)
    assert table.rows() == [STORED]


@both_table_types
def test_late_data_loses_by_event_time(table_type: TableType, tmp_path: Path) -> None:
    """EventTimeAvroPayload: event time is the ordering field; useful for late-arriving data."""
    table = table_of(tmp_path, "EventTimeAvroPayload", table_type)
    table.upsert(STORED)
    table.upsert(INCOMING, {**STORED, "ts": 3, "name": "name_3"})
    assert came_to(table) == [{**STORED, "ts": 3, "name": "name_3"}]


def test_event_time_payload_requires_an_ordering_field() -> None:
    """EventTimeAvroPayload: a table without an event time field is refused."""
    with pytest.raises(InvalidConfig, match="ordering"):
        spec_of("EventTimeAvroPayload", MERGE_ON_READ).to_properties()


@pytest.mark.parametrize("payload", ["AWSDmsAvroPayload", "OverwriteWithLatestAvroPayload"])
def test_a_payload_may_render_the_ordering_field_ineffective(payload: str, tmp_path: Path) -> None:
    """Record Payload Configs: a payload overrides the precombine field."""
    schema = pa.schema([*PRICES, ("Op", pa.string())])
    table = table_of(tmp_path, payload, MERGE_ON_READ, schema)
    table.upsert({**STORED, "Op": "I"})
    table.upsert({**INCOMING, "Op": "U"})
    assert came_to(table) == [{**INCOMING, "Op": "U"}]


def test_custom_payload_class_is_refused() -> None:
    """Record Payload Configs: custom merge logic is a Java class, which lakemark cannot run."""
    with pytest.raises(InvalidConfig, match=r"com\.shop\.OrderPayload"):
        spec_of("com.shop.OrderPayload", MERGE_ON_READ, "ts").to_properties()


@both_table_types
def test_only_fields_that_differ_from_their_default_are_overwritten(
    table_type: TableType, tmp_path: Path
) -> None:
    """OverwriteNonDefaultsWithLatestAvroPayload: only fields that differ from their default.

    The later record wins, for any ordering value.
    """
    table = table_of(tmp_path, "OverwriteNonDefaultsWithLatestAvroPayload", table_type)
    table.upsert(STORED)
    table.upsert({**INCOMING, "name": None})
    assert came_to(table) == [{**INCOMING, "name": "name_2"}]


@both_table_types
def test_late_partial_update_fills_missing_fields_of_the_stored_record(
    table_type: TableType, tmp_path: Path
) -> None:
    """PartialUpdateAvroPayload, the example: a late record fills the price that is null."""
    table = table_of(tmp_path, "PartialUpdateAvroPayload", table_type)
    table.upsert({**STORED, "name": "name_1", "price": None})
    table.upsert({**INCOMING, "name": None, "price": "price_1"})
    assert came_to(table) == [{KEY: "1", "ts": 2, "name": "name_1", "price": "price_1"}]


@both_table_types
def test_partial_update_keeps_fields_that_it_does_not_set(
    table_type: TableType, tmp_path: Path
) -> None:
    """PartialUpdateAvroPayload: only certain fields are updated; the others keep their values."""
    table = table_of(tmp_path, "PartialUpdateAvroPayload", table_type)
    table.upsert(STORED)
    table.upsert({KEY: "1", "ts": 3, "name": "name_3"})
    assert came_to(table) == [{KEY: "1", "ts": 3, "name": "name_3", "price": "price_2"}]


def test_a_partial_update_is_combined_in_a_batch_too(tmp_path: Path) -> None:
    """PartialUpdateAvroPayload: the records of one batch are combined in the same way."""
    table = table_of(tmp_path, "PartialUpdateAvroPayload", MERGE_ON_READ)
    table.upsert({KEY: "1", "ts": 2, "name": "name_1"}, {KEY: "1", "ts": 1, "price": "price_1"})
    assert table.rows() == [{KEY: "1", "ts": 2, "name": "name_1", "price": "price_1"}]


@both_table_types
def test_a_partial_update_is_seen_by_an_incremental_query(
    table_type: TableType, tmp_path: Path
) -> None:
    """PartialUpdateAvroPayload fills none of Hudi's own columns: the commit time is new."""
    table = table_of(tmp_path, "PartialUpdateAvroPayload", table_type)
    table.upsert(STORED, {**STORED, KEY: "2"})
    second = table.upsert({KEY: "1", "ts": 3, "name": "name_3"})
    times = table.rows([KEY, "_hoodie_commit_time"])
    assert [row[KEY] for row in times if row["_hoodie_commit_time"] == second.time] == ["1"]


@both_table_types
def test_changes_of_mysql_are_ordered_by_binlog_position(
    table_type: TableType, tmp_path: Path
) -> None:
    """Record Payload Configs: MySqlDebeziumAvroPayload applies changes of MySQL seamlessly."""
    binlog = [("_event_bin_file", pa.string()), ("_event_pos", pa.int64())]
    schema = pa.schema([(KEY, pa.string()), *binlog, ("name", pa.string())])

    def row(file: str, position: int, name: str) -> Row:
        return {KEY: "1", "_event_bin_file": file, "_event_pos": position, "name": name}

    table = table_of(tmp_path, "MySqlDebeziumAvroPayload", table_type, schema)
    newest = row("binlog.000002", 4, "new")
    table.upsert(newest)
    table.upsert(row("binlog.000001", 900, "old"))
    table.upsert(row("binlog.000002", 3, "old"))
    assert came_to(table) == [newest]


@both_table_types
def test_value_that_postgres_did_not_send_is_kept(table_type: TableType, tmp_path: Path) -> None:
    """Record Payload Configs: PostgresDebeziumAvroPayload keeps values that were not sent."""
    schema = pa.schema([(KEY, pa.string()), ("_event_lsn", pa.int64()), ("name", pa.string())])
    table = table_of(tmp_path, "PostgresDebeziumAvroPayload", table_type, schema)
    table.upsert({KEY: "1", "_event_lsn": 1, "name": "a long text"})
    table.upsert({KEY: "1", "_event_lsn": 2, "name": "__debezium_unavailable_value"})
    assert came_to(table) == [{KEY: "1", "_event_lsn": 2, "name": "a long text"}]
    table.upsert({KEY: "1", "_event_lsn": 3, "name": None})
    assert came_to(table) == [{KEY: "1", "_event_lsn": 3, "name": None}]


@both_table_types
def test_changes_of_aws_dms_are_applied_in_order(table_type: TableType, tmp_path: Path) -> None:
    """Record Payload Configs: AWSDmsAvroPayload applies changes, deletes among them, in order.

    Rows with ``Op`` ``D`` are deletes; ``tests/unit/transforms`` shows that they arrive as such.
    """
    schema = pa.schema([(KEY, pa.string()), ("Op", pa.string()), ("name", pa.string())])
    table = table_of(tmp_path, "AWSDmsAvroPayload", table_type, schema)
    table.upsert({KEY: "1", "Op": "I", "name": "one"}, {KEY: "2", "Op": "I", "name": "two"})
    table.delete({KEY: "1"}, kind=ChangeKind.FLAGGED_DELETE)
    table.upsert({KEY: "2", "Op": "U", "name": "again"})
    assert came_to(table) == [{KEY: "2", "Op": "U", "name": "again"}]
