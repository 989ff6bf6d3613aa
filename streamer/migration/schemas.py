"""Translates the source class, the schema provider and the schema registry of a job."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pyarrow as pa

from lakemark.errors import HudiError
from lakemark.schema.avro import to_arrow
from lakemark.schema.canonical import canonical
from streamer.config.files_source import DECODED_AS
from streamer.config.load import read
from streamer.migration.debezium import debezium_database, debezium_fields
from streamer.migration.files import file_format
from streamer.migration.job import SOURCE_CLASS, Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.secrets import Reference, reference_to
from streamer.migration.tables import reads_table

SOURCES = "org.apache.hudi.utilities.sources."
_PROVIDERS = "org.apache.hudi.utilities.schema."

#: The format of each source that has a counterpart.
_FORMATS = {
    f"{SOURCES}JsonKafkaSource": "json",
    f"{SOURCES}AvroKafkaSource": "avro",
    f"{SOURCES}debezium.MysqlDebeziumSource": "debezium",
    f"{SOURCES}debezium.PostgresDebeziumSource": "debezium",
}
_PROVIDER, _TRANSFORMERS = "--schemaprovider-class", "--transformer-class"
_FILE_PROVIDERS = ("FilebasedSchemaProvider", "NullTargetFilebasedSchemaProvider")
_REGISTRY_PROVIDERS = ("SchemaRegistryProvider", "NullTargetSchemaRegistryProvider")

_SCHEMA_FILE = "hoodie.streamer.schemaprovider.source.schema.file"
_REGISTRY_URL = "hoodie.streamer.schemaprovider.registry.url"
_TARGET_URL = "hoodie.streamer.schemaprovider.registry.targetUrl"
_CLIENT_URL = "schema.registry.url"
_USER_INFO = ("basic.auth.user.info", "schema.registry.basic.auth.user.info")
_TOKEN = "bearer.auth.token"
_CREDENTIALS = ("basic.auth.credentials.source", "bearer.auth.credentials.source")

DESERIALIZER = "hoodie.streamer.source.kafka.value.deserializer.class"
#: The deserializer that resolves records to the schema of the schema provider.
_RESOLVING = "org.apache.hudi.utilities.deser.KafkaAvroSchemaDeserializer"
_CONFLUENT = ("io.confluent.kafka.serializers.KafkaAvroDeserializer", _RESOLVING)
_SERIALIZATION = "org.apache.kafka.common.serialization."
_PLAIN, TEXT = f"{_SERIALIZATION}ByteArrayDeserializer", f"{_SERIALIZATION}StringDeserializer"

#: The version of a schema that changes when a newer one is registered.
_LATEST = "latest"
_SUBJECT = re.compile(r"(?P<base>.*?)/subjects/(?P<subject>[^/]+)/versions/(?P<version>[^/?]+)/?")
_SOURCE_SCHEMA = "write the Avro schema of the records to a file, and name it with --source-schema"


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """An Avro schema file that describes the records.

    Attributes:
        location: the path, which is absolute if it is on a local disk, or the URL.
        names: the options and properties that name the file.
        text: the schema.
        columns: the columns of the schema.
    """

    location: str
    names: tuple[str, ...]
    text: str
    columns: pa.Schema


def find_source_schema(job: Job) -> SourceSchema | Missing | None:
    """Return the schema file of a job; None if there is none, ``Missing`` if it is not usable."""
    names = job.named(_PROVIDER, _SCHEMA_FILE)
    location = job.source_schema
    if location is None and _short(job.get(_PROVIDER)) in _FILE_PROVIDERS:
        location = job.get(_SCHEMA_FILE) or None
        if location is None:
            return Missing((_SCHEMA_FILE,), "it is missing; add it", True)
    if location is None:
        return None
    try:
        return read_schema(location, names)
    except HudiError as error:
        return Missing(names or ("--source-schema",), f"{error}; name a copy of the schema", True)


def read_schema(location: str, names: tuple[str, ...] = ()) -> SourceSchema:
    """Read an Avro schema file.

    Args:
        location: the path or URL of the file, as HoodieStreamer accepts it.
        names: the options and properties that name the file.

    Raises:
        HudiError: the file cannot be read, or has no schema that can be converted to columns.
    """
    location = _full_location(location)
    text = read(location)
    return SourceSchema(location, names, text, canonical(to_arrow(text)))


def source_format(job: Job) -> str | None:
    """Return ``json``, ``avro`` or ``debezium``; None if the source has no counterpart."""
    given = job.get(SOURCE_CLASS).lower()
    return next((kind for name, kind in _FORMATS.items() if name.lower() == given), None)


def convert_schemas(job: Job, schema: SourceSchema | Missing | None) -> Iterator[Outcome]:
    """Yield what becomes of the source class and the schema provider.

    Args:
        job: the job.
        schema: what ``find_source_schema`` returned.
    """
    file = schema if isinstance(schema, SourceSchema) else None
    if reads_table(job):
        yield from _columns_of_files(job, schema, "columns")
        return
    if (of_files := file_format(job)) is not None:
        yield from _columns_of_files(job, schema, DECODED_AS[of_files] or "json")
        return
    kind = source_format(job)
    if kind is None:
        yield _unsupported_source(job)
        return
    if isinstance(schema, Missing):
        yield schema
    if kind == "avro":
        yield from _avro(job, file)
    elif kind == "debezium" and file is None:
        yield Missing(job.named(SOURCE_CLASS, _PROVIDER), _SOURCE_SCHEMA, True)
        return
    elif kind == "debezium":
        yield from _debezium(job, file)
    else:
        yield Sets("decode.format", "json", job.named(SOURCE_CLASS))
        yield from _columns(job, file, is_avro=False)
        yield from _unused(job, DESERIALIZER, "it applies to Avro records")
    comment = "HoodieStreamer skips records without a value. To delete their rows, write delete."
    yield Sets("decode.tombstones", "ignore", (), comment)
    yield from _registry_leftovers(job, kind)


def _debezium(job: Job, schema: SourceSchema | None) -> Iterator[Outcome]:
    """Yield what becomes of a source of change events."""
    if job.get(DESERIALIZER) == TEXT:
        yield Sets("decode.format", "debezium", job.named(SOURCE_CLASS, DESERIALIZER))
        yield from _columns(job, schema, is_avro=False)
    else:
        yield from _avro(job, schema, "debezium")
        comment = "The table has dates and timestamps as numbers."
        yield Sets("decode.typed_times", False, (), comment)
    yield Sets("decode.database", debezium_database(job))
    yield Sets("decode.event_fields", debezium_fields(job))


def _columns_of_files(
    job: Job, schema: SourceSchema | Missing | None, kind: str
) -> Iterator[Outcome]:
    """Yield the format of the values of files or of a table, and their columns."""
    if isinstance(schema, Missing):
        yield schema
    yield Sets("decode.format", kind)
    file = schema if isinstance(schema, SourceSchema) else None
    if kind == "csv" and file is None:
        yield Missing(job.named(SOURCE_CLASS, _PROVIDER), _SOURCE_SCHEMA, True)
    else:
        yield from _columns(job, file, is_avro=False)


def _unsupported_source(job: Job) -> Missing:
    if not job.has(SOURCE_CLASS):
        remedy = "it is missing, and the default of HoodieStreamer reads files; add it"
        return Missing((SOURCE_CLASS,), remedy, True)
    remedy = (
        "lakemark reads Kafka topics with records of JSON or Avro, files of JSON, CSV, Parquet or "
        f"Avro, and tables of Hudi; {job.get(SOURCE_CLASS)} has no counterpart"
    )
    return Missing((SOURCE_CLASS,), remedy, True)


def _columns(job: Job, schema: SourceSchema | None, *, is_avro: bool) -> Iterator[Outcome]:
    """Yield the columns of the records."""
    provider, version = job.get(_PROVIDER), _provided_version(job)
    if schema is not None:
        yield Sets("decode.schema", {"avro": schema.location}, schema.names)
        if version == _LATEST:
            yield from _later_versions(job, is_avro=is_avro)
        return
    if not provider or (is_avro and version == _LATEST):
        comment = "The columns of the table; new fields become columns, as in HoodieStreamer."
        yield Sets("decode.schema", "infer", job.named(_PROVIDER), comment)
        if not job.has(_TRANSFORMERS):
            yield from _evolution()
        return
    yield Sets("decode.schema", "infer", (), "The columns of the table.")
    if is_avro and version is not None:
        remedy = (
            f"the rows have only the fields of version {version} of the schema; write this version "
            "to a file, and name it with --source-schema"
        )
        yield Missing(job.named(_PROVIDER, _REGISTRY_URL), remedy, True)
    elif _short(provider) not in _FILE_PROVIDERS:  # else the file is reported
        yield Missing(job.named(_PROVIDER), f"{provider}: {_SOURCE_SCHEMA}", True)


def _provided_version(job: Job) -> str | None:
    """Return the version of the schema that the schema provider reads from a registry.

    Returns:
        ``latest`` or a number; None if the provider reads no registry.
    """
    if _short(job.get(_PROVIDER)) not in _REGISTRY_PROVIDERS:
        return None
    registry = _Registry.of(job.get(_REGISTRY_URL))
    return _LATEST if registry is None else registry.version


def _later_versions(job: Job, *, is_avro: bool) -> Iterator[Outcome]:
    """Yield what becomes of fields that a later version of the schema in the registry adds."""
    reads_ids = is_avro and job.get(DESERIALIZER, _CONFLUENT[0]) in _CONFLUENT
    if reads_ids and not job.has(_TRANSFORMERS):
        yield from _evolution()
        return
    remedy = (
        "the job follows the latest version of the schema, but the pipeline ignores fields that "
        "the file lacks; after each new version, renew the file and restart the pipeline"
    )
    yield Missing(job.named(_PROVIDER, _REGISTRY_URL), remedy, True)


def _evolution() -> Iterator[Outcome]:
    yield Sets("decode.unknown_fields", "evolve")
    yield Sets("decode.wider_values", "evolve")


def _avro(job: Job, schema: SourceSchema | None, decode_format: str = "avro") -> Iterator[Outcome]:
    deserializer = job.get(DESERIALIZER, _CONFLUENT[0])
    names = job.named(SOURCE_CLASS, DESERIALIZER)
    if deserializer in _CONFLUENT:
        urls = [url for url in map(_Registry.of, _registry_urls(job)) if url is not None]
        if not urls:
            remedy = "it is missing, and the records name their schemas by its ids; add it"
            yield Missing((_CLIENT_URL,), remedy, True)
            return
        yield Sets("decode.format", decode_format, names)
        yield from _registry(job, urls)
        if deserializer == _RESOLVING:
            yield from _defaults(schema)
    elif deserializer == _PLAIN and schema is not None and decode_format == "avro":
        yield Sets("decode.format", "avro", job.named(SOURCE_CLASS))
        yield Sets("decode.wire_format", "plain", job.named(DESERIALIZER))
        yield Sets("decode.writer_schema", {"file": schema.location}, schema.names)
    else:
        what = _SOURCE_SCHEMA if deserializer == _PLAIN else "lakemark has no such deserializer"
        yield Missing(names, what, True)
        return
    yield from _columns(job, schema, is_avro=True)


def _defaults(schema: SourceSchema | None) -> Iterator[Outcome]:
    """Yield the defaults that a job gives fields which the schema of a record lacks."""
    if schema is None:
        remedy = (
            "if the schema of a record lacks a field, the job takes the default of the provider's "
            f"schema, but the pipeline null; for a list of such fields, {_SOURCE_SCHEMA}"
        )
        yield Missing((DESERIALIZER,), remedy, True)
    elif fields := list(_fields_with_default(json.loads(schema.text), "")):
        remedy = (
            f"if the schema of a record lacks {', '.join(fields)}, the job takes the default of "
            "the provider's schema, but the pipeline null; set it in a step of transform"
        )
        yield Missing((DESERIALIZER,), remedy, True)


def _fields_with_default(schema: object, path: str) -> Iterator[str]:
    """Yield the fields of an Avro schema that have a default other than null, by dotted names."""
    if isinstance(schema, list):
        for one in schema:
            yield from _fields_with_default(one, path)
    if not isinstance(schema, dict):
        return
    for field in schema.get("fields", ()):
        name = f"{path}{field['name']}"
        if field.get("default") is not None:
            yield name
        yield from _fields_with_default(field["type"], f"{name}.")
    for part in ("type", "items", "values"):
        yield from _fields_with_default(schema.get(part), path)


@dataclass(frozen=True, slots=True)
class _Registry:
    """The URL of a schema registry, without credentials.

    Attributes:
        url: the address of the registry.
        subject: the subject; None if the URL has none.
        version: the version of the schema; ``latest`` or a number.
        credentials: the user info of the URL, which is secret; "" if it has none.
    """

    url: str
    subject: str | None
    version: str
    credentials: str

    @classmethod
    def of(cls, text: str) -> _Registry | None:
        """Parse a URL; None if it is not one."""
        parts = urlsplit(text.split(",")[0].strip())
        if parts.scheme not in ("http", "https") or not parts.netloc:
            return None
        credentials, _, host = parts.netloc.rpartition("@")
        whole = f"{parts.scheme}://{host}{parts.path}".rstrip("/")
        found = _SUBJECT.fullmatch(whole)
        if found is None:
            return cls(whole, None, _LATEST, credentials)
        return cls(found["base"], found["subject"], found["version"], credentials)


def _registry_urls(job: Job) -> list[str]:
    return [job.get(name) for name in (_CLIENT_URL, _REGISTRY_URL) if job.has(name)]


def _registry(job: Job, urls: list[_Registry]) -> Iterator[Outcome]:
    """Yield the settings of the registry; the URL of the deserializer comes first."""
    yield Sets("decode.schema_registry.url", urls[0].url, job.named(_CLIENT_URL, _REGISTRY_URL))
    named = [one for one in urls if one.subject is not None]
    if named:
        pinned = named[0].version != _LATEST
        comment = f"HoodieStreamer used version {named[0].version}." if pinned else ""
        yield Sets("decode.subject", named[0].subject, job.named(_REGISTRY_URL), comment)
    yield from _access(job, any(one.credentials for one in urls))


def _access(job: Job, has_user_in_url: bool) -> Iterator[Outcome]:
    names = job.named(*_USER_INFO, *_CREDENTIALS)
    if job.has(_TOKEN):
        token = reference_to("SCHEMA_REGISTRY_TOKEN")
        yield Sets("decode.schema_registry.access.token", token, job.named(_TOKEN))
    elif job.first(*_USER_INFO) or has_user_in_url:
        origins = job.named(*_USER_INFO) or job.named(_CLIENT_URL, _REGISTRY_URL)
        for part in ("user", "password"):
            value: Reference = reference_to(f"SCHEMA_REGISTRY_{part.upper()}")
            yield Sets(f"decode.schema_registry.access.{part}", value, origins)
    yield from _explained(names, "decode.schema_registry.access has the credentials")


def _registry_leftovers(job: Job, kind: str) -> Iterator[Outcome]:
    """Yield what becomes of the registry's properties that other settings do not need."""
    if job.has(_TARGET_URL) and job.get(_TARGET_URL) != job.get(_REGISTRY_URL):
        remedy = "the table has the columns after the last step of transform; add steps"
        yield Missing((_TARGET_URL,), remedy, True)
    else:
        yield from _unused(job, _TARGET_URL, "it is the schema of the source")
    if kind != "avro":
        names = job.named(_REGISTRY_URL, _CLIENT_URL, *_USER_INFO, *_CREDENTIALS, _TOKEN)
        yield from _explained(names, "JSON records need no schema registry")
    yield from _unused(job, _SCHEMA_FILE, "no schema provider reads it")


def _explained(names: tuple[str, ...], reason: str) -> Iterator[Outcome]:
    if names:
        yield Harmless(names, reason)


def _unused(job: Job, name: str, reason: str) -> Iterator[Outcome]:
    yield from _explained(job.named(name), reason)


def _full_location(location: str) -> str:
    """Return the absolute path of a local file, or the URL."""
    if "://" in location and not location.startswith("file:"):
        return location
    return os.path.abspath(re.sub(r"^file:(//(?=/))?", "", location))


def _short(class_name: str) -> str:
    """Return the name of one of Apache Hudi's schema providers without its package."""
    return class_name.removeprefix(_PROVIDERS)
