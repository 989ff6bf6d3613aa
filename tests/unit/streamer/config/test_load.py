from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakemark.errors import StorageUnavailable
from streamer.config.errors import ConfigError
from streamer.config.kafka_source import StartingTime
from streamer.config.load import load
from streamer.config.pipeline import PipelineConfig
from streamer.config.render import json_schema, render_yaml

SMALLEST = """
source: {bootstrap_servers: "localhost:9092", topic: orders}
table: {path: /lake/orders, record_key: id}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.yaml"


def load_text(file: Path, text: str, *overrides: str) -> PipelineConfig:
    file.write_text(text, encoding="utf-8")
    return load(str(file), overrides)


def problems(file: Path, text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_text(file, text, *overrides)
    return str(raised.value).splitlines()


def test_the_smallest_pipeline_gets_defaults_that_serve(file: Path) -> None:
    config = load_text(file, SMALLEST)
    assert (config.name, config.table.name) == ("orders", "orders")
    assert config.kafka.starting_offsets == "earliest"
    assert config.kafka.on_offset_out_of_range == "fail"
    assert (config.table.type, config.table.merge_mode) == ("merge_on_read", "commit_time")
    assert config.dead_letters.path == "/lake/orders_dead_letters"
    assert config.decode.tombstone_key == "raw"
    assert config.run.mode == "continuous"


def test_an_ordering_makes_the_latest_event_win(file: Path) -> None:
    config = load_text(file, SMALLEST, "table.ordering=ts")
    assert (config.table.ordering, config.table.merge_mode) == (("ts",), "event_time")


def test_a_payload_is_resolved_into_what_it_means(file: Path) -> None:
    table = load_text(file, SMALLEST, "table.payload=PostgresDebeziumAvroPayload").table
    assert (table.merge_mode, table.ordering) == ("event_time", ("_event_lsn",))
    assert table.partial_update == "fill_unavailable"
    assert table.unavailable_value == "__debezium_unavailable_value"
    marker = table.delete_when
    assert marker is not None
    assert (marker.field, marker.value) == ("_change_operation_type", "d")


def test_a_merger_makes_the_mode_custom(file: Path) -> None:
    overrides = ("table.merger=shop.merging:Totals", "table.ordering=ts")
    assert load_text(file, SMALLEST, *overrides).table.merge_mode == "custom"


@pytest.mark.parametrize(
    "override", ["table.partition_by=[day]", "table.record_key=[id, line]"], ids=str
)
def test_where_a_raw_key_cannot_name_a_row_tombstones_hold_json(file: Path, override: str) -> None:
    assert load_text(file, SMALLEST, override).decode.tombstone_key == "json"


def test_all_problems_are_reported_with_path_and_accepted_values(file: Path) -> None:
    text = """
        source: {bootstrap_servers: "b:1", topic: t, starting_offsets: newest, topik: x,
                 max_records_per_batch: 0}
        table: {type: mor, buckets: many, record_key: [1]}
        compaction: 5
    """
    assert problems(file, text) == [
        "source.starting_offsets: 'newest': expected earliest, latest, a mapping of partitions to "
        "offsets, such as {0: 1200}, or {timestamp: TIME}",
        "source.max_records_per_batch: 0: should be greater than or equal to 1",
        "source.topik: unknown setting; did you mean topic? accepted: checkpoint_id, kind, "
        "bootstrap_servers, topic, topics, topic_pattern, topic_interval_s, starting_offsets, "
        "ending_offsets, max_records_per_batch, on_offset_out_of_range, on_missing_offsets, "
        "isolation_level, commit_group, consumer, metadata_columns, header_columns",
        "table.path: missing",
        "table.type: 'mor': expected 'merge_on_read' or 'copy_on_write'",
        "table.record_key.0: 1: should be a valid string",
        "table.buckets: 'many': should be a valid integer",
        "compaction: expected a section with enabled, after_commits, after, after_log_bytes, "
        "when, order, partitions, max_partitions, max_io_bytes, logs, mode, max_wait_s, "
        "backlog_commits, give_up_after_s",
    ]


_NO_VALUE_SHOWN = "--set source.consumer.sasl.jaas.config: expected a.b.c=value"


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("x", "--set x: expected a.b.c=value"),
        ("a..b=1", "--set a..b: expected a.b.c=value"),
        ("source.consumer.sasl.jaas.config: geheim", _NO_VALUE_SHOWN),
        ("source.consumer.sasl.jaas.config geheim", _NO_VALUE_SHOWN),
        ("source.consumer.sasl.jaas.config: user=geheim", _NO_VALUE_SHOWN),
        ("table.path.x=1", "table.path.x: --set: a part of this path is not a section"),
        (
            "table.buckets=[",
            "table.buckets: --set: the value is not valid YAML in line 1, column 2: expected the "
            "node content, but found '<stream end>'",
        ),
        (
            "name=2024-13-45",
            "name: --set: the value is not valid YAML in line 1, column 1: looks like a date or a "
            "number but is not valid; quote it",
        ),
        (
            "name=a\x01",
            "name: --set: the value is not valid YAML in line 1, column 2: the character U+0001 is "
            "not allowed",
        ),
        (
            "name=" + "[" * 5_000,
            "name: --set: the value is not valid YAML: it is nested too deep",
        ),
        ("table.buckets=0", "table.buckets: 0: should be greater than or equal to 1"),
    ],
    ids=lambda text: text[:24],
)
def test_wrong_override_is_reported_like_a_wrong_setting(
    file: Path, override: str, problem: str
) -> None:
    assert problems(file, SMALLEST, override) == [problem]


def test_overrides_take_yaml_and_names_with_dots(file: Path) -> None:
    config = load_text(
        file,
        SMALLEST,
        "source.starting_offsets.3=70",
        "source.consumer.security.protocol=SSL",
        "spark.conf.spark.ui.enabled=true",
        "run.retry.max_attempts=2",
        "run.retry.max_attempts=3",
    )
    assert config.kafka.starting_offsets == {3: 70}
    assert config.kafka.consumer["security.protocol"].resolve() == "SSL"
    assert config.spark.conf["spark.ui.enabled"].resolve() == "true"
    assert config.run.retry.max_attempts == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2", "in line 2, column 1: the name a is given twice"),
        ("? [a]\n: 1", "in line 1, column 3: a list or a mapping cannot be a name"),
        (
            "a: &a {}\nb:\n  <<: *a",
            "in line 3, column 3: << is not supported; repeat the settings",
        ),
        ("a: ä\nb: \x07", "in line 2, column 4: the character U+0007 is not allowed"),
        (
            "a: 2024-13-45",
            "line 1, column 4: looks like a date or a number but is not valid; quote it",
        ),
        (
            "a: 2024-01-01 00:00:00 +99:99",
            "looks like a date or a number but is not valid; quote it",
        ),
        ("a: !!int geheim", "looks like a date or a number but is not valid; quote it"),
        ("a: !!bool geheim", "looks like a date or a number but is not valid; quote it"),
        ("a: " + "9" * 5_000, "looks like a date or a number but is not valid; quote it"),
        ("a: " + "[" * 5_000, "is not valid YAML: it is nested too deep"),
        ("a: !geheim", "constructor for the tag; quote a text that begins with !, & or *"),
        ("a: *geheim", "found undefined alias; quote a text that begins with !, & or *"),
        ("geheim: &a x\nb: !c!d y", "found undefined tag; quote a text that begins with !, & or *"),
        ("a: [geheim", "in line 1, column 11: expected ',' or ']', but got '<stream end>'"),
        (
            "a: [{rule: b in ('c', 'd')}]",
            "expected ',' or '}', but got '<scalar>'; quote a text that "
            "contains a comma, a colon, a bracket or a brace",
        ),
        (
            "a: struct<b: int>: c",
            "mapping values are not allowed here; quote a text that contains a comma, a colon, a "
            "bracket or a brace",
        ),
        ("- source", "has no settings; a pipeline needs at least source and table"),
        ("", "has no settings; a pipeline needs at least source and table"),
    ],
    ids=lambda text: text[:24],
)
def test_a_file_that_is_no_pipeline(file: Path, text: str, problem: str) -> None:
    (reported,) = problems(file, text)
    assert reported.endswith(problem)
    assert reported.startswith(str(file))
    assert "geheim" not in reported


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/p\.yaml: No such file"):
        load("/nowhere/p.yaml")


def test_a_store_that_does_not_answer_is_no_fault_of_the_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StorageUnavailable, match=r"p\.yaml"):
        load("s3://pipelines/p.yaml")


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("source.metadata_columns=[offset, offset]", "['offset', 'offset']: expected names of"),
        ("source.starting_offsets={0: -1}", "{0: -1}: expected earliest, latest, a mapping"),
        ("source.starting_offsets={0: geheim}", "a mapping: expected earliest, latest"),
        ("source.starting_offsets={0: 9223372036854775808}", "{0: 9223372036854775808}: expected"),
        (
            "source.starting_offsets={timestamp: 9223372036854775808}",
            "timestamp: expected a time with",
        ),
        (
            "source.max_records_per_batch=9223372036854775808",
            "9223372036854775808: should be less than or equal to 9223372036854775807",
        ),
        ("table.path=~nobody-of-that-name/t", "this user does not exist on this machine"),
    ],
)
def test_a_value_that_cannot_be_is_shown(file: Path, setting: str, problem: str) -> None:
    (reported,) = problems(file, SMALLEST, setting)
    assert reported.startswith(f"{setting.partition('=')[0]}: ")
    assert problem in reported


def test_path_in_the_home_folder_is_expanded(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    config = load_text(file, SMALLEST, "table.path=~/lake/orders")
    assert config.table.path == "/home/ann/lake/orders"
    assert config.dead_letters.path == "/home/ann/lake/orders_dead_letters"


def test_a_pipeline_is_read_from_any_store(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(SMALLEST)
    assert load(f"file://{tmp_path}/pipeline.yaml").name == "orders"


def test_avro_schema_file_next_to_the_pipeline_becomes_columns(file: Path) -> None:
    schema = {
        "type": "record",
        "name": "order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        ],
    }
    file.with_name("order.avsc").write_text(json.dumps(schema))
    config = load_text(file, SMALLEST, "decode.schema={avro: order.avsc}")
    assert config.decode.columns == {"id": "bigint", "at": "timestamp", "tags": "array<string>"}


@pytest.mark.parametrize("content", ["{", '"string"', '{"type": "record"}'])
def test_a_file_that_is_no_avro_schema_is_named(file: Path, content: str) -> None:
    file.with_name("order.avsc").write_text(content)
    (reported,) = problems(file, SMALLEST, "decode.schema={avro: order.avsc}")
    assert reported.startswith("decode.schema.avro: ")


def test_the_resolved_pipeline_loads_again_as_the_same(file: Path) -> None:
    config = load_text(
        file,
        SMALLEST,
        "source.starting_offsets={0: 5}",
        "decode.schema={id: string, b: 'decimal(4,2)'}",
    )
    assert load_text(file, render_yaml(config)) == config


@pytest.mark.parametrize("override", ["table.kind=insert", "decode.kind=json"])
def test_setting_without_an_effect_is_unknown(file: Path, override: str) -> None:
    file.write_text(
        "source: {bootstrap_servers: 'a:1', topic: t}\ntable: {path: p, record_key: id}\n"
    )
    with pytest.raises(ConfigError, match="unknown setting"):
        load(str(file), [override])


def test_file_of_a_merger_is_relative_to_the_folder_of_the_pipeline(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    for given, expected in {
        "totals.py:Totals": f"{file.parent}/totals.py:Totals",
        "/lib/totals.py:Totals": "/lib/totals.py:Totals",
        "~/totals.py:Totals": "/home/ann/totals.py:Totals",
        "shop.mergers:Totals": "shop.mergers:Totals",
    }.items():
        config = load_text(file, SMALLEST, f'table.merger="{given}"')
        assert config.table.merger == expected


def test_the_schema_for_editors_is_the_one_in_the_docs() -> None:
    published = Path(__file__).parents[4] / "docs" / "pipeline.schema.json"
    assert json.loads(published.read_text()) == json_schema()


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("table.buckets=true", "table.buckets: True: should be a valid integer"),
        ("table.buckets=4.0", "table.buckets: 4.0: should be a valid integer"),
        ("table.buckets='4'", "table.buckets: '4': should be a valid integer"),
        ("compaction.after_commits=true", "should be a valid integer"),
        ("compaction.after=1", "compaction.after: 1: should be a valid string"),
        ("compaction.after=1 hour", "such as 30d, not '1 hour'"),
        ("compaction.after=0h", "expected more than no time"),
        ("compaction.partitions=regex:(", "is not a regular expression"),
        ("table.hive_style=1", "table.hive_style: 1: should be a valid boolean"),
        ("compaction.enabled='yes'", "compaction.enabled: 'yes': should be a valid boolean"),
        ("run.trigger_interval_s=true", "run.trigger_interval_s: True: should be a valid number"),
        ("table.record_key=[1]", "table.record_key.0: 1: should be a valid string"),
        ("decode.schema={1: string}", "the name of each column must be text"),
        ("table.timeline_timezone=Mars/Olympus", "'Mars/Olympus', which names no time zone"),
    ],
)
def test_a_value_has_the_type_of_its_setting(file: Path, override: str, problem: str) -> None:
    (reported,) = problems(file, SMALLEST, override)
    assert problem in reported


def test_a_whole_number_of_seconds_and_lists_are_what_they_seem(file: Path) -> None:
    config = load_text(
        file, SMALLEST, "run.trigger_interval_s=2", "source.metadata_columns=[offset]"
    )
    assert (config.run.trigger_interval_s, config.kafka.metadata_columns) == (2.0, ("offset",))


@pytest.mark.parametrize("given", ["foo", "foo:", "foo:0", "foo:70000", "a:1,b", "a b:1", "a:1,"])
def test_brokers_are_named_with_their_ports(file: Path, given: str) -> None:
    assert problems(file, SMALLEST, f"source.bootstrap_servers='{given}'") == [
        f"source.bootstrap_servers: '{given}': expected host:port, or several separated by commas; "
        "a port is a number from 1 to 65535"
    ]


@pytest.mark.parametrize(
    ("given", "shown"), [("[a:1, b:2]", "['a:1', 'b:2']"), ("['user:geheim@host:9092']", "***")]
)
def test_list_of_brokers_is_refused_with_the_form_to_use(
    file: Path, given: str, shown: str
) -> None:
    assert problems(file, SMALLEST, f"source.bootstrap_servers={given}") == [
        f"source.bootstrap_servers: {shown}: expected one text with all brokers, as "
        "host:port,host:port, and not a list"
    ]


@pytest.mark.parametrize("given", ["orders,payments", "orders.*", "orders|payments"])
def test_list_or_pattern_of_topics_is_refused_with_the_reason(file: Path, given: str) -> None:
    assert problems(file, SMALLEST, f"source.topic='{given}'") == [
        f"source.topic: '{given}': expected the name of one topic; topics accepts a list, "
        "and topic_pattern accepts a pattern"
    ]


@pytest.mark.parametrize(
    "given",
    [
        "user:geheim@host:9092",
        "host:9092,user:geheim@other:9092",
        "user:ge heim, 4711@host:9092",
        "SASL_SSL://user:geheim@host:9092",
        "geheim@host:9092",
    ],
)
def test_credentials_among_the_brokers_are_refused_and_not_printed(file: Path, given: str) -> None:
    (problem,) = problems(file, SMALLEST, f"source.bootstrap_servers='{given}'")
    assert problem.startswith(
        "source.bootstrap_servers: ***: expected host:port without user and password"
    )
    assert "source.consumer" in problem
    assert "heim" not in problem


@pytest.mark.parametrize(
    "setting", ["source.bootstrap_servers=[{}]", "source.topic='{}'", "source='{}'"]
)
def test_credentials_in_the_wrong_setting_are_not_printed(file: Path, setting: str) -> None:
    (problem,) = problems(file, SMALLEST, setting.format("user:geheim@host:9092"))
    assert "geheim" not in problem


@pytest.mark.parametrize(
    "given", ["a-b.c_d:1", "10.0.0.1:9092, b:65535", "[::1]:9092", "SSL://a:1"]
)
def test_brokers_are_named_as_kafka_takes_them(file: Path, given: str) -> None:
    assert (
        load_text(file, SMALLEST, f"source.bootstrap_servers='{given}'").kafka.bootstrap_servers
        == given
    )


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("ftp://x", "'ftp' is not a kind of store; supported are abfs, abfss, az, file, gs,"),
        ("s3://", "a s3:// URL must begin with a bucket or container"),
        ("s3://bucket/../x", "not a path inside the table: '../x'"),
        ("s3://AKIA:geheim@bucket/x", "keys in a s3:// URL would be printed"),
        ("s3//AKIA:geheim@bucket/x", "for a URL, write s3://…"),
        ("s3:/bucket/x", "for a URL, write s3://…"),
    ],
)
@pytest.mark.parametrize("setting", ["table.path", "dead_letters.path"])
def test_unsupported_location_is_reported_once(
    file: Path, setting: str, path: str, reason: str
) -> None:
    (reported,) = problems(file, SMALLEST, f"{setting}={path}")
    assert reported.startswith(f"{setting}: ")
    assert reason in reported
    assert "geheim" not in reported


@pytest.mark.parametrize("given", ["", "null", "5", "[order.avsc]"])
def test_a_schema_file_without_a_path_is_asked_for_one(file: Path, given: str) -> None:
    (reported,) = problems(file, SMALLEST, f"decode.schema={{avro: {given}}}")
    assert reported.startswith(
        "decode.schema.avro: expected the path or the URL of an Avro schema file"
    )


def test_broken_url_of_a_pipeline_or_schema_file_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="write s3://"):
        load("s3//bucket/pipeline.yaml")
    (reported,) = problems(file, SMALLEST, "decode.schema={avro: 's3:/bucket/order.avsc'}")
    assert reported.startswith("decode.schema.avro: ")
    assert "write s3://" in reported


def test_decimal_without_scale_is_refused(file: Path) -> None:
    (reported,) = problems(file, SMALLEST, "decode.schema={id: string, amount: decimal}")
    assert "column 'amount'" in reported
    assert "such as decimal(18, 2)" in reported


def test_checking_a_pipeline_needs_no_spark() -> None:
    program = "import sys, streamer.commands.validate; print({'pyspark'} & sys.modules.keys())"
    reported = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert reported.stdout == "set()\n"


@pytest.mark.parametrize(
    "given",
    ["2026-01-31T06:00:00.250Z", "'2026-01-31T07:00:00.25+01:00'", "1769839200250"],
)
def test_a_moment_to_start_at_is_resolved_to_milliseconds(file: Path, given: str) -> None:
    config = load_text(file, SMALLEST, f"source.starting_offsets={{timestamp: {given}}}")
    assert config.kafka.starting_offsets == StartingTime(timestamp=1_769_839_200_250)
    again = load_text(file, render_yaml(config))
    assert again.kafka.starting_offsets == config.kafka.starting_offsets


@pytest.mark.parametrize("given", ["2026-01-31T06:00:00", "2026-01-31", "now", "-5", "1960-01-01"])
def test_time_without_a_zone_is_refused(file: Path, given: str) -> None:
    (problem,) = problems(file, SMALLEST, f"source.starting_offsets={{timestamp: {given}}}")
    assert "timestamp: expected a time with its zone, such as 2026-01-31T06:00:00Z" in problem
