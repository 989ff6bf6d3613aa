"""Pipelines write texts, bytes and lines of CSV to their tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.errors import ConfigError
from tests.unit.sinks.test_transforms import Pipeline

OFFSET = "_hoodie_kafka_source_offset"


class LinePipeline(Pipeline):
    """A pipeline of values that are texts."""

    def __init__(self, folder: Path, decode: Mapping[str, object], **table: object) -> None:
        super().__init__(folder, (), None, **table)
        source = {"bootstrap_servers": "localhost:9092", "topic": "orders"}
        self._tree["source"] = {**source, "metadata_columns": ["offset"]}
        self._tree["decode"] = dict(decode)


@pytest.mark.parametrize(("kind", "value"), [("text", "ä"), ("bytes", "ä".encode())])
def test_whole_values_fill_one_column(tmp_path: Path, kind: str, value: object) -> None:
    decode = {"format": kind, "column": "line"}
    pipeline = LinePipeline(tmp_path, decode, record_key=OFFSET)
    pipeline.write((None, b"\xc3\xa4"), (None, b""), (None, None), (None, b"\xff"))
    rows = open_table(StorageLocation(str(tmp_path / "rows"))).scan().to_reader().read_all()
    found = {row[OFFSET]: row["line"] for row in rows.to_pylist()}
    empty = "" if kind == "text" else b""
    assert found == {0: value, 1: empty} | ({} if kind == "text" else {3: b"\xff"})


def test_tombstones_of_csv_delete_rows(tmp_path: Path) -> None:
    decode = {"format": "csv", "schema": {"id": "bigint", "name": "string"}}
    pipeline = LinePipeline(tmp_path, decode, record_key="id")
    pipeline.write((None, b"1,a"), (None, b"2,b"), (None, b"x,c"))
    pipeline.write((b"1", None), (None, b"2,d"))
    assert [(row["id"], row["name"]) for row in pipeline.read()] == [(2, "d")]
    (letter,) = pipeline.read("_dead_letters")
    assert letter["code"] == "invalid_value"


@pytest.mark.parametrize(
    ("decode", "problem"),
    [
        ({"format": "csv"}, "decode.schema: infer cannot be combined with format csv"),
        (
            {"format": "csv", "schema": {"id": "int"}, "unknown_fields": "evolve"},
            "decode.unknown_fields: evolve has no effect with format csv",
        ),
        ({"format": "csv", "schema": {"id": "int"}, "delimiter": ",,"}, "decode.delimiter"),
        ({"format": "text", "schema": {"id": "int"}}, "decode.schema: cannot be combined"),
        ({"format": "bytes", "aliases": {"a": "value"}}, "decode.aliases: has no effect"),
    ],
)
def test_settings_without_an_effect_are_refused(
    tmp_path: Path, decode: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        LinePipeline(tmp_path, decode, record_key="id").sink()
    assert problem in str(refused.value)
