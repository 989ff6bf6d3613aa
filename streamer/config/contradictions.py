"""Settings that are fine one by one and cannot be used together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from streamer.config.decode import DecodeConfig
from streamer.config.errors import Problem
from streamer.config.run import DeadLettersConfig
from streamer.config.source import METADATA_PREFIX, SourceConfig
from streamer.config.table import TableConfig
from table.errors import InvalidConfig
from table.storage import place_of
from transforms.schema_text import parse_schema, parse_type


def find(
    source: SourceConfig, decode: DecodeConfig, table: TableConfig, dead_letters: DeadLettersConfig
) -> list[Problem]:
    """Every contradiction between the sections of one pipeline."""
    return [
        *_merging(table),
        *_tombstones(decode, table),
        *_rescuing(decode),
        *_columns(source, decode),
        *missing_columns(_known_columns(source, decode), table),
        *_places(table, dead_letters),
    ]


def missing_columns(known: Collection[str] | None, table: TableConfig) -> Iterator[Problem]:
    """Columns that the table's settings name and the rows do not have.

    Args:
        known: names of all columns of the rows; None while nobody knows them.
        table: the settings.
    """
    if known is None:
        return
    named = (
        ("record_key", table.record_key),
        ("partition_by", table.partition_by),
        ("ordering", table.ordering),
    )
    for setting, columns in named:
        for column in columns:
            # A dotted name is a field inside a struct: the struct is what must be there.
            if column not in known and column.partition(".")[0] not in known:
                text = f"{column!r} is not a column of decode.schema ({', '.join(sorted(known))})"
                yield Problem(f"table.{setting}", text)


def _merging(table: TableConfig) -> Iterator[Problem]:
    if table.merge_mode == "event_time" and not table.ordering:
        yield Problem("table.merge_mode", "event_time needs table.ordering: name the columns")
    if table.merge_mode == "commit_time" and table.ordering:
        text = "has no meaning with merge_mode commit_time; leave one of the two out"
        yield Problem("table.ordering", text)


def _tombstones(decode: DecodeConfig, table: TableConfig) -> Iterator[Problem]:
    if decode.tombstone_key != "raw":
        return
    if table.partition_by:
        text = "raw names no partition and table.partition_by is set; use json"
        yield Problem("decode.tombstone_key", text)
    if len(table.record_key) > 1:
        text = f"raw is one value and table.record_key has {len(table.record_key)}; use json"
        yield Problem("decode.tombstone_key", text)


def _rescuing(decode: DecodeConfig) -> Iterator[Problem]:
    if decode.unknown_fields == "rescue" and decode.rescue_column is None:
        yield Problem("decode.rescue_column", "missing: unknown_fields is rescue")
    if decode.unknown_fields == "ignore" and decode.rescue_column is not None:
        yield Problem("decode.rescue_column", "has no meaning while unknown_fields is ignore")


def _columns(source: SourceConfig, decode: DecodeConfig) -> Iterator[Problem]:
    declared = _declared(decode)
    if declared is None:
        return
    yield from _types(decode.columns)
    for column in _added_columns(source, decode):
        if column in declared:
            yield Problem(f"decode.schema.{column}", "another setting adds a column of this name")


def _types(columns: Mapping[str, str] | str) -> Iterator[Problem]:
    """One problem for each type that is none, or else the first name that cannot be kept."""
    typed = {} if isinstance(columns, str) else columns
    wrong = False
    for name, text in typed.items():
        try:
            parse_type(name, text)
        except InvalidConfig as error:
            wrong = True
            yield Problem("decode.schema", str(error))
    if not wrong:
        try:
            parse_schema(typed)
        except InvalidConfig as error:
            yield Problem("decode.schema", str(error))


def _places(table: TableConfig, dead_letters: DeadLettersConfig) -> Iterator[Problem]:
    if not dead_letters.path:
        return
    root, other = (place_of(path).rstrip("/") + "/" for path in (table.path, dead_letters.path))
    if other.startswith(root) or root.startswith(other):
        text = f"{dead_letters.path} and the table's path lie within each other"
        yield Problem("dead_letters.path", text)


def _known_columns(source: SourceConfig, decode: DecodeConfig) -> set[str] | None:
    declared = _declared(decode)
    return None if declared is None else declared | _added_columns(source, decode)


def _declared(decode: DecodeConfig) -> set[str] | None:
    """Names of the declared columns; None when they are inferred or in a file."""
    columns = decode.columns
    return set(columns) if isinstance(columns, Mapping) else None


def _added_columns(source: SourceConfig, decode: DecodeConfig) -> set[str]:
    rescued = () if decode.rescue_column is None else (decode.rescue_column,)
    return {*rescued, *(METADATA_PREFIX + name for name in source.metadata_columns)}
