from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.changes import CHANGE_KIND, WRITTEN_COLUMNS, ChangeKind, DeleteMarker
from lakemark.model.meta_columns import (
    IS_DELETED,
    META_COLUMNS,
    OPERATION,
    PARTITION_PATH,
    RECORD_KEY,
)
from lakemark.model.written_columns import is_written
from transforms.decode.avro import AvroDecoder
from transforms.decode.avro_framing import PlainFraming
from transforms.decode.columns import ColumnsDecoder
from transforms.decode.decoder import EpochUnit
from transforms.decode.json import JsonDecoder
from transforms.decode.schema_policy import SchemaPolicy
from transforms.decode.stored_schema import StoredSchema
from transforms.record_converter import RecordConverter
from transforms.rejects import REJECTS_SCHEMA, Rejects
from transforms.schema_text import parse_schema
from transforms.tombstone_keys import TombstoneKey

COLUMNS = {"id": "string", "at": "timestamp", "tags": "array<string>"}
DECODER = JsonDecoder(parse_schema(COLUMNS))
KEYS = KeyGenerator(KeyGeneratorConfig(("id",)))
DEFAULT = "__HIVE_DEFAULT_PARTITION__"
AT = datetime(2024, 1, 1, tzinfo=UTC)


def batch(*values: str | None, key: bytes | None = b"k", **columns: list[object]) -> pa.Table:
    count = len(values)
    return pa.table(
        {
            "key": pa.array([key] * count, pa.binary()),
            "value": pa.array([v if v is None else v.encode() for v in values], pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([AT] * count, pa.timestamp("us", "Europe/Oslo")),
            **columns,
        }
    )


def test_changes_have_the_configured_columns() -> None:
    converter = RecordConverter(
        JsonDecoder(DECODER.schema, "_rescued"),
        KEYS,
        kafka_columns=("topic", "partition", "offset", "timestamp", "key"),
        kafka_prefix="_src_",
        topic="orders",
    )
    converter = pickle.loads(pickle.dumps(converter))
    prepared = converter(batch('{"id": "1", "tags": ["a", null], "more": 1}'))
    own = ["id", "at", "tags", "_rescued", "_src_topic", "_src_partition", "_src_offset"]
    own += ["_src_timestamp", "_src_key"]
    assert converter.table_schema.names == own
    assert prepared.changes.schema.names == [*META_COLUMNS, *own, CHANGE_KIND]
    (row,) = prepared.changes.select(own).to_pylist()
    assert tuple(row.values()) == ("1", None, ["a", None], '{"more":1}', "orders", 0, 0, AT, b"k")
    assert row["_src_timestamp"].utcoffset().total_seconds() == 0


def test_topic_of_a_record_overrides_the_configured_topic() -> None:
    converter = RecordConverter(DECODER, KEYS, kafka_columns=("topic",), topic="a")
    prepared = converter(batch('{"id":"1"}', "{", topic=["x", "y"]))
    assert prepared.changes.column("_kafka_topic").to_pylist() == ["x"]
    assert prepared.rejects.rows.column("topic").to_pylist() == ["y"]
    assert RecordConverter(DECODER, KEYS, topic="a")(batch("{")).rejects.rows[0].to_pylist() == [
        "a"
    ]


def test_reject_contains_the_original_bytes_and_the_reason() -> None:
    converter = RecordConverter(DECODER, KEYS, ("at",), topic="t")
    prepared = converter(batch('{"id": 1}', '{"id": ""}', '{"id": "1"}', None))
    assert prepared.changes.num_rows == 0
    assert prepared.rejects.rows.schema == REJECTS_SCHEMA
    rejects = prepared.rejects.rows.to_pylist()
    assert rejects[0] == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": AT,
        "key": b"k",
        "value": b'{"id": 1}',
        "reason": "column 'id': number 1 is not a string",
        "stage": "decode",
        "code": "invalid_value",
        "step": None,
        "column": "id",
        "schema_id": None,
        "attempts": 1,
        "replayed_in": None,
        "resolved_at": None,
        "rejected_at": None,
        "headers": None,
    }
    described = ("stage", "code", "column", "reason")
    tombstone = "the value is null, but no tombstone key is configured to find the row to delete"
    assert [tuple(reject[name] for name in described) for reject in rejects[1:]] == [
        ("key", "missing_key", "id", "the record key (id) is null or empty"),
        ("ordering", "missing_ordering", "at", "the ordering value (at) is null"),
        ("key", "null_value", None, tombstone),
    ]


@pytest.mark.parametrize(
    ("declared", "key", "expected"),
    [
        ("string", b' a\xc3\xa9"} ', ' aé"} '),
        ("bigint", b"-42", "-42"),
        ("date", b"2024-01-31", "2024-01-31"),
        ("decimal(5,2)", b"1.5", "1.50"),
        ("timestamp", b"1000", "1000000"),
        ("timestamp", b"1970-01-01T00:00:01Z", "1000000"),
        ("bigint", b"1.5", None),
        ("bigint", b'1,"id":2', None),
        ("bigint", b'1,"x":2', None),
        ("bigint", b"null", None),
        ("string", b"", None),
        ("string", b"\xff", None),
        ("date", b'2024-01-31"', None),
        ("date", b'2024-01-31","x":"', None),
    ],
)
def test_raw_tombstone_key_is_converted_to_the_type_of_the_key_column(
    declared: str, key: bytes, expected: str | None
) -> None:
    decoder = JsonDecoder(parse_schema({"id": declared, "note": "string"}))
    prepared = RecordConverter(decoder, KEYS, tombstone_key="raw")(batch(None, key=key))
    assert prepared.changes.column(RECORD_KEY).to_pylist() == ([expected] if expected else [])
    assert prepared.rejects.rows.column("stage").to_pylist() == ([] if expected else ["key"])


def test_json_tombstone_key_contains_nested_key_and_partition() -> None:
    decoder = JsonDecoder(parse_schema({"who": "struct<id:int>", "day": "date", "note": "string"}))
    keys = KeyGenerator(KeyGeneratorConfig(("who.id",), ("day",)))
    converter = RecordConverter(decoder, keys, tombstone_key="json")
    prepared = converter(batch(None, key=b'{"who": {"id": 7}, "day": "2024-01-31", "x": 1}'))
    (row,) = prepared.changes.to_pylist()
    assert (row[RECORD_KEY], row["_hoodie_partition_path"]) == ("7", "2024-01-31")
    assert (row["who"], row["day"], row[CHANGE_KIND]) == (None, None, ChangeKind.COMMIT_TIME_DELETE)
    (reject,) = converter(batch(None, key=b'{"who": {"id": 7}}')).rejects.rows.to_pylist()
    assert (reject["stage"], reject["code"]) == ("partition", "missing_partition")
    assert reject["reason"] == "Kafka key: partition field 'day' is missing"


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (b'{"id":"a","day":null,"at":{"place":"x"}}', f"{DEFAULT}/x"),
        (b'{"id":"a","date":null,"at":{"place":null}}', f"{DEFAULT}/{DEFAULT}"),
        (b'{"id":"a","day":null,"at":null}', f"{DEFAULT}/{DEFAULT}"),
        (b'{"id":"a","day":null,"at":{"place":null},"n":[Inf,-NaN]}', f"{DEFAULT}/{DEFAULT}"),
        (b'{"id":"a","at":{"place":"x"}}', None),
        (b'{"id":"day","at":{"place":"x","day":null}}', None),
        (b'{"id":"a","day":null,"at":{}}', None),
        (b'{"id":"a","day":null}', None),
    ],
)
def test_null_in_a_json_key_means_the_default_partition_but_an_absent_field_is_rejected(
    key: bytes, path: str | None
) -> None:
    schema = parse_schema({"id": "string", "day": "date", "at": "struct<place:string>"})
    decoder = JsonDecoder(schema, policy=SchemaPolicy(aliases={"date": "day"}))
    keys = KeyGenerator(KeyGeneratorConfig(("id",), ("day", "at.place")))
    prepared = RecordConverter(decoder, keys, tombstone_key="json")(batch(None, key=key))
    assert prepared.changes.column(PARTITION_PATH).to_pylist() == ([path] if path else [])
    stages = prepared.rejects.rows.column("stage").to_pylist()
    assert stages == ([] if path else ["partition"])


@pytest.mark.parametrize("has_field", [True, False])
def test_null_in_an_avro_key_means_the_default_partition_but_an_absent_field_is_rejected(
    has_field: bool,
) -> None:
    fields: list[dict[str, object]] = [{"name": "id", "type": "string"}]
    fields += [{"name": "day", "type": ["null", "string"]}] if has_field else []
    stored = StoredSchema(json.dumps({"type": "record", "name": "k", "fields": fields}))
    decoder = AvroDecoder(
        parse_schema({"id": "string", "day": "string"}), framing=PlainFraming(stored, stored)
    )
    keys = KeyGenerator(KeyGeneratorConfig(("id",), ("day",)))
    key = b"\x02a\x00" if has_field else b"\x02a"
    prepared = RecordConverter(decoder, keys, tombstone_key="avro")(batch(None, key=key))
    found = prepared.changes.column(PARTITION_PATH).to_pylist()
    assert found == ([DEFAULT] if has_field else [])
    assert len(prepared.rejects) == (0 if has_field else 1)


@pytest.mark.parametrize(("kind", "key"), [("raw", b"k"), ("json", b'{"id": "k", "more": 1}')])
def test_delete_by_key_needs_no_partition(kind: TombstoneKey, key: bytes) -> None:
    generator = KeyGenerator(KeyGeneratorConfig(("id",), ("at",)))
    decoder = JsonDecoder(parse_schema({"id": "string", "at": "string"}))
    converter = RecordConverter(decoder, generator, tombstone_key=kind, deletes_by_key=True)
    values = ('{"id":"a","at":"x/y","_hoodie_is_deleted":true}', '{"id":"a","at":"x/y"}', None)
    prepared = converter(batch(*values, key=key))
    rows = prepared.changes.select([RECORD_KEY, CHANGE_KIND]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("a", ChangeKind.COMMIT_TIME_DELETE),
        ("k", ChangeKind.COMMIT_TIME_DELETE),
    ]
    assert prepared.rejects.rows["offset"].to_pylist() == [1]


def test_ignored_tombstones_are_counted_by_partition_even_if_their_key_is_invalid() -> None:
    converter = RecordConverter(DECODER, KEYS, tombstone_key="json", ignores_tombstones=True)
    prepared = converter(batch(None, '{"id":"1"}', None, key=b"no object"))
    assert prepared.ignored == {0: 2}
    assert prepared.changes.column("id").to_pylist() == ["1"]
    assert not len(prepared.rejects)


@pytest.mark.parametrize(
    ("declared", "unit", "expected"),
    [
        ("timestamp", "ms", AT),
        ("bigint", "s", 1_704_067_200),
        ("bigint", "ns", 1_704_067_200 * 10**9),
        ("int", "s", 1_704_067_200),
    ],
)
def test_tombstone_is_ordered_by_the_timestamp_of_its_record(
    declared: str, unit: EpochUnit, expected: object
) -> None:
    decoder = JsonDecoder(parse_schema({"id": "string", "at": declared}), epoch_unit=unit)
    converter = RecordConverter(
        decoder, KEYS, ("at",), "raw", tombstone_ordering="record_timestamp"
    )
    (row,) = converter(batch(None)).changes.to_pylist()
    assert (row[RECORD_KEY], row["at"], row[CHANGE_KIND]) == ("k", expected, ChangeKind.DELETE)


@pytest.mark.parametrize("year", [2039, 1890])
def test_tombstone_is_rejected_if_its_timestamp_does_not_fit_the_ordering_column(year: int) -> None:
    decoder = JsonDecoder(parse_schema({"id": "string", "at": "int"}), epoch_unit="s")
    converter = RecordConverter(
        decoder, KEYS, ("at",), "raw", tombstone_ordering="record_timestamp"
    )
    times = pa.array([datetime(year, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    records = batch(None).set_column(4, "timestamp", times)
    assert converter(records).rejects.rows.column("stage").to_pylist() == ["ordering"]


def test_rescued_fields_are_kept_if_a_later_record_has_no_unknown_fields() -> None:
    decoder = JsonDecoder(DECODER.schema, "_rescued")
    prepared = RecordConverter(decoder, KEYS, keeps_absent_fields=True)(
        batch('{"id":"1","x":1,"at":null,"tags":null}', '{"id":"1","at":null,"tags":null}')
    )
    names = [*META_COLUMNS, *decoder.rows_schema.names]
    written = [
        dict(zip(names, is_written(bits, len(names)), strict=True))
        for bits in prepared.changes.column(WRITTEN_COLUMNS).to_pylist()
    ]
    assert all(written[0].values())
    assert [name for name, flag in written[1].items() if not flag] == ["_rescued"]


def test_records_of_two_topics_with_equal_offsets_are_sorted_by_topic() -> None:
    records = batch('{"id":"1"}', '{"id":"2"}', topic=["b", "a"])
    records = records.set_column(3, "offset", pa.array([5, 5], pa.int64()))
    for order in ([0, 1], [1, 0]):
        changes = RecordConverter(DECODER, KEYS)(records.take(order)).changes
        assert changes.column("id").to_pylist() == ["2", "1"]


def test_record_with_nan_as_ordering_value_is_rejected() -> None:
    decoder = JsonDecoder(parse_schema({"id": "string", "at": "double"}))
    prepared = RecordConverter(decoder, KEYS, ("at",))(batch('{"id":"1","at":NaN}'))
    assert prepared.rejects.rows.column("stage").to_pylist() == ["ordering"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"decoder": JsonDecoder(parse_schema({"id": "int", IS_DELETED: "int"}))}, "as boolean"),
        ({"decoder": JsonDecoder(parse_schema({"id": "int", OPERATION: "int"}))}, "as string"),
        ({"delete_marker": DeleteMarker("at", "d")}, "not timestamp"),
        ({"delete_marker": DeleteMarker("op.kind", "d")}, "'op.kind'"),
        (
            {
                "decoder": JsonDecoder(parse_schema({"id": "int", IS_DELETED: "boolean"})),
                "keeps_absent_fields": True,
            },
            "cannot read partial rows",
        ),
        ({"tombstone_ordering": "record_timestamp"}, "found none"),
        ({"tombstone_ordering": "record_timestamp", "ordering_fields": ("id",)}, "cannot hold"),
        (
            {
                "decoder": JsonDecoder(parse_schema({"id": "string", "at": "int"})),
                "tombstone_ordering": "record_timestamp",
                "ordering_fields": ("at",),
            },
            "does not fit the int column 'at' in ms",
        ),
        (
            {"tombstone_ordering": "tags", "ordering_fields": ("at",), "tombstone_key": "json"},
            "which is another column",
        ),
        (
            {"tombstone_ordering": "gone", "ordering_fields": ("at",), "tombstone_key": "raw"},
            "no field 'gone'",
        ),
        ({"ordering_fields": ("gone",)}, "'gone'"),
        ({"key_generator": KeyGenerator(KeyGeneratorConfig(("gone",)))}, "'gone'"),
        ({"key_generator": KeyGenerator(KeyGeneratorConfig(("id",), ("gone",)))}, "'gone'"),
        (
            {"decoder": JsonDecoder(DECODER.schema, "_kafka_key"), "kafka_columns": ("key",)},
            "twice",
        ),
        ({"decoder": JsonDecoder(DECODER.schema, RECORD_KEY)}, "Hudi itself adds"),
        (
            {
                "key_generator": KeyGenerator(KeyGeneratorConfig(("id",), ("at",))),
                "tombstone_key": "raw",
            },
            "rows are identified by id, at; use json",
        ),
    ],
)
def test_invalid_configuration_is_refused(overrides: dict[str, object], message: str) -> None:
    settings = {"decoder": DECODER, "key_generator": KEYS, **overrides}
    with pytest.raises(InvalidConfig, match=message):
        RecordConverter(**settings)  # type: ignore[arg-type]


def test_rejects_of_several_chunks_are_sorted_by_offset() -> None:
    parts = [RecordConverter(DECODER, KEYS)(batch("{", "{").slice(n)).rejects for n in (1, 0)]
    assert Rejects.concat(parts).rows.column("offset").to_pylist() == [0, 1, 1]
    assert Rejects.concat([]).rows.equals(Rejects.empty().rows)


def test_ambiguous_composite_record_keys_are_rejected() -> None:
    fields = {"a": "string", "b": "string"}
    converter = RecordConverter(
        JsonDecoder(parse_schema(fields)), KeyGenerator(KeyGeneratorConfig(("a", "b")))
    )
    rows = [("x", "y,b:z"), ("x,b:y", "z"), (None, "q"), ("__null__", "q"), ("a:b", "c,d")]
    prepared = converter(batch(*(json.dumps({"a": a, "b": b}) for a, b in rows)))
    expected = ["a:x,b:y,b:z", "a:__null__,b:q", "a:a:b,b:c,d"]
    assert prepared.changes.column(RECORD_KEY).to_pylist() == expected
    assert [row["offset"] for row in prepared.rejects.rows.to_pylist()] == [1, 3]
    assert all("ambiguous" in r["reason"] for r in prepared.rejects.rows.to_pylist())
    assert prepared.rejects.rows.column("code").to_pylist() == ["ambiguous_key"] * 2


def test_partition_that_cannot_name_a_folder_and_refused_deletes_have_codes() -> None:
    decoder = JsonDecoder(parse_schema({"id": "string", "day": "string"}))
    keys = KeyGenerator(KeyGeneratorConfig(("id",), ("day",)))
    inserting = RecordConverter(decoder, keys, inserts_only=True)
    deletes = '{"id":"1","day":"a","_hoodie_is_deleted":true}'
    rejects = inserting(batch('{"id":"1","day":"a/b"}', deletes, None)).rejects.rows
    assert rejects.column("code").to_pylist() == [
        "invalid_partition",
        "delete_refused",
        "delete_refused",
    ]
    assert rejects.column("column").to_pylist() == ["day", None, None]


def test_a_partition_with_a_dot_is_rejected_if_the_table_says_so() -> None:
    decoder = JsonDecoder(parse_schema({"id": "string", "day": "string"}))
    keys = KeyGenerator(KeyGeneratorConfig(("id",), ("day",)))
    rows = batch('{"id":"1","day":"a"}', '{"id":"1","day":"example.com"}', '{"id":"1"}')
    assert RecordConverter(decoder, keys)(rows).rejects.rows.num_rows == 0
    prepared = RecordConverter(decoder, keys, rejects_unindexable_paths=True)(rows)
    assert prepared.changes.num_rows == 2
    (reject,) = prepared.rejects.rows.to_pylist()
    assert (reject["offset"], reject["code"], reject["column"]) == (1, "invalid_partition", "day")
    assert "has a dot, but the table has a partitioned record index" in reject["reason"]


def test_a_partition_with_too_long_a_path_is_rejected_if_the_table_says_so() -> None:
    decoder = JsonDecoder(parse_schema({"id": "string", "day": "string"}))
    keys = KeyGenerator(KeyGeneratorConfig(("id",), ("day",)))
    days = ["a", "-" * 64, "-" * 63, "\u00e9" * 120]
    rows = batch(*(f'{{"id":"1","day":"{day}"}}' for day in days))
    assert RecordConverter(decoder, keys)(rows).rejects.rows.num_rows == 0
    rejects = RecordConverter(decoder, keys, rejects_unindexable_paths=True)(rows).rejects.rows
    assert rejects.column("offset").to_pylist() == [1, 3]
    assert rejects.column("code").to_pylist() == ["invalid_partition"] * 2
    assert all("is too long" in reason for reason in rejects.column("reason").to_pylist())


@pytest.mark.parametrize(
    ("kind", "stored", "text"),
    [
        ("timestamp", pa.array([1 << 60], pa.timestamp("us", "UTC")), "38504-"),
        ("date", pa.array([10_000_000], pa.int32()).view(pa.date32()), "29349-"),
        ("array<date>", pa.array([[10_000_000]], pa.list_(pa.int32())), "29349-"),
    ],
)
def test_a_row_of_a_file_with_a_time_that_python_lacks_is_rejected_as_json(
    kind: str, stored: pa.Array, text: str
) -> None:
    if pa.types.is_list(stored.type):
        stored = pa.ListArray.from_arrays(stored.offsets, stored.values.view(pa.date32()))
    converter = RecordConverter(ColumnsDecoder(parse_schema({"id": "string", "at": kind})), KEYS)
    rows = pa.StructArray.from_arrays([pa.array(["a"]), stored], names=["id", "at"])
    records = batch("").set_column(1, "value", pa.chunked_array([rows]))
    rejects = converter(records).rejects.rows.to_pylist()
    assert [one["code"] for one in rejects] == ["invalid_value"]
    value = json.loads(rejects[0]["value"])
    assert value["id"] == "a"
    assert text in str(value["at"])


def test_a_time_of_a_record_that_tables_lack_rejects_the_record_if_it_fills_a_column() -> None:
    times = pa.array([1_700_000_000_000_000_000, 1_700_000_000_000_000], pa.timestamp("us", "UTC"))
    records = batch('{"id": "a"}', '{"id": "b"}')
    records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", times)
    converted = RecordConverter(DECODER, KEYS, kafka_columns=("timestamp",))(records)
    assert converted.changes["id"].to_pylist() == ["b"]
    rejects = converted.rejects.rows
    assert rejects["code"].to_pylist() == ["invalid_value"]
    assert rejects["column"].to_pylist() == ["_kafka_timestamp"]
    assert RecordConverter(DECODER, KEYS)(records).changes.num_rows == 2
