"""A pipeline applies the change events of Debezium to its table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakemark.errors import InvalidConfig
from streamer.config.errors import ConfigError
from streamer.config.load import load
from tests.unit.sinks.test_transforms import Pipeline
from transforms.schema_text import parse_schema
from transforms.steps.debezium import Debezium

ROOT = Path(__file__).parents[3]
ROW = "struct<id:bigint,name:string,tags:array<string>>"
EVENT = {
    "before": ROW,
    "after": ROW,
    "op": "string",
    "ts_ms": "bigint",
    "source": "struct<lsn:bigint>",
}
STEPS = ({"step": "debezium"}, {"step": "flatten", "columns": ["_source"]})
TABLE = {
    "record_key": "id",
    "ordering": ["_source_lsn"],
    "delete_when": {"field": "_op", "value": "d"},
}
DECODE = {"schema": EVENT, "tombstones": "ignore"}


def row(key: int, name: str | None = None) -> dict[str, object]:
    return {"id": key, "name": name, "tags": None if name is None else [name]}


def event(
    op: object, lsn: int, before: Mapping[str, object] | None, after: Mapping[str, object] | None
) -> dict[str, object]:
    return {"op": op, "ts_ms": 5, "source": {"lsn": lsn}, "before": before, "after": after}


def names(pipeline: Pipeline) -> dict[object, object]:
    return {found["id"]: found["name"] for found in pipeline.read()}


def test_the_table_holds_the_rows_of_the_database(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, STEPS, DECODE, **TABLE)
    pipeline.write(
        (1, event("r", 1, None, row(1, "one"))),
        (2, event("c", 2, None, row(2, "two"))),
        (3, event("c", 3, None, row(3, "three"))),
    )
    assert names(pipeline) == {1: "one", 2: "two", 3: "three"}
    pipeline.write(
        (1, event("u", 6, row(1, "one"), row(1, "uno"))),
        (1, event("u", 5, row(1, "one"), row(1, "late"))),
        (2, event("d", 7, row(2), None)),
        (2, None),
        (3, event("u", 8, None, row(3, "drei"))),
    )
    assert names(pipeline) == {1: "uno", 3: "drei"}
    (first, *_) = sorted(pipeline.read(), key=lambda found: str(found["id"]))
    assert first == {**row(1, "uno"), "_op": "u", "_ts_ms": 5, "_source_lsn": 6}


def test_messages_with_their_schema_have_an_envelope(tmp_path: Path) -> None:
    fields = ",".join(f"{name}:{kind}" for name, kind in EVENT.items())
    decode = {"schema": {"payload": f"struct<{fields}>"}, "tombstones": "ignore"}
    steps = ({"step": "debezium", "envelope": "payload"}, STEPS[1])
    pipeline = Pipeline(tmp_path, steps, decode, **TABLE)
    payload = event("c", 1, None, row(1, "one"))
    pipeline.write((1, {"schema": {"type": "struct"}, "payload": payload}), (2, {"schema": {}}))
    assert names(pipeline) == {1: "one"}
    (letter,) = pipeline.read("_dead_letters")
    assert "operation is None" in str(letter["reason"])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (event("d", 1, None, None), "has no 'before'"),
        (event("u", 1, row(1), None), "operation 'u', but no 'after'"),
        (event("t", 1, None, None), "operation is 't', which changes no single row"),
        (event(None, 1, None, row(1)), "operation is None"),
        ({}, "operation is None"),
    ],
)
def test_events_without_a_row_become_dead_letters(
    tmp_path: Path, wrong: dict[str, object], reason: str
) -> None:
    pipeline = Pipeline(tmp_path, STEPS, DECODE, **TABLE)
    pipeline.write((1, wrong), (2, event("c", 2, None, row(2, "two"))))
    assert names(pipeline) == {2: "two"}
    (letter,) = pipeline.read("_dead_letters")
    assert reason in str(letter["reason"])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"after": "struct<id:bigint>"}, "have different types"),
        ({"before": "string"}, "'before' is string, not a struct"),
        ({"op": "int"}, "'op' is int32"),
        ({"after": None}, "there is no column 'after'"),
        ({"before": "struct<_op:int>", "after": "struct<_op:int>"}, "would both be '_op'"),
    ],
)
def test_columns_that_are_no_event_are_refused(changed: dict[str, Any], reason: str) -> None:
    schema = {name: kind for name, kind in {**EVENT, **changed}.items() if kind is not None}
    with pytest.raises(InvalidConfig, match=reason):
        Debezium().output_schema(parse_schema(schema))
    with pytest.raises(InvalidConfig, match="no column 'payload'"):
        Debezium("payload").output_schema(parse_schema({"op": "bigint"}))


def test_the_example_of_the_page_is_a_pipeline() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/debezium.md").read_text(), re.DOTALL)
    example = ROOT / "examples/debezium.yaml"
    assert yaml.safe_load(shown) == yaml.safe_load(example.read_text())
    columns = load(str(example), []).row_columns()
    assert columns is not None
    assert columns.names == ["id", "name", "mail", "_op", "_ts_ms", "_source_lsn"]


def test_tombstones_must_be_ignored_because_their_keys_name_no_event(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"decode\.tombstones: ignore"):
        Pipeline(tmp_path, STEPS, {"schema": EVENT}, **TABLE).sink()
