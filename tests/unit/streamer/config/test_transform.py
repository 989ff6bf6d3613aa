"""Steps of ``transform`` that cannot run, or exclude other settings, are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.config.render import render_yaml
from streamer.config.secrets import build_redactor

COLUMNS = {
    "id": "string",
    "ts": "bigint",
    "text": "string",
    "at": "struct<x:int>",
    "l": "array<int>",
}
HASH = {"step": "hash", "columns": ["id"], "salt": {"env": "SALT_OF_TESTS"}}
DROP = {"step": "drop", "columns": ["ts"]}


def config(*steps: Mapping[str, object], **sections: Mapping[str, object]) -> PipelineConfig:
    tree: dict[str, Any] = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": {"schema": COLUMNS},
        "transform": list(steps),
        "table": {"path": "/lake/t", "record_key": "id"},
    }
    for section, changes in sections.items():
        tree[section] = {**tree[section], **changes}
    return validated(tree)


STEPS: Mapping[str, tuple[Mapping[str, object], str]] = {
    "unknown column": (
        {"step": "select", "columns": ["idd"]},
        "transform.0.select: there is no column 'idd' before this step; did you mean id?",
    ),
    "name that exists": (
        {"step": "rename", "columns": {"text": "TS"}},
        "transform.0.rename: column 'TS' exists already; choose another name, or rename or",
    ),
    "number as a time": (
        {"step": "cast", "columns": {"ts": "timestamp"}},
        "transform.0.cast: column 'ts' is int64, which cannot be cast to timestamp[us, tz=UTC]",
    ),
    "unknown type": (
        {"step": "cast", "columns": {"ts": "tmestamp"}},
        "transform.0.columns: a mapping: column 'ts': cannot read the type 'tmestamp'",
    ),
    "no struct": (
        {"step": "flatten", "columns": ["ts"]},
        "transform.0.flatten: column 'ts' is int64, not a struct; omit it",
    ),
    "no array": (
        {"step": "explode", "column": "ts"},
        "transform.0.explode: column 'ts' is int64, not an array; name an array",
    ),
    "literal of another type": (
        {"step": "filter", "where": "ts > 'x'"},
        "transform.0.filter: condition \"ts > 'x'\", at character 6: 'x' cannot be a value of ts",
    ),
    "syntax of a condition": (
        {"step": "filter", "where": "ts >"},
        "transform.0.where: 'ts >': condition 'ts >', at character 5: expected a value",
    ),
    "calculation with text": (
        {"step": "add", "columns": {"x": "ts + text"}},
        "transform.0.add: expression 'ts + text': string is not a number; cast it before",
    ),
    "unknown function": (
        {"step": "add", "columns": {"x": "sqrt(ts)"}},
        "transform.0.columns: a mapping: expression 'sqrt(ts)': there is no function 'sqrt'",
    ),
    "unknown step": (
        {"step": "sort", "by": "id"},
        "transform.0.step: 'sort': expected 'select', 'drop', 'rename'",
    ),
    "misspelt step": (
        {"step": "renam", "columns": {"id": "key"}},
        "transform.0.step: 'renam': did you mean rename? expected 'select', 'drop', 'rename'",
    ),
    "no step": (
        {"columns": ["id"]},
        "transform.0.step: missing; accepted: select, drop, rename, cast, flatten, explode, filter",
    ),
    "unknown setting": (
        {"step": "drop", "columns": ["id"], "colums": ["ts"]},
        "transform.0.colums: unknown setting; did you mean columns? accepted: step, columns",
    ),
    "key that is gone": (
        {"step": "drop", "columns": ["id"]},
        "table.record_key: 'id' is not a column after transform (at, l, text, ts)",
    ),
    "name that Avro forbids": (
        {"step": "rename", "columns": {"text": "a-b"}},
        "transform.0.rename: column a-b: 'a-b' is not a valid name in Avro",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_step_that_cannot_run_is_refused(name: str) -> None:
    step, message = STEPS[name]
    with pytest.raises(ConfigError) as refused:
        config(step)
    assert str(refused.value).startswith(message)


OTHERS: Mapping[str, tuple[dict[str, Mapping[str, object]], str]] = {
    "inferred columns": (
        {"decode": {"schema": "infer"}},
        "decode.schema: infer cannot be combined with transform; declare the columns",
    ),
    "new columns": (
        {"decode": {"unknown_fields": "evolve"}},
        "decode.unknown_fields: evolve cannot be combined with transform; choose another value",
    ),
    "wider columns": (
        {"decode": {"wider_values": "evolve"}},
        "decode.wider_values: evolve cannot be combined with transform; choose another value",
    ),
    "absent fields": (
        {"table": {"partial_update": "absent_fields"}},
        "table.partial_update: absent_fields cannot be combined with transform; remove one",
    ),
    "ordering that is gone": (
        {"table": {"ordering": "ts"}},
        "table.ordering: 'ts' is not a column after transform (at, id, l, text)",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_settings_without_a_clear_meaning_after_a_step_are_refused(name: str) -> None:
    sections, message = OTHERS[name]
    with pytest.raises(ConfigError) as refused:
        config(DROP, **sections)
    assert message in str(refused.value)


def test_key_that_a_tombstone_cannot_name_is_refused() -> None:
    keys = {"step": "add", "columns": {"k": "id || ts"}}
    table = {"record_key": "k"}
    with pytest.raises(ConfigError, match="raw is one value, but the record key is computed from"):
        config(keys, table=table)
    assert config(keys, table=table, decode={"tombstone_key": "json"}).transform
    exploded = {"step": "explode", "column": "l"}
    table = {"record_key": "l"}
    with pytest.raises(ConfigError, match=r"^transform.0.explode: column 'l' is in the record key"):
        config(exploded, table=table)
    assert config(exploded, table=table, decode={"tombstones": "ignore"}).transform


def test_keys_of_tombstones_need_no_partition_if_rows_move_and_nothing_if_they_are_inserted() -> (
    None
):
    moves = {"partition_by": ["text"], "partition_change": "move", "ordering": ["ts"]}
    renamed = {"step": "rename", "columns": {"l": "list"}}
    assert config(renamed, table=moves, decode={"tombstone_key": "raw"}).transform
    exploded = {"step": "explode", "column": "l"}
    inserts = {"record_key": "l", "operation": "insert"}
    assert config(exploded, table=inserts).transform


def test_columns_after_the_steps_are_the_columns_of_the_table() -> None:
    renamed = {"step": "rename", "columns": {"id": "key"}}
    flat = {"step": "flatten"}
    columns = config(renamed, flat, DROP, table={"record_key": "key"}).row_columns()
    assert columns is not None
    assert columns.names == ["key", "text", "at_x", "l"]


def test_salt_is_read_only_by_a_run_and_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = config(HASH)
    assert [str(one) for one in found.unresolved()] == [
        "transform.0.salt: environment variable SALT_OF_TESTS is not set"
    ]
    with pytest.raises(ConfigError, match=r"^transform.salt: environment variable SALT_OF_TESTS"):
        found.transform_chain()
    monkeypatch.setenv("SALT_OF_TESTS", "pepper-and-salt")
    assert build_redactor(found)("x pepper-and-salt y") == "x *** y"
    chain = found.transform_chain()
    assert "pepper" not in repr(chain)
    plain = config({**HASH, "salt": "pepper-and-salt"})
    assert "pepper" not in render_yaml(plain)
    assert "pepper" not in repr(plain)
    assert build_redactor(plain)("x pepper-and-salt y") == "x *** y"
