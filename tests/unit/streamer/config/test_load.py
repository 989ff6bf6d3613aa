from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import load, validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.printed import json_schema, resolved_yaml

SMALLEST = """
source: {bootstrap: "localhost:9092", topic: orders}
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
    assert config.source.starting == "earliest"
    assert config.source.fail_on_data_loss
    assert (config.table.type, config.table.merge_mode) == ("merge_on_read", "commit_time")
    assert config.dead_letters.path == "/lake/orders_dead_letters"
    assert config.decode.tombstone_key == "raw"
    assert config.run.mode == "continuous"


def test_an_ordering_makes_the_latest_event_win(file: Path) -> None:
    config = load_text(file, SMALLEST, "table.ordering=ts")
    assert (config.table.ordering, config.table.merge_mode) == (("ts",), "event_time")


@pytest.mark.parametrize(
    "override", ["table.partition_by=[day]", "table.record_key=[id, line]"], ids=str
)
def test_where_a_raw_key_cannot_name_a_row_tombstones_hold_json(file: Path, override: str) -> None:
    assert load_text(file, SMALLEST, override).decode.tombstone_key == "json"


def test_every_problem_is_told_at_once_with_its_path_and_what_is_accepted(file: Path) -> None:
    text = """
        source: {bootstrap: b, topic: t, starting: newest, max_records_per_batch: 0, topik: x}
        table: {type: mor, buckets: many, record_key: []}
        compaction: 5
    """
    assert problems(file, text) == [
        "source.starting: 'newest': expected earliest, latest or a mapping of partitions to "
        "offsets, such as {0: 1200}",
        "source.max_records_per_batch: 0: should be greater than or equal to 1",
        "source.topik: unknown setting; did you mean topic? accepted: kind, bootstrap, topic, "
        "starting, max_records_per_batch, fail_on_data_loss, isolation, consumer, metadata_columns",
        "table.path: missing",
        "table.type: 'mor': expected 'merge_on_read' or 'copy_on_write'",
        "table.record_key: []: expected at least one",
        "table.buckets: 'many': should be a valid integer, unable to parse string as an integer",
        "compaction: expected a section with enabled, every_delta_commits",
    ]


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("x", "--set x: expected a.b.c=value"),
        ("a..b=1", "--set a..b=1: expected a.b.c=value"),
        ("table.path.x=1", "table.path.x: --set goes below a setting that is no section"),
        ("table.buckets=[", "table.buckets: --set: the value is not valid YAML"),
        ("table.buckets=0", "table.buckets: 0: should be greater than or equal to 1"),
    ],
)
def test_a_wrong_override_is_told_like_a_wrong_setting(
    file: Path, override: str, problem: str
) -> None:
    assert problems(file, SMALLEST, override) == [problem]


def test_overrides_take_yaml_and_names_with_dots(file: Path) -> None:
    config = load_text(
        file,
        SMALLEST,
        "source.starting.3=70",
        "source.consumer.security.protocol=SSL",
        "spark.conf.spark.ui.enabled=true",
        "run.on_error.max_attempts=2",
        "run.on_error.max_attempts=3",
    )
    assert config.source.starting == {3: 70}
    assert config.source.consumer["security.protocol"].resolve() == "SSL"
    assert config.spark.conf["spark.ui.enabled"].resolve() == "true"
    assert config.run.on_error.max_attempts == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2", "in line 2, column 1: the name 'a' is given twice, or is no name"),
        ("? [a]\n: 1", "in line 1, column 3: the name ['a'] is given twice, or is no name"),
        ("a: [geheim", "in line 1, column 11: expected ',' or ']', but got '<stream end>'"),
        ("- source", "holds no settings; a pipeline has at least source and table"),
        ("", "holds no settings; a pipeline has at least source and table"),
    ],
)
def test_a_file_that_is_no_pipeline(file: Path, text: str, problem: str) -> None:
    (told,) = problems(file, text)
    assert told.endswith(problem)
    assert "geheim" not in told


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"cannot read /nowhere/p\.yaml: No such file"):
        load("/nowhere/p.yaml")


def test_a_pipeline_is_read_from_any_store(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(SMALLEST)
    assert load(f"file://{tmp_path}/pipeline.yaml").name == "orders"


def test_an_avro_schema_file_lies_beside_the_pipeline_and_becomes_columns(file: Path) -> None:
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
    (told,) = problems(file, SMALLEST, "decode.schema={avro: order.avsc}")
    assert told.startswith("decode.schema.avro: ")


def test_the_resolved_pipeline_loads_again_as_the_same(file: Path) -> None:
    config = load_text(
        file, SMALLEST, "source.starting={0: 5}", "decode.schema={id: string, b: 'decimal(4,2)'}"
    )
    assert load_text(file, resolved_yaml(config)) == config


def test_the_schema_for_editors_is_the_one_in_the_docs() -> None:
    published = Path(__file__).parents[4] / "docs" / "pipeline.schema.json"
    assert json.loads(published.read_text()) == json_schema()


def test_checking_a_pipeline_is_instant() -> None:
    tree = {"source": {"bootstrap": "b", "topic": "t"}, "table": {"path": "p", "record_key": "k"}}
    started = time.monotonic()
    validated(tree)
    assert time.monotonic() - started < 0.2
