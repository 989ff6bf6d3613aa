"""Translates the transformers of a job to the steps of ``transform``.

Source: the transformers of ``org.apache.hudi.utilities.transform`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakemark.errors import InvalidConfig
from streamer.config.load import read
from streamer.migration.debezium import Step, debezium_losses, debezium_steps
from streamer.migration.dialect import find_differences
from streamer.migration.job import Job
from streamer.migration.outcome import Harmless, Missing, Outcome, Sets
from streamer.migration.query_text import Kind, Part, split_query, split_statements
from streamer.migration.schemas import SourceSchema, source_format
from transforms.steps.row_query import RECORDS

TRANSFORMERS = "--transformer-class"
_PACKAGE = "org.apache.hudi.utilities.transform."
_SQL, _SQL_FILE = "hoodie.streamer.transformer.sql", "hoodie.streamer.transformer.sql.file"

_SOURCE_TABLE = "<SRC>"

_NEEDS_SCHEMA = (
    "a pipeline with transform declares the columns of the records; name their Avro schema with "
    "--source-schema"
)


@dataclass(frozen=True, slots=True)
class _Transformer:
    """A transformer of a job.

    Attributes:
        class_name: the class.
        identity: the text that is appended to the names of its properties; "" if there is none.
    """

    class_name: str
    identity: str

    @classmethod
    def parse(cls, text: str) -> _Transformer:
        identity, colon, class_name = text.strip().rpartition(":")
        return cls(class_name, identity if colon else "")

    def property(self, name: str) -> str:
        """Return the name under which this transformer reads a property."""
        return f"{name}.{self.identity}" if self.identity else name


class _Untranslatable(ValueError):
    """A transformer has no counterpart; the message says what to do."""


def convert_transformers(job: Job, schema: SourceSchema | Missing | None) -> Iterator[Outcome]:
    """Yield what becomes of the source of Debezium and of the transformers.

    Args:
        job: the job.
        schema: what ``find_source_schema`` returned.
    """
    file = schema if isinstance(schema, SourceSchema) else None
    transformers = [_Transformer.parse(one) for one in job.get(TRANSFORMERS).split(",") if one]
    names = job.named(TRANSFORMERS, *_read_by(transformers))
    yield from _unread(job, names)
    steps: list[Step] = []
    differences: set[str] = set()
    try:
        if transformers and file is None:
            raise _Untranslatable(_NEEDS_SCHEMA)
        for transformer in transformers:
            query = _query(job, transformer)
            if query:
                columns = _known_columns(job, file, steps)
                differences |= find_differences(_of_records(query), columns)
            steps += [_sql_step(query)] if query else _steps(transformer, file)
    except _Untranslatable as reason:
        yield Missing(names, str(reason), True)
        steps, names, differences = [], (), set()
    yield from _dialect(names, differences)
    if source_format(job) == "debezium" and file is not None:
        yield from debezium_losses(job, file.columns, file.text)
        steps = [*debezium_steps(job), *steps]
    if steps or names:
        yield Sets("transform", steps, names)


def _known_columns(job: Job, schema: SourceSchema | None, steps: list[Step]) -> pa.Schema:
    """Return the columns that the next step reads; none if other steps have made them."""
    if schema is None or steps or source_format(job) == "debezium":
        return pa.schema([])
    return schema.columns


def _read_by(transformers: list[_Transformer]) -> list[str]:
    return [one.property(name) for one in transformers for name in (_SQL, _SQL_FILE)]


def _unread(job: Job, names: tuple[str, ...]) -> Iterator[Outcome]:
    """Yield the queries that no transformer reads."""
    unread = tuple(one for one in job.values if one.startswith(_SQL) and one not in names)
    if unread:
        yield Harmless(unread, "no transformer reads it")


def _query(job: Job, transformer: _Transformer) -> str | None:
    """Return the query of a transformer; None if it is not one of SQL.

    Raises:
        _Untranslatable: the query is missing.
    """
    match transformer.class_name.removeprefix(_PACKAGE):
        case "SqlQueryBasedTransformer":
            return _value(job, transformer, _SQL)
        case "SqlFileBasedTransformer":
            return _read_sql(_value(job, transformer, _SQL_FILE))
        case _:
            return None


def _steps(transformer: _Transformer, schema: SourceSchema | None) -> list[Step]:
    """Return the steps of a transformer without SQL.

    Raises:
        _Untranslatable: the transformer has no counterpart.
    """
    match transformer.class_name.removeprefix(_PACKAGE):
        case "FlatteningTransformer":
            return [{"step": "flatten"}]
        case "AWSDmsTransformer":
            has_column = schema is not None and "Op" in schema.columns.names
            return [] if has_column else [{"step": "add", "columns": {"Op": "''"}}]
        case _:
            message = (
                f"{transformer.class_name}: write a step python, sql or plugin that does the same"
            )
            raise _Untranslatable(message)


def _value(job: Job, transformer: _Transformer, name: str) -> str:
    written = transformer.property(name)
    if not job.has(written):
        message = f"{written} is missing; add it"
        raise _Untranslatable(message)
    return job.get(written)


def _read_sql(location: str) -> str:
    """Return the single statement of an SQL file.

    Raises:
        _Untranslatable: the file cannot be read, or has several statements.
    """
    try:
        text = read(re.sub(r"^file:(//(?=/))?", "", location))
    except InvalidConfig as error:
        raise _Untranslatable(str(error)) from error
    statements = split_statements(text)
    if len(statements) != 1:
        message = f"{Path(location).name} has {len(statements)} statements; write them as one query"
        raise _Untranslatable(message)
    return statements[0]


def _sql_step(query: str) -> Step:
    """Return the step of a query: of the table ``records``, and with names in double quotes."""
    named = _of_records(query.strip().removesuffix(";"))
    return {"step": "sql", "query": "".join(_for_duckdb(part) for part in split_query(named))}


def _of_records(query: str) -> str:
    return query.replace(_SOURCE_TABLE, RECORDS)


def _for_duckdb(part: Part) -> str:
    """Return a part of a query of Spark; a name has double quotes instead of backticks."""
    if part.kind is not Kind.NAME:
        return part.text
    name = part.text[1:-1].replace("``", "`").replace('"', '""')
    return f'"{name}"'


def _dialect(names: tuple[str, ...], differences: set[str]) -> Iterator[Outcome]:
    """Yield the parts of queries that may have another meaning in DuckDB than in Spark."""
    if differences:
        remedy = (
            f"the step sql runs the query in DuckDB instead of Spark; compare the results of "
            f"{', '.join(sorted(differences))} on some records"
        )
        yield Missing(names, remedy, True)
