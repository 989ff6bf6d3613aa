"""A pipeline is refused before any of its tables is created, changed or removed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.config import keys
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.model.changes import CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties, replace_properties
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import divide
from sinks.hudi.sink import HudiSink
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.pipeline import open_sink
from streamer.sources.kafka import KafkaSource
from tests.golden.golden_table import unpack
from tests.json_stream import InThisProcess, Record, Tombstone, kafka_batch
from tests.tables import Row, commit, lookup_writer, make


class Topic:
    """A topic that exists and has these records."""

    def __init__(self, *records: Mapping[str, object]) -> None:
        self._records = records

    def start(self, _: None) -> None:
        """Raise no error."""

    def sample(self, _: int) -> pa.Array:
        """Return the values of the records."""
        return pa.array([json.dumps(record) for record in self._records], pa.binary())


COLUMNS: Mapping[str, object] = {"schema": {"id": "string", "region": "string"}}


def opened(
    folder: Path,
    decode: Mapping[str, object] = COLUMNS,
    topic: Topic | None = None,
    **table: object,
) -> HudiSink:
    config = validated(
        {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": decode,
            "table": {"path": str(folder / "rows"), "record_key": "id", **table},
        }
    )
    return open_sink(config, cast(KafkaSource, topic or Topic()))[0]


def test_sink_writes_base_files_as_the_pipeline_says(tmp_path: Path) -> None:
    for offset in range(2):  # creates the table, and then opens it
        config = validated(
            {
                "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
                "decode": COLUMNS,
                "table": {
                    "path": str(tmp_path / "rows"),
                    "record_key": "id",
                    "type": "copy_on_write",
                },
                "base_files": {"compression": "gzip", "compression_level": 1},
            }
        )
        sink, _ = open_sink(config, cast(KafkaSource, Topic()))
        sink.recover()
        sink.progress()
        rows = [{"id": f"{offset}-{n}", "region": "north"} for n in range(20)]
        sink.write(kafka_batch("orders", 20 * offset, rows), InThisProcess())
    written = list((tmp_path / "rows").glob("*.parquet"))
    assert written
    codecs = {pq.read_metadata(file).row_group(0).column(0).compression for file in written}
    assert codecs == {"GZIP"}


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.mark.parametrize(("rule", "rejected", "counted"), [("count", 0, 1), ("reject", 1, 0)])
def test_sink_treats_partition_changes_as_the_pipeline_says(
    tmp_path: Path, rule: str, rejected: int, counted: int
) -> None:
    sink = opened(tmp_path, partition_by="region", partition_change=rule)
    sink.recover()
    sink.write(kafka_batch("orders", 0, [{"id": "a", "region": "north"}]), InThisProcess())
    moved = kafka_batch("orders", 1, [{"id": "a", "region": "south"}])
    result = sink.write(moved, InThisProcess())
    assert (result.rejected, result.partition_changes) == (rejected, counted)


@pytest.mark.parametrize(("is_bare", "key"), [(True, "a"), (False, "region:a")])
def test_pipeline_updates_the_rows_of_a_complex_table_under_their_stored_keys(
    tmp_path: Path, is_bare: bool, key: str
) -> None:
    def write(offset: int) -> list[str]:
        sink = opened(tmp_path, partition_by="id", record_key="region")
        sink.recover()
        sink.progress()
        batch = kafka_batch("orders", offset, [{"id": "x", "region": "a"}])
        sink.write(batch, InThisProcess())
        rows = (
            open_table(StorageLocation(str(tmp_path / "rows")))
            .scan(columns=[RECORD_KEY])
            .to_reader()
        )
        return [str(row[RECORD_KEY]) for row in rows.read_all().to_pylist()]

    opened(tmp_path, partition_by="id", record_key="region")
    if is_bare:
        assert write(0) == [key], "as SIMPLE writes it"
    path = tmp_path / "rows" / ".hoodie" / "hoodie.properties"
    path.write_text(path.read_text().replace(".type=SIMPLE", ".type=COMPLEX"))
    assert write(1) == [key]
    assert write(2) == [key], "an update became a second row"


@pytest.mark.parametrize("unwanted", [{"metadata_table": False}, {"drop_metadata_table": True}])
def test_a_refused_pipeline_leaves_another_ones_tables_as_they_were(
    tmp_path: Path, unwanted: dict[str, bool]
) -> None:
    opened(tmp_path)
    before = files(tmp_path)
    with pytest.raises(InvalidConfig, match="record_key is id in the table and region"):
        opened(tmp_path, COLUMNS, None, record_key="region", **unwanted)
    assert files(tmp_path) == before


@pytest.mark.parametrize("place", ["rows", "rows_dead_letters"])
def test_no_table_is_created_if_the_other_location_is_invalid(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir()
    (tmp_path / place / "notes.txt").write_text("mine")
    with pytest.raises(InvalidConfig, match=rf"{place} is not empty and is not a Hudi table"):
        opened(tmp_path)
    assert files(tmp_path) == {f"{place}/notes.txt": b"mine"}


def test_a_pipeline_without_a_metadata_table_removes_it(tmp_path: Path) -> None:
    opened(tmp_path)
    places = [tmp_path / "rows", tmp_path / "rows_dead_letters"]
    tables = [open_table(StorageLocation(str(place))) for place in places]
    assert all(table.properties.metadata_partitions for table in tables)
    opened(tmp_path, metadata_table=False)
    tables = [open_table(StorageLocation(str(place))) for place in places]
    assert not any(table.properties.metadata_partitions for table in tables)
    assert not any("metadata" in name for name in files(tmp_path))


def avro_of(**fields: object) -> dict[str, object]:
    members = [{"name": n, "type": kind} for n, kind in {"id": "string", **fields}.items()]
    schema = json.dumps({"type": "record", "name": "order", "fields": members})
    plain = {"format": "avro", "wire_format": "plain", "writer_schema": schema}
    return {**plain, "tombstone_key": "avro", "key_schema": schema}


def millis(kind: str) -> dict[str, str]:
    return {"type": "long", "logicalType": kind}


TEXT_AND_NUMBER = Topic({"id": "a", "seen": "08:00Z"}, {"id": "b", "seen": "10:00+05:00"})


@pytest.mark.parametrize(
    ("decode", "topic"),
    [
        ({}, TEXT_AND_NUMBER),
        (avro_of(seen="string"), None),
        (avro_of(seen={"type": "enum", "name": "e", "symbols": ["A"]}), None),
    ],
    ids=["inferred", "avro", "avro enum"],
)
def test_text_ordering_is_refused_before_a_table_is_created(
    tmp_path: Path, decode: Mapping[str, object], topic: Topic | None
) -> None:
    with pytest.raises(ConfigError, match=r"table.ordering: 'seen' is of type string, and text"):
        opened(tmp_path, decode, topic, ordering="seen")
    assert files(tmp_path) == {}
    opened(tmp_path, decode, topic, ordering="seen", allow_text_ordering=True)


def test_binary_ordering_is_refused_before_a_table_is_created(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'seen' is binary, and Apache Hudi 1\.2\.0 cannot read"):
        opened(tmp_path, avro_of(seen="bytes"), None, ordering="seen")
    assert files(tmp_path) == {}


def write_row(sink: HudiSink, **row: object) -> None:
    """Commit one row, like a batch of an earlier run."""
    writer = sink._rows
    schema = with_meta_columns(writer.schema).append(CHANGE_KIND_FIELD)
    keys = sink._columns.prepare.converter.key_generator
    rows = pa.Table.from_pylist([row], schema=writer.schema)
    values = dict.fromkeys(schema.names) | row | {CHANGE_KIND_FIELD.name: ChangeKind.UPSERT}
    values[RECORD_KEY] = keys.record_keys(rows)[0].as_py()
    values[PARTITION_PATH] = keys.partition_paths(rows)[0].as_py()
    context = writer.begin()
    changes = pa.Table.from_pylist([values], schema=schema)
    placed = writer.assigner.assign(context, changes)
    (bucket, part), *_ = divide(changes, placed.numbers)
    writer.commit(write_file_group(context, placed.assignment.task(bucket), iter([part])), {})


def found(folder: Path) -> dict[str, object]:
    rows = open_table(StorageLocation(str(folder / "rows"))).scan().to_table().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows), "a key is stored twice"
    return {row["id"]: row["n"] for row in rows}


@pytest.mark.parametrize("kind", ["merge_on_read", "copy_on_write"])
def test_pipeline_continues_a_table_without_a_bucket_index(tmp_path: Path, kind: str) -> None:
    decode = {"schema": {"id": "string", "region": "string", "n": "long"}}
    table = {"partition_by": "region", "type": kind}
    first = opened(tmp_path, decode, None, **table)
    first._rows.settings = replace(first._rows.settings, index=None)
    write_row(first, id="a", region="north", n=1)
    sink = opened(tmp_path, decode, None, **table)
    assert sink.looks_up_keys
    sink.recover()
    batches: list[list[Record | None]] = [
        [{"id": "a", "region": "north", "n": 2}, {"id": "b", "region": "south", "n": 2}, b"{"],
        [{"id": key, "region": "north", "n": 3} for key in ("a", "c", "a")],
        [{"id": "b", "region": "south", "_hoodie_is_deleted": True}],
        [{"id": "x", "region": "north", "_hoodie_is_deleted": True}],
        [{"id": "b", "region": "south", "n": 6}],
    ]
    expected = [
        {"a": 2, "b": 2},
        {"a": 3, "b": 2, "c": 3},
        {"a": 3, "c": 3},
        {"a": 3, "c": 3},
        {"a": 3, "b": 6, "c": 3},
    ]
    offset = 0
    for records, rows in zip(batches, expected, strict=True):
        result = sink.write(kafka_batch("orders", offset, records), InThisProcess())
        offset += len(records)
        assert result.records == len(records)
        assert found(tmp_path) == rows


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"buckets": 4},
            "has no fixed number of buckets, as the id of .* table.buckets has no meaning",
        ),
        ({"partition_change": "count"}, r"cannot find its keys in other partitions .*: count"),
    ],
)
def test_settings_of_bucket_indexes_are_refused_for_other_tables(
    tmp_path: Path, setting: dict[str, object], message: str
) -> None:
    first = opened(tmp_path, partition_by="region")
    first._rows.settings = replace(first._rows.settings, index=None)
    write_row(first, id="a", region="north")
    with pytest.raises(InvalidConfig, match=message):
        opened(tmp_path, COLUMNS, None, partition_by="region", **setting)


MOVES: Mapping[str, object] = {"partition_by": "region", "partition_change": "move"}
INSERTS: Mapping[str, object] = {"partition_by": "region", "operation": "insert"}


def write_at_next_start(
    folder: Path, offset: int, *records: Record | Tombstone, **table: Any
) -> int:
    """Start the pipeline, write a batch, and return how many rows moved."""
    decode = {**COLUMNS, "tombstone_key": "raw"} if table == MOVES else COLUMNS
    sink = opened(folder, decode, None, **table)
    sink.recover()
    sink.progress()
    return sink.write(kafka_batch("orders", offset, records), InThisProcess()).moved


def regions(folder: Path) -> list[tuple[str, str]]:
    table = open_table(StorageLocation(str(folder / "rows")))
    rows = table.scan(columns=["id", "region"]).to_table().to_pylist()
    return sorted((row["id"], row["region"]) for row in rows)


def test_pipeline_that_moves_rows_creates_a_table_without_buckets(tmp_path: Path) -> None:
    first = [{"id": key, "region": "north"} for key in "ab"]
    assert write_at_next_start(tmp_path, 0, *first, **MOVES) == 0
    assert write_at_next_start(tmp_path, 2, {"id": "a", "region": "south"}, **MOVES) == 1
    assert write_at_next_start(tmp_path, 3, Tombstone(b"b"), **MOVES) == 0
    assert regions(tmp_path) == [("a", "south")]
    with pytest.raises(InvalidConfig, match=r"needs table.partition_change: move.*global_lookup"):
        opened(tmp_path, partition_by="region")


def test_pipeline_that_inserts_creates_a_table_without_buckets(tmp_path: Path) -> None:
    for offset in range(2):
        write_at_next_start(tmp_path, offset, {"id": "a", "region": "north"}, **INSERTS)
    assert regions(tmp_path) == [("a", "north")] * 2
    dropping = {**INSERTS, "duplicates": "drop"}
    write_at_next_start(tmp_path, 2, {"id": "c", "region": "north"}, **dropping)
    assert len(regions(tmp_path)) == 3


KEYLESS: Mapping[str, object] = {"record_key": [], "operation": "insert"}


def test_pipeline_continues_a_table_with_automatic_record_keys(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    for offset, written in ((0, 2), (2, 5)):
        sink = opened(tmp_path, COLUMNS, None, partition_by="region", **KEYLESS)
        sink.recover()
        sink.progress()
        rows = [{"id": "a", "region": "north"}] * 2
        assert sink.write(kafka_batch("orders", offset, rows), InThisProcess()).records == 2
        table = lakemark.open(path)
        assert table.insert(pa.table({"id": ["b"], "region": ["south"]})).inserts == 1
        assert table.scan(columns=["id"]).to_table().num_rows == written + 1
        if not offset:
            table.create_index("record_index")
    keys = lakemark.open(path).scan(columns=["_hoodie_record_key"]).to_table()
    assert len(set(keys.column(0).to_pylist())) == 6
    assert metadata_differences(open_table(StorageLocation(str(path)))) == []


def test_pipeline_needs_record_keys_as_the_table_has_them(tmp_path: Path) -> None:
    keyed, keyless = tmp_path / "keyed", tmp_path / "keyless"
    opened(keyed, operation="insert")
    opened(keyless, COLUMNS, None, **KEYLESS)
    tables: list[tuple[Path, Mapping[str, object]]]
    tables = [(keyed, KEYLESS), (keyless, {}), (keyless, {"operation": "insert"})]
    for folder, table in tables:
        with pytest.raises(
            InvalidConfig, match=r"record_key is .* in the table and .* in the pipe"
        ):
            opened(folder, COLUMNS, None, **table)


@pytest.mark.parametrize("table", [MOVES, INSERTS], ids=["move", "insert"])
def test_bucket_indexes_are_refused_before_anything_starts(
    tmp_path: Path, table: Mapping[str, object]
) -> None:
    write_row(opened(tmp_path, partition_by="region"), id="a", region="north")
    before = files(tmp_path)
    with pytest.raises(InvalidConfig, match=r"has a bucket index, but table\..* looked up"):
        opened(tmp_path, COLUMNS, None, **table)
    assert files(tmp_path) == before


@pytest.mark.parametrize("table", [MOVES, INSERTS], ids=["move", "insert"])
def test_consistent_hashing_is_refused_before_anything_starts(
    tmp_path: Path, table: Mapping[str, object]
) -> None:
    unpack("v9_mor_consistent_hashing", tmp_path).root.rename(tmp_path / "rows")
    with pytest.raises(InvalidConfig, match=r"has consistent hashing, but table\..* looked up"):
        opened(tmp_path, COLUMNS, None, **table)


def with_record_index(folder: Path, *, partitioned: bool = False) -> None:
    """Create a table with a record index and one row."""
    storage = open_storage(StorageLocation(str(folder / "rows")))
    make(storage, indexes=["record_index"], partitioned=partitioned)
    commit(lookup_writer(storage), [Row("a", 1, 1)])


OF_TESTS: Mapping[str, object] = {
    "schema": {"id": "string", "region": "string", "ts": "bigint", "v": "bigint"}
}


def test_pipeline_on_a_record_index_must_say_that_rows_move(tmp_path: Path) -> None:
    with_record_index(tmp_path)
    table: dict[str, object] = {"ordering": "ts", "partition_by": "region"}
    with pytest.raises(InvalidConfig, match=r"table.partition_change: move, .* a record index"):
        opened(tmp_path, OF_TESTS, None, **table)
    with pytest.raises(InvalidConfig, match=r"operation: insert, .* record index.*; use upsert"):
        opened(tmp_path, OF_TESTS, None, **table, operation="insert", duplicates="drop")
    sink = opened(tmp_path, OF_TESTS, None, **table, partition_change="move")
    sink.recover()
    sink.progress()
    moved = kafka_batch("orders", 0, [{"id": "a", "region": "south", "ts": 2, "v": 2}])
    assert sink.write(moved, InThisProcess()).moved == 1
    assert regions(tmp_path) == [("a", "south")]
    assert metadata_differences(open_table(StorageLocation(str(tmp_path / "rows")))) == []


def test_pipeline_on_a_partitioned_record_index_keeps_a_row_in_each_partition(
    tmp_path: Path,
) -> None:
    with_record_index(tmp_path, partitioned=True)
    table: dict[str, object] = {"ordering": "ts", "partition_by": "region"}
    with pytest.raises(Unsupported, match="has a partitioned record index, which does not show"):
        opened(tmp_path, OF_TESTS, None, **table, partition_change="move")
    with pytest.raises(InvalidConfig, match=r"operation: insert, .* record index.*; use upsert"):
        opened(tmp_path, OF_TESTS, None, **table, operation="insert")
    sink = opened(tmp_path, OF_TESTS, None, **table, partition_change="allow")
    sink.recover()
    sink.progress()
    paths = ("north", "south", "example.com")
    rows = [{"id": "a", "region": region, "ts": 2, "v": 2} for region in paths]
    written = sink.write(kafka_batch("orders", 0, rows), InThisProcess())
    assert written.rejected == 1, "the index cannot have files for a partition with a dot"
    assert regions(tmp_path) == [("a", "north"), ("a", "south")]
    assert metadata_differences(open_table(StorageLocation(str(tmp_path / "rows")))) == []


def test_table_that_is_ordered_by_text_is_continued_where_that_is_allowed(tmp_path: Path) -> None:
    decode = {"schema": {"id": "string", "seen": "string"}}
    write_row(opened(tmp_path, decode, ordering="seen", allow_text_ordering=True), id="a", seen="1")
    with pytest.raises(ConfigError, match=r"the type stays; set table.allow_text_ordering"):
        opened(tmp_path, {}, ordering="seen")
    sink = opened(tmp_path, {}, ordering="seen", allow_text_ordering=True)
    assert sink.table.schema is not None


@pytest.mark.parametrize(
    ("decode", "topic"),
    [
        ({"schema": {"id": "string", "at": "timestamp"}}, None),
        ({}, Topic({"id": "a", "at": "2026-01-01T08:00:00Z"})),
        (avro_of(at=millis("timestamp-millis")), None),
        (avro_of(at=millis("timestamp-micros")), None),
        (avro_of(at=millis("local-timestamp-micros")), None),
    ],
    ids=["declared", "inferred", "millis", "micros", "local"],
)
def test_partitions_by_a_timestamp_are_refused_for_a_new_table(
    tmp_path: Path, decode: Mapping[str, object], topic: Topic | None
) -> None:
    expected = r"table.partition_by: 'at' is of type timestamp.*write day\(at\)"
    with pytest.raises(ConfigError, match=expected):
        opened(tmp_path, decode, topic, partition_by="at")
    assert files(tmp_path) == {}


def test_partitions_by_a_date_are_accepted(tmp_path: Path) -> None:
    opened(tmp_path, {"schema": {"id": "string", "at": "date"}}, partition_by="at")


def test_existing_table_keeps_its_partitions_by_a_timestamp(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = {"schema": {"id": "string", "at": "timestamp"}}
    with monkeypatch.context() as before:
        before.setattr("streamer.config.column_roles.timestamp_partition_problems", lambda *_: ())
        row = {"id": "a", "at": datetime(2026, 1, 1, tzinfo=UTC)}
        write_row(opened(tmp_path, decode, partition_by="at"), **row)
    opened(tmp_path, decode, partition_by="at")
    assert "table.partition_by: 'at' is of type timestamp" in caplog.text
    assert "the table exists, so it keeps its partitions" in caplog.text


def test_pipeline_updates_rows_in_their_folders_of_formatted_times(tmp_path: Path) -> None:
    golden = unpack("v9_mor_timestamp_keys_millis", tmp_path / "golden")
    golden.root.rename(tmp_path / "rows")
    before = lakemark.open(tmp_path / "rows").snapshot().read_all()
    decode = {"schema": "infer", "unknown_fields": "evolve"}
    open_it = partial(opened, tmp_path, decode, ordering="ts", buckets=2, metadata_table=False)
    named = ("at_ms", "day(at_ms)", "format(at_ms, yyyy/MM/dd, Europe/Berlin)")
    for other in named:
        with pytest.raises(InvalidConfig, match=r"is format\(at_ms, yyyy/MM/dd\) in the table"):
            open_it(partition_by=other)
    sink = open_it(partition_by="format(at_ms, yyyy/MM/dd)")
    sink.recover()
    sink.progress()
    row = before.select(["id", "region", "at_ms", "at_s", "at", "at_days"]).slice(0, 1)
    newer = {**row.to_pylist()[0], "ts": 10**9}
    sink.write(kafka_batch("orders", 0, [newer]), InThisProcess())
    after = lakemark.open(tmp_path / "rows").snapshot().read_all()
    assert after.num_rows == before.num_rows, "an update became a second row"
    assert 10**9 in after["ts"].to_pylist()


def test_untyped_field_of_the_sample_is_reported_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = Topic({"id": "a", "n": None, "more": {"x": None}}, {"id": "b", "n": None})
    sink = opened(tmp_path, {"unknown_fields": "evolve"}, topic)
    assert sink._rows.schema.names == ["id"]
    assert caplog.messages == [
        "null or empty in all 2 sampled records: n, more.x; declare them in decode.schema, or they "
        "are treated as unknown fields (decode.unknown_fields: evolve)"
    ]


def test_ids_beyond_64_bits_that_differ_in_the_last_digit_are_two_rows(tmp_path: Path) -> None:
    records = [{"id": 2**64 + n} for n in range(2)]
    sink = opened(tmp_path, {}, Topic(*records))
    sink.recover()
    sink.write(kafka_batch("orders", 0, records), InThisProcess())
    rows = (
        open_table(StorageLocation(str(tmp_path / "rows")))
        .scan(columns=[RECORD_KEY, "id"])
        .to_reader()
    )
    assert sorted(rows.read_all().to_pylist(), key=lambda row: str(row["id"])) == [
        {RECORD_KEY: str(2**64 + n), "id": Decimal(2**64 + n)} for n in range(2)
    ]


def test_undeclared_field_with_the_name_of_a_delete_mark_deletes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = [{"id": "a", "_hoodie_operation": "I"}, {"id": "a", "_hoodie_operation": "D"}]
    sink = opened(tmp_path, {}, Topic(*records))
    assert sink._rows.schema.names == ["id"]
    assert caplog.messages == [
        "omitted from the inferred columns, because their names are reserved by Hudi: "
        "_hoodie_operation; declare them in decode.schema, or they are treated as unknown fields "
        "(decode.unknown_fields: ignore); _hoodie_is_deleted: true deletes in any case"
    ]
    sink.recover()
    result = sink.write(kafka_batch("orders", 0, records), InThisProcess())
    rows = (
        open_table(StorageLocation(str(tmp_path / "rows")))
        .scan(columns=["id"])
        .to_reader()
        .read_all()
    )
    assert (result.rejected, rows.to_pylist()) == (0, [{"id": "a"}])


@pytest.mark.parametrize("role", ["ordering", "partition_by", "record_key"])
@pytest.mark.parametrize(
    ("decode", "topic"),
    [({}, Topic({"id": "a", "_hoodie_x": 1})), (avro_of(_hoodie_x="int"), None)],
)
def test_reserved_field_that_the_table_needs_is_not_inferred_but_refused_by_name(
    tmp_path: Path, decode: Mapping[str, object], topic: Topic | None, role: str
) -> None:
    settings: dict[str, object] = {role: "_hoodie_x"}
    with pytest.raises(InvalidConfig, match="column '_hoodie_x' is not inferred"):
        opened(tmp_path, decode, topic, **settings)
    assert files(tmp_path) == {}


@pytest.mark.parametrize("role", ["ordering", "partition_by", "record_key"])
def test_untyped_field_that_the_table_needs_is_refused_by_name(tmp_path: Path, role: str) -> None:
    topic = Topic({"id": "a", "n": None})
    settings: dict[str, object] = {role: "n"}
    with pytest.raises(InvalidConfig, match="column 'n' is null or empty in all 1 sampled records"):
        opened(tmp_path, {}, topic, **settings)
    assert files(tmp_path) == {}


def test_topic_of_empty_records_gives_no_schema(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"schema \(null or empty: id\); declare"):
        opened(tmp_path, {}, Topic({"id": None}))


def test_a_table_in_local_time_is_opened_in_the_zone_that_the_pipeline_names(
    tmp_path: Path,
) -> None:
    with pytest.raises(InvalidConfig, match=r"timeline\.timezone=UTC; remove the setting"):
        opened(tmp_path, timeline_timezone="Asia/Tokyo")
    assert files(tmp_path) == {}
    opened(tmp_path)
    storage = open_storage(StorageLocation(str(tmp_path / "rows")))
    properties = read_properties(storage)
    in_local_time = {**properties.values, keys.TIMELINE_TIMEZONE: "LOCAL"}
    replace_properties(storage, properties, TableProperties(in_local_time), lambda: None)
    before = files(tmp_path)
    with pytest.raises(InvalidConfig, match=r"table\.timeline_timezone: America/New_York"):
        opened(tmp_path)
    assert files(tmp_path) == before
    opened(tmp_path, timeline_timezone="Asia/Tokyo")
