"""A job that reads files becomes a pipeline that reads the same files."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamer.config.files_source import FilesSourceConfig
from streamer.migration.job import Job
from streamer.migration.translation import Translation, translate
from tests.unit.streamer.migration.jobs import (
    ORDER_SCHEMA,
    PARTITION,
    RECORD_KEY,
    SOURCES,
    missing,
    words,
)

ROOT = "hoodie.deltastreamer.source.dfs.root"


def translated(source: str, schema: str | None = None, **options: str) -> Translation:
    properties = {RECORD_KEY: "id", PARTITION: "region", ROOT: "/lake/in", **options}
    arguments = {
        "--source-class": f"{SOURCES}{source}",
        "--schemaprovider-class": None,
        **{name: value for name, value in properties.items() if name.startswith("--")},
    }
    named = [(name, value) for name, value in properties.items() if not name.startswith("--")]
    return translate(Job.parse(named, words(arguments), schema))


@pytest.mark.parametrize(
    ("source", "file_format", "decoded_as"),
    [
        ("JsonDFSSource", "json", "json"),
        ("ParquetDFSSource", "parquet", "columns"),
        ("AvroDFSSource", "avro", "columns"),
    ],
)
def test_file_source_becomes_a_source_of_files(
    source: str, file_format: str, decoded_as: str
) -> None:
    found = translated(source, **{"--checkpoint": "1700000000123", "--source-limit": "1048576"})
    assert found.config is not None, found.problems
    reads = found.config.source
    assert isinstance(reads, FilesSourceConfig)
    assert (reads.path, reads.format, reads.modified_after, reads.max_bytes_per_batch) == (
        "/lake/in",
        file_format,
        1_700_000_000_123,
        1 << 20,
    )
    assert found.config.decode.format == decoded_as


def test_csv_files_need_a_schema_and_keep_their_form(tmp_path: Path) -> None:
    assert translated("CsvDFSSource").config is None
    file = tmp_path / "order.avsc"
    # Columns of CSV are not nested.
    file.write_text(ORDER_SCHEMA.partition(',\n  {"name": "place"')[0] + "]}")
    csv = "hoodie.deltastreamer.csv."
    options = {f"{csv}header": "true", f"{csv}sep": ";", f"{csv}multiLine": "true"}
    found = translated("CsvDFSSource", str(file), **options)
    assert found.config is not None, found.problems
    assert isinstance(found.config.source, FilesSourceConfig)
    assert found.config.source.header
    assert found.config.decode.model_dump()["delimiter"] == ";"
    assert [*missing(found, changes_rows=True)] == ["hoodie.streamer.csv.multiLine"]
