"""Rules of ``expect`` that cannot judge the rows are refused by name, before a run starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from transforms.expectations import Outcome, Rule

COLUMNS = {"id": "string", "ts": "bigint", "n": "int", "at": "timestamp", "p": "struct<x:int>"}


def config(*rules: Mapping[str, object], **sections: Mapping[str, object]) -> PipelineConfig:
    tree: dict[str, Any] = {
        "source": {"bootstrap_servers": "b:1", "topic": "t"},
        "decode": {"schema": COLUMNS},
        "expect": list(rules),
        "table": {
            "path": "/lake/t",
            "record_key": "id",
            "ordering": "ts",
            "partition_by": "day(at)",
        },
    }
    for section, changes in sections.items():
        tree[section] = {**tree.get(section, {}), **changes}
    return validated(tree)


def test_rules_have_names_and_columns_to_set_to_null() -> None:
    rules = config(
        {"rule": "n >= 0 and n < 9", "otherwise": "set_null"},
        {"rule": "p.x > 0", "name": "x", "otherwise": "set_null", "column": "p"},
        {"rule": "at_day is not null", "otherwise": "fail"},
    ).rules()
    assert [(rule.path, rule.name, rule.column) for rule in rules] == [
        ("expect.0", "n >= 0 and n < 9", "n"),
        ("expect.1", "x", "p"),
        ("expect.2", "at_day is not null", ""),
    ]
    assert rules[0] == Rule(
        path="expect.0",
        name="n >= 0 and n < 9",
        condition="n >= 0 and n < 9",
        outcome=Outcome.SET_NULL,
        column="n",
    )


RULES: Mapping[str, tuple[Mapping[str, object], str]] = {
    "syntax": (
        {"rule": "n >", "otherwise": "warn"},
        "expect.0.rule: 'n >': condition 'n >', at character 4: expected a value",
    ),
    "neither a rule nor a check": (
        {"otherwise": "warn"},
        "expect.0.rule: missing; each entry is a rule for rows, or a check of a batch",
    ),
    "both": (
        {"rule": "n > 0", "check": "from batch", "otherwise": "warn"},
        "expect.0.check: an entry is either a rule or a check; write two entries",
    ),
    "outcome of rows": (
        {"check": "from batch", "otherwise": "set_null"},
        "expect.0.otherwise: set_null is for single rows, but a check judges a batch; use warn or",
    ),
    "column of a check": (
        {"check": "from batch", "otherwise": "warn", "column": "n"},
        "expect.0.column: n has an effect only with a rule; remove it",
    ),
    "syntax of a check": (
        {"check": "select from", "otherwise": "warn"},
        "expect.0.check: the query cannot be parsed: ",
    ),
    "unknown column of a check": (
        {"check": "select nn from batch", "otherwise": "warn"},
        "expect.0.check: the query does not fit the columns id, ts, n, at, p, at_day: ",
    ),
    "unknown table": (
        {"check": "select n from orders", "otherwise": "warn"},
        "expect.0.check: there is no relation 'orders'; a check reads batch, and stored for",
    ),
    "unknown column": (
        {"rule": "nn > 0", "otherwise": "warn"},
        "expect.0.rule: condition 'nn > 0', at character 1: there is no column 'nn'; did you mean",
    ),
    "literal of another type": (
        {"rule": "n > 'x'", "otherwise": "fail"},
        "expect.0.rule: condition \"n > 'x'\", at character 5: 'x' cannot be a value of n (int32)",
    ),
    "YAML's null": (
        {"rule": "n > 0", "otherwise": None},
        "expect.0.otherwise: None: expected 'warn', 'set_null', 'dead_letter' or 'fail'",
    ),
    "no outcome": ({"rule": "n > 0"}, "expect.0.otherwise: missing"),
    "unknown setting": (
        {"rule": "n > 0", "otherwise": "warn", "nmae": "x"},
        "expect.0.nmae: unknown setting; did you mean name? accepted: rule, name, otherwise,",
    ),
    "two columns": (
        {"rule": "n > 0 or ts > 0", "otherwise": "set_null"},
        "expect.0.column: missing; the rule names n, ts, so name the column to set to null",
    ),
    "field of a struct": (
        {"rule": "p.x > 0", "otherwise": "set_null"},
        "expect.0.column: missing; the rule names p.x, so name the column to set to null",
    ),
    "no such column": (
        {"rule": "n > 0", "otherwise": "set_null", "column": "m"},
        "expect.0.column: there is no column 'm'; columns: id, ts, n, at, p, at_day",
    ),
    "column without an effect": (
        {"rule": "n > 0", "otherwise": "warn", "column": "n"},
        "expect.0.column: n has an effect only with otherwise: set_null; remove it",
    ),
    "key": (
        {"rule": "id != ''", "otherwise": "set_null"},
        "expect.0.otherwise: column 'id' cannot be set to null, because it is in the record key",
    ),
    "ordering": (
        {"rule": "n > 0", "otherwise": "set_null", "column": "ts"},
        "expect.0.otherwise: column 'ts' cannot be set to null",
    ),
    "source of the partition": (
        {"rule": "at > '2026-01-01'", "otherwise": "set_null"},
        "expect.0.otherwise: column 'at' cannot be set to null",
    ),
    "value of the partition": (
        {"rule": "at_day > '2026-01-01'", "otherwise": "set_null"},
        "expect.0.otherwise: column 'at_day' cannot be set to null",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rule_that_cannot_judge_the_rows_is_refused(name: str) -> None:
    rule, message = RULES[name]
    with pytest.raises(ConfigError) as refused:
        config(rule)
    assert str(refused.value).startswith(message)


LETTER = {"rule": "n > 0", "otherwise": "dead_letter"}
CONTRADICTIONS: Mapping[str, tuple[int, dict[str, Mapping[str, object]], str]] = {
    "two rules of one name": (
        2,
        {},
        "expect.1.name: 'n > 0' is the name of another rule; choose another name",
    ),
    "no dead letters": (
        1,
        {"dead_letters": {"enabled": False}},
        "expect.0.otherwise: dead_letter needs dead_letters.enabled; enable them, or use",
    ),
    "partial rows": (
        1,
        {"table": {"partial_update": "absent_fields"}},
        "table.partial_update: absent_fields cannot be combined with expect, because rules",
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_settings_that_exclude_a_rule_are_refused(name: str) -> None:
    count, sections, message = CONTRADICTIONS[name]
    with pytest.raises(ConfigError) as refused:
        config(*[LETTER] * count, **sections)
    assert str(refused.value).startswith(message)


def test_rules_name_the_columns_after_the_transforms_and_those_of_kafka() -> None:
    steps = [{"step": "rename", "columns": {"n": "m"}}]
    for column in ("m", "_hoodie_kafka_source_offset"):
        validated(
            {
                "source": {
                    "bootstrap_servers": "b:1",
                    "topic": "t",
                    "metadata_columns": ["offset"],
                },
                "decode": {"schema": COLUMNS},
                "transform": steps,
                "expect": [{"rule": f"{column} >= 0", "otherwise": "warn"}],
                "table": {"path": "/lake/t", "record_key": "id"},
            }
        )


@pytest.mark.parametrize(
    "decode", [{"schema": "infer"}, {"schema": COLUMNS, "unknown_fields": "evolve"}]
)
def test_columns_that_are_not_known_yet_are_not_checked(decode: Mapping[str, object]) -> None:
    config({"rule": "later > 0", "otherwise": "warn"}, decode=decode)
    config({"check": "select later from batch", "otherwise": "warn"}, decode=decode)
    with pytest.raises(ConfigError, match=r"expect\.0\.check: the query cannot be parsed"):
        config({"check": "select", "otherwise": "warn"}, decode=decode)


def test_checks_have_names_and_keep_their_positions() -> None:
    made = config(
        {"check": "select n from batch where at_day is null", "otherwise": "fail"},
        {"rule": "n > 0", "otherwise": "warn"},
        {"check": "from stored", "name": "x", "otherwise": "warn"},
    )
    assert [(one.path, one.name, one.outcome) for one in made.checks()] == [
        ("expect.0", "select n from batch where at_day is null", Outcome.FAIL),
        ("expect.2", "x", Outcome.WARN),
    ]
    assert [one.path for one in made.rules()] == ["expect.1"]
