"""Translates the target table of a job: its path, operation, record key and partitions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import compress

from lakemark.config import keys
from lakemark.config.key_generators import (
    TIMESTAMP_FIELD,
    KeyGeneratorType,
    find_implemented,
    infer_key_generator,
    type_of_class,
)
from lakemark.config.partition_field import PartitionField
from lakemark.config.table_spec import TABLE_NAME_PATTERN
from lakemark.config.time_folders import TimeFolders
from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig
from lakemark.storage import canonical_url
from streamer.config.masking import passwords_in
from streamer.migration.job import TABLE_TYPE, TARGET_PATH, TARGET_TABLE, Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.rule import shown

_WRITE = "hoodie.datasource.write."
RECORD_KEY, _PARTITION = f"{_WRITE}recordkey.field", f"{_WRITE}partitionpath.field"
_CLASS, _TYPE = f"{_WRITE}keygenerator.class", f"{_WRITE}keygenerator.type"
_OPERATION, FILTER = "--op", "--filter-dupes"
_DUPLICATES = "hoodie.merge.allow.duplicate.on.inserts"
_LOG_FORMAT = "hoodie.logfile.data.block.format"
CDC = "hoodie.table.cdc.enabled"
_CDC_MODE = "hoodie.table.cdc.supplemental.logging.mode"
_TIMES = (
    keys.TIMESTAMP_TYPE,
    keys.TIMESTAMP_SCALAR_UNIT,
    keys.TIMESTAMP_OUTPUT_FORMAT,
    keys.TIMESTAMP_OUTPUT_ZONE,
    keys.TIMESTAMP_ZONE,
)
_TYPES = {"MERGE_ON_READ": "merge_on_read", "COPY_ON_WRITE": "copy_on_write"}
_OPERATIONS = {"UPSERT": "upsert", "INSERT": "insert", "BULK_INSERT": "insert"}
_S3 = re.compile(r"s3[an]://")


def convert_table(job: Job) -> Iterator[Outcome]:
    """Yield what becomes of the target, the operation, the record key and the partitions."""
    yield from _target(job)
    yield from _operation(job)
    yield from _cdc(job)
    yield from _log_format(job)
    yield Sets("table.record_key", fields_of(job, RECORD_KEY), job.named(RECORD_KEY))
    yield from _partitions(job)


def fields_of(job: Job, name: str) -> list[str]:
    """Return the fields that a property names, separated by commas."""
    return [field.strip() for field in job.get(name).split(",") if field.strip()]


def inserts(job: Job) -> bool:
    """Return whether the job inserts records without looking for their keys."""
    return _OPERATIONS.get(job.get(_OPERATION, "UPSERT").upper()) == "insert"


def _target(job: Job) -> Iterator[Outcome]:
    missing = [name for name in (TARGET_PATH, TABLE_TYPE) if not job.has(name)]
    for name in missing:
        yield Missing((name,), "it is missing, but HoodieStreamer needs it; add it after --", True)
    if job.has(TARGET_PATH):
        yield from _path(job)
    kind = job.get(TABLE_TYPE).upper()
    if kind in _TYPES:
        yield Sets("table.type", _TYPES[kind], (TABLE_TYPE,))
    elif kind:
        yield Missing((TABLE_TYPE,), f"{shown(TABLE_TYPE, kind)} is no type of a table", True)
    name = job.get(TARGET_TABLE)
    if re.fullmatch(TABLE_NAME_PATTERN, name):
        yield Sets("table.name", name, (TARGET_TABLE,))
    elif name:
        yield Missing((TARGET_TABLE,), "the name of a table has letters, digits, _, . and -")


def _path(job: Job) -> Iterator[Outcome]:
    path = _S3.sub("s3://", job.get(TARGET_PATH)).rstrip("/")
    if passwords_in(path):
        remedy = "it contains a secret; put the secret in table.storage"
        yield Missing((TARGET_PATH,), remedy, True)
        return
    try:
        canonical_url(path)
    except (InvalidConfig, ValueError) as error:
        yield Missing((TARGET_PATH,), str(error), True)
        return
    yield Sets("table.path", path, (TARGET_PATH,))


def _operation(job: Job) -> Iterator[Outcome]:
    given = job.get(_OPERATION, "UPSERT").upper()
    operation = _OPERATIONS.get(given)
    if operation is None:
        remedy = f"{shown(_OPERATION, given)} has no counterpart; a pipeline upserts or inserts"
        yield Missing((_OPERATION,), remedy, True)
        return
    has_key = bool(fields_of(job, RECORD_KEY))
    comment = ""
    if given == "BULK_INSERT":
        comment = "A bulk insert of HoodieStreamer also sorts the rows of a batch."
    if not has_key and operation == "upsert":
        remedy = "without record key fields, HoodieStreamer needs --op INSERT; add the fields"
        yield Missing((RECORD_KEY,), remedy, True)
    yield Sets("table.operation", operation, job.named(_OPERATION), comment)
    yield from _replaced_rows(job, given)
    if not job.is_set(FILTER):
        return
    if operation == "insert" and has_key:
        yield Sets("table.duplicates", "drop", (FILTER,))
    else:
        yield Harmless((FILTER,), "it applies to inserts of records with a key")


def _replaced_rows(job: Job, operation: str) -> Iterator[Outcome]:
    """Yield whether inserts replace rows in the files to which they are added."""
    names = job.named(_DUPLICATES)
    if job.has(_DUPLICATES) and not job.is_set(_DUPLICATES) and operation == "INSERT":
        remedy = (
            "an insert of the job replaces a row of the same key if it is added to the row's file, "
            "but lakemark adds it as a second row; use --op UPSERT, or drop it with --filter-dupes"
        )
        yield Missing(names, remedy, True)
    elif names:
        yield Harmless(names, "no insert of the job replaces a row")


def _cdc(job: Job) -> Iterator[Outcome]:
    names = job.named(CDC, _CDC_MODE)
    if job.is_set(CDC):
        yield Sets("table.cdc", job.get(_CDC_MODE, "DATA_BEFORE_AFTER").lower(), names)
    elif names:
        yield Harmless(names, "the table logs no changes")


def _log_format(job: Job) -> Iterator[Outcome]:
    names, word = job.named(_LOG_FORMAT), job.get(_LOG_FORMAT).lower()
    if not names:
        return
    if job.is_merge_on_read and word in ("parquet", "avro"):
        yield Sets("table.log_format", word, names)
    elif job.is_merge_on_read and word:
        yield Missing(names, "lakemark writes log blocks in Parquet or Avro, and reads all formats")
    else:
        yield Harmless(names, "the table has no logs")


def _partitions(job: Job) -> Iterator[Outcome]:
    names = job.named(_PARTITION, _CLASS, _TYPE)
    fields = fields_of(job, _PARTITION)
    generator = _key_generator(job, fields)
    if generator is None:
        given = job.get(_CLASS) or job.get(_TYPE)
        remedy = f"lakemark has no key generator {given}; continue the table with Apache Hudi"
        yield Missing(names, remedy, True)
        yield Sets("table.partition_by", fields, job.named(_PARTITION))
        return
    times = job.named(*_TIMES)
    if generator not in (KeyGeneratorType.TIMESTAMP, KeyGeneratorType.CUSTOM):
        is_partitioned = generator is not KeyGeneratorType.NON_PARTITION
        yield Sets("table.partition_by", fields if is_partitioned else [], names)
        if times:
            yield Harmless(times, "the key generator formats no times")
        return
    yield from _time_partitions(job, generator, fields, (*names, *times))


def _key_generator(job: Job, fields: list[str]) -> KeyGeneratorType | None:
    """Return the key generator; None if lakemark does not implement it."""
    if job.has(_CLASS):
        return find_implemented(type_of_class(job.get(_CLASS)))
    if job.has(_TYPE):
        return find_implemented(job.get(_TYPE).upper())
    if any(":" in field for field in fields):
        return KeyGeneratorType.CUSTOM
    return infer_key_generator(tuple(fields_of(job, RECORD_KEY)), tuple(fields))


def _time_partitions(
    job: Job, generator: KeyGeneratorType, fields: list[str], names: tuple[str, ...]
) -> Iterator[Outcome]:
    """Yield the fields of a key generator that formats times."""
    typed = [field.partition(":") for field in fields]
    by_time = [
        generator is KeyGeneratorType.TIMESTAMP or kind.strip().upper() == TIMESTAMP_FIELD
        for _, _, kind in typed
    ]
    columns = [column.strip() for column, _, _ in typed]
    if not any(by_time):
        yield Sets("table.partition_by", columns, names)
        return
    values = {name: job.get(name) for name in _TIMES if job.has(name)}
    zone = values.get(keys.TIMESTAMP_ZONE) or values.get(keys.TIMESTAMP_OUTPUT_ZONE) or "UTC"
    try:
        folders = TimeFolders.of({**values, keys.TIMESTAMP_ZONE: zone})
    except InvalidConfig as error:
        yield Sets("table.partition_by", columns)
        yield Missing(names, f"{error}; {_remedy_of_folders(values, columns, by_time)}", True)
        return
    expressions = [
        str(PartitionField(column, folders.pattern.text, zone)) if is_time else column
        for column, is_time in zip(columns, by_time, strict=True)
    ]
    is_stored = generator is KeyGeneratorType.TIMESTAMP
    comments = [_columns_to_declare(list(compress(columns, by_time)))]
    if not is_stored:
        comments.append(_properties_to_add({**values, keys.TIMESTAMP_ZONE: zone}))
    yield Sets("table.partition_by", expressions, names, " ".join(comments))


def _remedy_of_folders(values: Mapping[str, str], columns: list[str], by_time: list[bool]) -> str:
    """Return what to do with a table whose folders lakemark cannot name."""
    remedy = "continue the table with Apache Hudi"
    try:
        pattern = TimePattern.parse(values.get(keys.TIMESTAMP_OUTPUT_FORMAT, ""))
    except InvalidConfig:
        return remedy
    text = pattern.text.replace("/", "-")  # a new table has one folder for each field
    fields = [
        str(PartitionField(column, text)) if is_time else column
        for column, is_time in zip(columns, by_time, strict=True)
    ]
    return (
        f"{remedy}, or write a new one: change table.path, declare the columns in decode.schema, "
        f"{', '.join(compress(columns, by_time))} as timestamp, and set table.partition_by: "
        f"[{', '.join(fields)}]"
    )


def _columns_to_declare(columns: list[str]) -> str:
    """Return a comment about times that are numbers, from which no new table can get its folders.

    A table that exists keeps its columns of integers.
    """
    return (
        f"If the table does not exist yet, {', '.join(columns)} must be of type timestamp. If "
        "decode.schema does not say so, declare the columns there."
    )


def _properties_to_add(values: dict[str, str]) -> str:
    """Return a comment with the format of times, which a custom key generator does not store."""
    lines = ", ".join(f"{name}={value}" for name, value in values.items())
    return (
        "A table with CustomKeyGenerator does not store how its times are formatted. Before the "
        f"first run, add to its .hoodie/hoodie.properties, each in a line: {lines}"
    )
