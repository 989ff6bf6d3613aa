"""Jobs of HoodieStreamer for tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamer.migration.job import Job
from streamer.migration.outcome import Missing, Sets
from streamer.migration.translation import Translation, translate

SOURCES = "org.apache.hudi.utilities.sources."
SCHEMAS = "org.apache.hudi.utilities.schema."
TRANSFORMS = "org.apache.hudi.utilities.transform."
KEYGEN = "org.apache.hudi.keygen."
MODELS = "org.apache.hudi.common.model."
LOCKS = "org.apache.hudi.client.transaction.lock."

SCHEMA_FILE = "hoodie.streamer.schemaprovider.source.schema.file"
REGISTRY_URL = "hoodie.streamer.schemaprovider.registry.url"
RECORD_KEY = "hoodie.datasource.write.recordkey.field"
PARTITION = "hoodie.datasource.write.partitionpath.field"

#: The options that every job has.
OPTIONS: Mapping[str, str] = {
    "--target-base-path": "/lake/orders",
    "--target-table": "orders",
    "--table-type": "MERGE_ON_READ",
    "--source-class": f"{SOURCES}JsonKafkaSource",
    "--source-ordering-fields": "ts",
}

#: The properties that every job has.
PROPERTIES: Mapping[str, str] = {
    "bootstrap.servers": "kafka:9092",
    "hoodie.streamer.source.kafka.topic": "orders",
    RECORD_KEY: "id",
    PARTITION: "region",
}

ORDER_SCHEMA = """{"type": "record", "name": "order", "fields": [
  {"name": "id", "type": "string"},
  {"name": "region", "type": "string"},
  {"name": "ts", "type": "long"},
  {"name": "amount", "type": "double"},
  {"name": "place", "type": {"type": "record", "name": "place", "fields": [
    {"name": "city", "type": "string"}]}}]}"""


def words(options: Mapping[str, str | None]) -> list[str]:
    """Return the words of a command line; an option with the value "" has none."""
    pairs = {name: value for name, value in {**OPTIONS, **options}.items() if value is not None}
    return [word for name, value in pairs.items() for word in (name, value) if word]


def job(
    properties: Mapping[str, str] | None = None,
    source_schema: Path | None = None,
    /,
    **options: str | None,
) -> Job:
    """Return a job.

    Args:
        properties: further properties.
        source_schema: the schema file of ``--source-schema``.
        options: further options, such as ``table_type="COPY_ON_WRITE"``; None removes an option.
    """
    named = {f"--{name.replace('_', '-')}": value for name, value in options.items()}
    schema = None if source_schema is None else str(source_schema)
    return Job.parse([*{**PROPERTIES, **(properties or {})}.items()], words(named), schema)


def settings(found: Translation) -> dict[str, object]:
    """Return the settings of a pipeline by their paths."""
    return {one.path: one.value for one in found.outcomes if isinstance(one, Sets)}


def missing(found: Translation, *, changes_rows: bool) -> dict[str, str]:
    """Return the remedy of each option or property without counterpart."""
    return {
        name: one.remedy
        for one in found.outcomes
        if isinstance(one, Missing) and one.changes_rows is changes_rows
        for name in one.names
    }


def translated(
    properties: Mapping[str, str] | None = None,
    source_schema: Path | None = None,
    /,
    **options: str | None,
) -> Translation:
    """Return the translation of a job; see ``job``."""
    return translate(job(properties, source_schema, **options))


def schema_file(folder: Path, text: str = ORDER_SCHEMA) -> Path:
    """Write a schema file, and return its path."""
    file = folder / "order.avsc"
    file.write_text(text)
    return file


def chain(*classes: str) -> str:
    """Return the value of ``--transformer-class`` for classes of Apache Hudi."""
    return ",".join(f"{TRANSFORMS}{name}" for name in classes)
