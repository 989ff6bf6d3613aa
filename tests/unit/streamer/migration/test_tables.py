"""A job that reads a table becomes a pipeline that reads the same table."""

from __future__ import annotations

import pytest

from streamer.config.table_source import TableSourceConfig
from streamer.migration.job import Job
from streamer.migration.translation import Translation, translate
from tests.unit.streamer.migration.jobs import PARTITION, RECORD_KEY, SOURCES, missing, words

READS = "hoodie.deltastreamer.source.hoodieincr."
PATH = f"{READS}path"


def translated(properties: dict[str, str], **options: str) -> Translation:
    arguments = {"--source-class": f"{SOURCES}HoodieIncrSource", "--schemaprovider-class": None}
    named = [*{RECORD_KEY: "id", PARTITION: "region", **properties}.items()]
    return translate(Job.parse(named, words({**arguments, **options})))


def source_of(found: Translation) -> TableSourceConfig:
    assert found.config is not None, found.problems
    source = found.config.source
    assert isinstance(source, TableSourceConfig)
    return source


def test_source_of_a_table_becomes_a_source_of_its_commits() -> None:
    given = {PATH: "/lake/read", f"{READS}num_instants": "7", f"{READS}file.format": "parquet"}
    found = translated({**given, f"{READS}drop.all.meta.fields.from.source": "true"})
    source = source_of(found)
    assert (source.path, source.query, source.start_at, source.max_commits_per_batch) == (
        "/lake/read",
        "incremental",
        "snapshot",
        7,
    )
    assert found.config is not None
    assert found.config.decode.format == "columns"
    assert not [*missing(found, changes_rows=True)]


@pytest.mark.parametrize(
    ("properties", "options", "start"),
    [
        ({"missing.checkpoint.strategy": "READ_UPTO_LATEST_COMMIT"}, {}, "snapshot"),
        ({"missing.checkpoint.strategy": "READ_LATEST"}, {}, "latest"),
        ({"read_latest_on_missing_ckpt": "true"}, {}, "latest"),
        (
            {
                "missing.checkpoint.strategy": "READ_UPTO_LATEST_COMMIT",
                "read_latest_on_missing_ckpt": "true",
            },
            {},
            "latest",
        ),
        (
            {"read_latest_on_missing_ckpt": "true"},
            {"--checkpoint": "20260501120000123"},
            "20260501120000123",
        ),
    ],
)
def test_start_of_the_job_is_the_start_of_the_pipeline(
    properties: dict[str, str], options: dict[str, str], start: str
) -> None:
    named = {f"{READS}{name}": value for name, value in properties.items()}
    assert source_of(translated({PATH: "/lake/read", **named}, **options)).start_at == start


def test_job_without_a_path_and_with_partition_fields_is_not_translated_silently() -> None:
    assert translated({}).config is None
    found = translated({PATH: "/lake/read", f"{READS}partition.fields": "day"})
    assert [*missing(found, changes_rows=True)] == [
        "hoodie.streamer.source.hoodieincr.partition.fields"
    ]
