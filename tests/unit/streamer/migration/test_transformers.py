"""Schema files, transformers and the sources of Debezium become columns and steps that run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamer.config.change_events import DebeziumDecodeConfig
from streamer.config.load import load_text
from streamer.migration.translation import Translation
from tests.unit.streamer.migration.jobs import (
    ORDER_SCHEMA,
    PARTITION,
    REGISTRY_URL,
    SCHEMA_FILE,
    SCHEMAS,
    SOURCES,
    chain,
    missing,
    schema_file,
    settings,
    translated,
)

SQL = "hoodie.streamer.transformer.sql"
SQL_FILE = f"{SQL}.file"
TARGET_FILE = "hoodie.streamer.schemaprovider.target.schema.file"
DESERIALIZER = "hoodie.streamer.source.kafka.value.deserializer.class"
FILE_PROVIDER = f"{SCHEMAS}FilebasedSchemaProvider"
REGISTRY_PROVIDER = f"{SCHEMAS}SchemaRegistryProvider"


def with_transformers(folder: Path, transformers: str, **properties: str) -> Translation:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return translated(
        {SCHEMA_FILE: str(schema_file(folder)), **named},
        schemaprovider_class=FILE_PROVIDER,
        transformer_class=transformers,
    )


def rows_after(found: Translation, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows after the steps of the printed pipeline."""
    assert found.text is not None, found.problems
    transforms = load_text(found.text).transform_chain()
    assert transforms is not None
    table = pa.Table.from_pylist(rows, schema=transforms.input_schema)
    made: list[dict[str, Any]] = transforms.apply(table).rows.to_pylist()
    return made


def rows_of_events(found: Translation, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of events after the steps of the printed pipeline."""
    assert found.config is not None, found.problems
    columns = found.config.decode.declared()
    assert columns is not None
    values = pa.array([json.dumps(one).encode() for one in events])
    decoded = found.config.decode.decoder(columns).decode(values)
    assert not decoded.reasons
    return rows_after(found, decoded.rows.to_pylist())


ORDER = {"id": "1", "region": "n", "ts": 5, "amount": 2.5, "place": {"city": "Rome"}}


def test_schema_file_declares_the_columns(tmp_path: Path) -> None:
    file = schema_file(tmp_path)
    properties = {SCHEMA_FILE: f"file://{file}"}
    found = translated(properties, schemaprovider_class=FILE_PROVIDER)
    assert settings(found)["decode.schema"] == {"avro": str(file)}
    assert "decode.unknown_fields" not in settings(found)
    assert found.config is not None and found.is_complete
    assert set(found.config.decode.columns) == set(ORDER)


def test_schema_file_that_cannot_be_read_makes_the_translation_incomplete() -> None:
    properties = {SCHEMA_FILE: "/none/order.avsc"}
    found = translated(properties, schemaprovider_class=FILE_PROVIDER)
    assert "cannot read /none/order.avsc" in missing(found, changes_rows=True)[SCHEMA_FILE]


@pytest.mark.parametrize("source", ["Json", "Avro"])
def test_source_schema_replaces_a_version_of_a_registry(tmp_path: Path, source: str) -> None:
    properties = {REGISTRY_URL: "http://r/subjects/o/versions/3"}
    kind = {
        "source_class": f"{SOURCES}{source}KafkaSource",
        "schemaprovider_class": REGISTRY_PROVIDER,
    }
    found = translated(properties, schema_file(tmp_path), **kind)
    assert found.is_complete, missing(found, changes_rows=True)
    assert found.config is not None and found.config.decode.unknown_fields == "ignore"
    without = translated(properties, **kind)
    remedies = missing(without, changes_rows=True)
    assert "--source-schema" in remedies["--schemaprovider-class"]
    assert without.config is not None and without.config.decode.unknown_fields == "ignore"


@pytest.mark.parametrize(
    ("source", "transformers", "evolves"),
    [
        ("Avro", None, True),
        ("Avro", chain("FlatteningTransformer"), False),
        ("Json", None, False),
    ],
)
def test_later_versions_of_a_registry_add_columns_or_are_reported(
    tmp_path: Path, source: str, transformers: str | None, evolves: bool
) -> None:
    found = translated(
        {REGISTRY_URL: "http://r/subjects/o/versions/latest"},
        schema_file(tmp_path),
        source_class=f"{SOURCES}{source}KafkaSource",
        schemaprovider_class=REGISTRY_PROVIDER,
        transformer_class=transformers,
    )
    assert found.is_complete is evolves
    assert found.config is not None
    assert (found.config.decode.unknown_fields == "evolve") is evolves
    if not evolves:
        remedy = missing(found, changes_rows=True)["--schemaprovider-class"]
        assert "follows the latest version" in remedy


@pytest.mark.parametrize("has_file", [True, False])
def test_records_without_schema_id_need_a_schema_file(tmp_path: Path, has_file: bool) -> None:
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    file = schema_file(tmp_path) if has_file else None
    source = f"{SOURCES}AvroKafkaSource"
    found = translated({DESERIALIZER: deserializer}, file, source_class=source)
    assert found.is_complete is has_file
    assert (settings(found).get("decode.wire_format") == "plain") is has_file


WITH_DEFAULTS = """{"type": "record", "name": "order", "fields": [
  {"name": "id", "type": "string"},
  {"name": "ts", "type": "long"},
  {"name": "region", "type": ["null", "string"], "default": null},
  {"name": "state", "type": "string", "default": ""},
  {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "line",
    "fields": [{"name": "n", "type": "int", "default": 1}]}}},
  {"name": "place", "type": ["null", {"type": "record", "name": "place", "fields": [
    {"name": "city", "type": "string", "default": "Rome"}]}], "default": null}]}"""


@pytest.mark.parametrize(
    ("deserializer", "schema", "fields"),
    [
        ("KafkaAvroSchemaDeserializer", WITH_DEFAULTS, "state, lines.n, place.city"),
        ("KafkaAvroSchemaDeserializer", None, "--source-schema"),
        ("KafkaAvroSchemaDeserializer", ORDER_SCHEMA, None),
        ("KafkaAvroDeserializer", WITH_DEFAULTS, None),
    ],
)
def test_defaults_of_the_schema_of_the_provider_are_reported(
    tmp_path: Path, deserializer: str, schema: str | None, fields: str | None
) -> None:
    is_apache = deserializer == "KafkaAvroSchemaDeserializer"
    package = "org.apache.hudi.utilities.deser" if is_apache else "io.confluent.kafka.serializers"
    found = translated(
        {
            DESERIALIZER: f"{package}.{deserializer}",
            REGISTRY_URL: "http://r/subjects/o/versions/latest",
        },
        schema_file(tmp_path, schema) if schema else None,
        source_class=f"{SOURCES}AvroKafkaSource",
        schemaprovider_class=REGISTRY_PROVIDER,
    )
    assert found.is_complete is (fields is None), missing(found, changes_rows=True)
    if fields is not None:
        assert fields in missing(found, changes_rows=True)[DESERIALIZER]


def test_chain_of_transformers_becomes_steps_in_their_order(tmp_path: Path) -> None:
    transformers = (
        "one:org.apache.hudi.utilities.transform.SqlQueryBasedTransformer,"
        "two:org.apache.hudi.utilities.transform.FlatteningTransformer,"
        "three:org.apache.hudi.utilities.transform.SqlQueryBasedTransformer"
    )
    found = with_transformers(
        tmp_path,
        transformers,
        hoodie_deltastreamer_transformer_sql_one="select * from <SRC> a where a.amount > 1",
        hoodie_streamer_transformer_sql_three="SELECT id, `region`, ts, place_city FROM <SRC>;",
    )
    assert found.is_complete, missing(found, changes_rows=True)
    cheap = {**ORDER, "id": "2", "amount": 0.5}
    assert rows_after(found, [ORDER, cheap]) == [
        {"id": "1", "region": "n", "ts": 5, "place_city": "Rome"}
    ]


def test_query_of_a_file_becomes_a_step(tmp_path: Path) -> None:
    query = tmp_path / "orders.sql"
    query.write_text("-- orders\nselect id, region, ts,\n amount * 2 as twice\nfrom <SRC>;\n")
    transformers = chain("SqlFileBasedTransformer", "AWSDmsTransformer")
    found = with_transformers(
        tmp_path, transformers, hoodie_streamer_transformer_sql_file=str(query)
    )
    assert found.is_complete, missing(found, changes_rows=True)
    expected = {"id": "1", "region": "n", "ts": 5, "twice": 5.0, "Op": ""}
    assert rows_after(found, [ORDER]) == [expected]


def test_comments_and_literals_of_a_query_file_keep_their_text(tmp_path: Path) -> None:
    query = tmp_path / "orders.sql"
    query.write_text(
        "/* orders; /* all */ */\n"
        "select id, ts, 'New  York; -- `x`' as region -- the key's columns; not all\n"
        "\n"
        "from <SRC>  -- of the source\n"
        "where amount > 1.0 and `place`.city <> 'a\n b';\n-- the end;\n"
    )
    found = with_transformers(
        tmp_path, chain("SqlFileBasedTransformer"), hoodie_streamer_transformer_sql_file=str(query)
    )
    assert found.is_complete, missing(found, changes_rows=True)
    assert found.text is not None
    assert "    query: |-\n      select id, ts, 'New  York; -- `x`' as region --" in found.text
    cheap = {**ORDER, "id": "2", "amount": 0.5}
    elsewhere = {**ORDER, "id": "3", "place": {"city": "a\n b"}}
    assert rows_after(found, [ORDER, cheap, elsewhere]) == [
        {"id": "1", "ts": 5, "region": "New  York; -- `x`"}
    ]


@pytest.mark.parametrize("count", [0, 2])
def test_query_file_needs_one_statement(tmp_path: Path, count: int) -> None:
    query = tmp_path / "orders.sql"
    query.write_text("-- orders;\n" + "select 'a;' from <SRC>; /* ; */\n" * count)
    found = with_transformers(
        tmp_path, chain("SqlFileBasedTransformer"), hoodie_streamer_transformer_sql_file=str(query)
    )
    listed = missing(found, changes_rows=True)[SQL_FILE]
    assert f"orders.sql has {count} statements" in listed


@pytest.mark.parametrize(
    "query",
    [
        "select id, region, ts, 'it''s' as c from <SRC>",
        "select id, region, ts, concat(amount, 'x') as c from <SRC>",
        "select id, region, ts, amount / 2 as half from <SRC>",
        "select id, region, cast(ts as int) as ts from <SRC>",
        "select id, region, ts from <SRC> where id = 5",
        "select id, region, ts from <SRC> where `ts` between '1' and '2'",
        "select id, region, ts from <SRC> a where a.ts not in (1, '2')",
        "select id, region, ts from <SRC> where place.city > '5' and ts >= '5'",
        "select id, region, ts - 1 as ts from <SRC>",
        "select id, region, ts, 2 * 3 as six from <SRC>",
        "select id, region, ts, region || ts as both from <SRC>",
        "select id, region, ts ^ 2 as ts from <SRC>",
    ],
)
def test_query_with_another_meaning_in_duckdb_makes_the_translation_incomplete(
    tmp_path: Path, query: str
) -> None:
    found = with_transformers(
        tmp_path, chain("SqlQueryBasedTransformer"), hoodie_streamer_transformer_sql=query
    )
    assert found.text is not None and "step: sql" in found.text
    assert "DuckDB instead of Spark" in missing(found, changes_rows=True)[SQL]


@pytest.mark.parametrize(
    "query",
    [
        "select * from <SRC> where amount > -1 and ts <> 5 and id != 'x'",
        "select a.*, amount * 2 - amount as more from <SRC> a",
        "select id, ts, `region` || '-' || place.city as region from <SRC> -- ts + 1",
        "select * from <SRC> where id in ('1', '2') and (ts between 1 and 9 or region = null)",
    ],
)
def test_query_with_the_same_meaning_in_duckdb_is_complete(tmp_path: Path, query: str) -> None:
    found = with_transformers(
        tmp_path, chain("SqlQueryBasedTransformer"), hoodie_streamer_transformer_sql=query
    )
    assert found.is_complete, (found.problems, missing(found, changes_rows=True))


def test_operators_on_columns_of_other_steps_are_listed(tmp_path: Path) -> None:
    found = with_transformers(
        tmp_path,
        chain("FlatteningTransformer", "SqlQueryBasedTransformer"),
        hoodie_streamer_transformer_sql="select * from <SRC> where id = 'x'",
    )
    assert "results of = on" in missing(found, changes_rows=True)[SQL]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select id, region, ts, current_date as d from <SRC>", "current_date is not always"),
        ("select id, region, ts, from_unixtime(ts) as t from <SRC>", "from_unixtime"),
        ("select region as id, region, max(ts) as ts from <SRC> group by region", "group by"),
    ],
)
def test_query_that_cannot_run_is_omitted_and_listed(
    tmp_path: Path, query: str, reason: str
) -> None:
    found = with_transformers(
        tmp_path, chain("SqlQueryBasedTransformer"), hoodie_streamer_transformer_sql=query
    )
    assert found.text is not None and "transform" not in found.text
    listed = [one for one in found.outcomes if SQL in one.names]
    assert any(reason in str(one) for one in listed)
    assert not found.is_complete


@pytest.mark.parametrize("is_same", [True, False])
def test_target_schema_must_have_the_columns_of_the_rows(tmp_path: Path, is_same: bool) -> None:
    target = tmp_path / "target.avsc"
    schema = json.loads(schema_file(tmp_path).read_text())
    schema["fields"] = schema["fields"] if is_same else schema["fields"][:3]
    target.write_text(json.dumps(schema))
    found = translated(
        {SCHEMA_FILE: str(schema_file(tmp_path)), TARGET_FILE: str(target)},
        schemaprovider_class=FILE_PROVIDER,
    )
    assert found.is_complete is is_same
    assert (TARGET_FILE in missing(found, changes_rows=True)) is not is_same


def test_target_schema_is_listed_even_if_there_is_no_pipeline() -> None:
    found = translated({TARGET_FILE: "/none/target.avsc"}, source_class="com.example.Own")
    assert found.text is None
    assert "cannot read" in missing(found, changes_rows=True)[TARGET_FILE]


def test_text_column_may_order_rows_as_in_the_job(tmp_path: Path) -> None:
    properties = {SCHEMA_FILE: str(schema_file(tmp_path))}
    for column, is_text in (("region", True), ("ts", False)):
        found = translated(
            properties, schemaprovider_class=FILE_PROVIDER, source_ordering_fields=column
        )
        assert found.config is not None
        assert found.config.table.allow_text_ordering is is_text


ROW = {"type": "record", "name": "row", "fields": [{"name": "id", "type": "long"}]}
POSTGRES = ("schema", "txId", "lsn", "xmin")
MYSQL = ("file", "pos", "row")


def events(source_fields: tuple[str, ...]) -> str:
    """Return the schema of change events."""
    texts = ("name", "schema", "file")
    fields = [
        {"name": name, "type": "string" if name in texts else "long"}
        for name in ("name", "ts_ms", "db_id", *source_fields)
    ]
    source = {"type": "record", "name": "source", "fields": fields}
    return json.dumps(
        {
            "type": "record",
            "name": "event",
            "fields": [
                {"name": "before", "type": ["null", ROW]},
                {"name": "after", "type": ["null", "row"]},
                {"name": "source", "type": source},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": "long"},
            ],
        }
    )


@pytest.mark.parametrize(
    ("database", "fields", "own"),
    [
        (
            "Postgres",
            POSTGRES,
            {
                "db_schema_source_partition": "x",
                "_event_tx_id": 3,
                "_event_lsn": 3,
                "_event_xmin": 3,
            },
        ),
        (
            "Mysql",
            MYSQL,
            {
                "_event_bin_file": "x",
                "_event_pos": 3,
                "_event_row": 3,
                "_event_seq": "x.3",
            },
        ),
    ],
)
def test_debezium_source_of_json_gives_the_columns_of_hoodiestreamer(
    tmp_path: Path, database: str, fields: tuple[str, ...], own: dict[str, object]
) -> None:
    deserializer = "org.apache.kafka.common.serialization.StringDeserializer"
    payload = "MySqlDebeziumAvroPayload" if database == "Mysql" else "PostgresDebeziumAvroPayload"
    found = translated(
        {DESERIALIZER: deserializer, PARTITION: ""},
        schema_file(tmp_path, events(fields)),
        source_class=f"{SOURCES}debezium.{database}DebeziumSource",
        payload_class=f"org.apache.hudi.common.model.debezium.{payload}",
    )
    assert found.is_complete, missing(found, changes_rows=True)
    texts = ("name", "schema", "file")
    values = {name: "x" if name in texts else 3 for name in fields}
    source = {"name": "server", "ts_ms": 1, "db_id": 9, **values}
    event = {"before": {"id": 7}, "after": None, "source": source, "op": "d", "ts_ms": 2}
    assert rows_of_events(found, [event]) == [
        {
            "id": 7,
            "_change_operation_type": "d",
            "_upstream_event_processed_ts_ms": 2,
            "db_shard_source_partition": "server",
            "_event_origin_ts_ms": 1,
            **own,
        }
    ]


def test_debezium_source_of_avro_keeps_its_registry_and_its_numbers(tmp_path: Path) -> None:
    found = translated(
        {"schema.registry.url": "http://registry:8081", PARTITION: ""},
        schema_file(tmp_path, events(POSTGRES)),
        source_class=f"{SOURCES}debezium.PostgresDebeziumSource",
        payload_class="org.apache.hudi.common.model.debezium.PostgresDebeziumAvroPayload",
    )
    assert found.is_complete, missing(found, changes_rows=True)
    assert found.config is not None
    decode = found.config.decode
    assert isinstance(decode, DebeziumDecodeConfig)
    assert decode.schema_registry is not None
    assert (decode.database, decode.typed_times) == ("postgres", False)
    assert found.config.table.ordering == ("_event_lsn",)
    columns = found.config.row_columns()
    assert columns is not None
    assert {"id", "_event_lsn", "_change_operation_type"} <= {*columns.names}
    assert "_position" not in columns.names
