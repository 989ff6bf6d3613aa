from __future__ import annotations

from collections.abc import Mapping

import pytest

from streamer.config.errors import ConfigError
from streamer.config.load import apply_override, validated


def told(*overrides: str) -> list[str]:
    tree: dict[str, object] = {
        "source": {"bootstrap": "b:1", "topic": "t"},
        "decode": {"schema": {"id": "string", "ts": "bigint", "at": "struct<day:date>"}},
        "table": {"path": "/lake/t", "record_key": "id"},
    }
    for override in overrides:
        apply_override(tree, override)
    try:
        validated(tree)
    except ConfigError as error:
        return str(error).splitlines()
    return []


CASES: Mapping[str, tuple[list[str], str]] = {
    "event time without a time": (
        ["table.merge_mode=event_time"],
        "table.merge_mode: event_time needs table.ordering: name the columns",
    ),
    "a time that is not looked at": (
        ["table.merge_mode=commit_time", "table.ordering=ts"],
        "table.ordering: has no meaning with merge_mode commit_time; leave one of the two out",
    ),
    "a tombstone without its partition": (
        ["decode.tombstone_key=raw", "table.partition_by=ts"],
        "decode.tombstone_key: raw names no partition and table.partition_by is set; use json",
    ),
    "a tombstone with half a key": (
        ["decode.tombstone_key=raw", "table.record_key=[id, ts]"],
        "decode.tombstone_key: raw is one value and table.record_key has 2; use json",
    ),
    "rescue to nowhere": (
        ["decode.unknown_fields=rescue"],
        "decode.rescue_column: missing: unknown_fields is rescue",
    ),
    "nothing to rescue": (
        ["decode.rescue_column=rest"],
        "decode.rescue_column: has no meaning while unknown_fields is ignore",
    ),
    "two columns of one name": (
        ["decode.unknown_fields=rescue", "decode.rescue_column=ts"],
        "decode.schema.ts: another setting adds a column of this name",
    ),
    "a key that no row has": (
        ["table.record_key=[id, line]"],
        "table.record_key: 'line' is not a column of decode.schema (at, id, ts)",
    ),
    "a type that is none": (
        ["decode.schema.n=number"],
        "decode.schema: column 'n': 'number' does not declare a type",
    ),
    "a column of the format's own": (
        ["decode.schema._hoodie_record_key=string"],
        "decode.schema: column '_hoodie_record_key' is one of the columns that Hudi itself adds",
    ),
    "dead letters in the table": (
        ["dead_letters.path=/lake/t/bad"],
        "dead_letters.path: /lake/t/bad and the table's path lie within each other",
    ),
    "dead letters in the table, by a detour": (
        ["dead_letters.path=/lake/../lake/./t/bad"],
        "dead_letters.path: /lake/../lake/./t/bad and the table's path lie within each other",
    ),
    "dead letters in the table, as a url": (
        ["dead_letters.path=file:///lake/t"],
        "dead_letters.path: file:///lake/t and the table's path lie within each other",
    ),
    "dead letters in a table on a store": (
        ["table.path=s3://lake/t/", "dead_letters.path=s3a://lake/t/bad"],
        "dead_letters.path: s3a://lake/t/bad and the table's path lie within each other",
    ),
    "the table in its dead letters": (
        ["dead_letters.path=/lake"],
        "dead_letters.path: /lake and the table's path lie within each other",
    ),
}


@pytest.mark.parametrize(("overrides", "problem"), CASES.values(), ids=CASES)
def test_it_is_refused_and_says_why(overrides: list[str], problem: str) -> None:
    (line,) = told(*overrides)
    assert line.startswith(problem)


@pytest.mark.parametrize(
    "overrides",
    [
        ["table.ordering=ts"],
        ["table.partition_by=at.day", "decode.tombstone_key=json"],
        ["decode.unknown_fields=rescue", "decode.rescue_column=rest"],
        ["source.metadata_columns=[offset]", "table.ordering=_hoodie_kafka_source_offset"],
        ["decode.schema=infer", "table.record_key=anything"],
        ["dead_letters.path=/lake/t2"],
        ["dead_letters.path=/lake/t/../t2"],
        ["table.path=s3://lake/t", "dead_letters.path=s3://lake/t2"],
        ["table.path=s3://lake/t", "dead_letters.path=gs://lake/t/bad"],
    ],
    ids=str,
)
def test_what_goes_together_is_accepted(overrides: list[str]) -> None:
    assert told(*overrides) == []


def test_several_contradictions_are_told_together() -> None:
    overrides = ("table.merge_mode=event_time", "table.partition_by=day", "decode.rescue_column=r")
    assert len(told(*overrides)) == 3
