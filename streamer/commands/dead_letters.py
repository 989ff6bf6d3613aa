"""``lakemark dead-letters list`` and ``show``: views of a dead-letter table."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from lakemark.errors import InvalidConfig
from lakemark.model.python_values import python_rows
from lakemark.operations.open_table import OpenTable, open_table
from sinks.dead_letters import is_dead_letter_table, with_all_columns
from streamer.commands.letter_text import print_letters
from streamer.commands.location import open_named_table
from streamer.commands.table import Facts, show_rows
from streamer.config.load import load, load_tree
from streamer.config.routed_tree import chosen_value, has_route
from streamer.config.secrets import build_redactor
from streamer.routing.template import RouteTemplate
from streamer.table_setup import dead_letters_location, find_table
from transforms.rejects import REJECTS_SCHEMA

_PIPELINE_ENDINGS = (".yaml", ".yml")

#: What is printed if there are none at all. A pipeline with a route cannot be previewed.
_NONE = "no dead letters; a run that stops because too many records are rejected writes none, but "
_PREVIEW = "lakemark preview shows the records that it rejects"
_ERROR_OF_RUN = "its error shows the first of them"

#: What is printed if a stream with many tables has no dead letters of its own.
_NONE_OF_STREAM = (
    "no dead letters of records that belong to no table; --set route.value=NAME shows those of one "
    "table"
)

#: What a group of letters has in common.
_GROUP = ["code", "step", "reason"]

#: The columns that a view without raw records reads.
_WITHOUT_RECORD = [name for name in REJECTS_SCHEMA.names if name not in ("key", "value", "headers")]

#: The values and numbers in a reason. They are masked, so that similar reasons count as one. Names
#: of columns and fields are kept, and words that contain digits, such as ISO-8601.
_VALUE = re.compile(r"(?P<name>(?:column|field) '[^']*')|'[^']*'|(?<![\w-])\d[\d.,:-]*")


def execute(arguments: argparse.Namespace) -> int:
    """Print the dead letters, grouped or one by one.

    Raises:
        InvalidConfig: the table is not a dead-letter table, or the condition is not valid.
        HudiError: the table cannot be read.
    """
    table = _open(arguments)
    rows = [] if table is None else _rows(table, arguments)
    if rows and arguments.view == "show" and not arguments.json:
        print_letters(rows, Console(), in_full=arguments.full)
        return 0
    is_empty = not rows and not arguments.json
    show_rows(rows, Console(), arguments.json, _explain_none(table, arguments) if is_empty else "")
    return 0


def _rows(table: OpenTable, arguments: argparse.Namespace) -> list[Facts]:
    if arguments.view == "show":
        return list(islice(_records(table, arguments), arguments.limit))
    letters = _read(table, arguments.where, arguments.all, _WITHOUT_RECORD)
    return group_letters(pa.concat_tables([REJECTS_SCHEMA.empty_table(), *letters]))


def _explain_none(table: OpenTable | None, arguments: argparse.Namespace) -> str:
    """Return why nothing is printed: there are no letters, or only others."""
    if table is None or not any(one.num_rows for one in _read(table, None, True, ["offset"])):
        return _why_none(arguments)
    matching = "" if arguments.where is None else " matches --where"
    if arguments.all:
        return f"no dead letter{matching}, but there are others"
    return (
        f"no unresolved dead letter{matching}, but there are others; --all also shows those that a "
        "replay has resolved"
    )


def _why_none(arguments: argparse.Namespace) -> str:
    if not arguments.target.endswith(_PIPELINE_ENDINGS):
        return _NONE + _PREVIEW
    tree = load_tree(arguments.target, arguments.overrides)
    if not has_route(tree):
        return _NONE + _PREVIEW
    return _NONE_OF_STREAM if chosen_value(tree) is None else _NONE + _ERROR_OF_RUN


def _open(arguments: argparse.Namespace) -> OpenTable | None:
    """Return the dead-letter table; None if it is that of a stream, and does not exist yet."""
    target: str = arguments.target
    table: OpenTable | None
    if not target.endswith(_PIPELINE_ENDINGS):
        if arguments.overrides:
            message = "--set is for a pipeline file; a table has no settings"
            raise InvalidConfig(message)
        table = open_named_table(target, arguments.storage)
    elif arguments.storage:
        message = "--storage is for a table; a pipeline file has table.storage"
        raise InvalidConfig(message)
    else:
        table = _open_of_pipeline(arguments)
    if table is not None:
        check_dead_letters(table)
    return table


def _open_of_pipeline(arguments: argparse.Namespace) -> OpenTable | None:
    """Return the dead-letter table of a pipeline. With a route, it is that of the stream.

    If ``route.value`` is set, it is that of one table. The table of a stream is created with its
    first dead letter, so it may be missing (None).
    """
    file, overrides = arguments.target, arguments.overrides
    tree = load_tree(file, overrides)
    is_of_stream = has_route(tree) and chosen_value(tree) is None
    config = RouteTemplate.of(tree).of_letters() if is_of_stream else load(file, overrides)
    arguments.redacted = build_redactor(config)
    if not config.dead_letters.enabled:
        message = f"{file}: dead_letters.enabled is false, so there is no dead-letter table"
        raise InvalidConfig(message)
    location = dead_letters_location(config)
    return find_table(location) if is_of_stream else open_table(location)


def check_dead_letters(table: OpenTable) -> None:
    """Check that a table is a dead-letter table, or has no commit yet.

    Raises:
        InvalidConfig: it is another table.
    """
    if table.schema is not None and not is_dead_letter_table(table.schema):
        message = (
            f"table {table.location.url} is not a dead-letter table; name the pipeline file, or "
            "its dead-letter table (by default, the path of its table followed by _dead_letters)"
        )
        raise InvalidConfig(message)


def list_letters(table: OpenTable) -> list[Facts]:
    """Return the groups of the unresolved letters of a table."""
    letters = _read(table, None, False, _WITHOUT_RECORD)
    return group_letters(pa.concat_tables([REJECTS_SCHEMA.empty_table(), *letters]))


def _read(
    table: OpenTable, where: str | None, with_resolved: bool, columns: list[str]
) -> Iterator[pa.Table]:
    """Yield dead letters with all columns of ``REJECTS_SCHEMA``; those not read are null."""
    if table.schema is None:
        return
    stored = [name for name in columns if name in table.schema.names]
    for batch in table.scan(columns=stored, where=where).batches(1):
        letters = with_all_columns(pa.Table.from_batches([batch]))
        yield letters if with_resolved else letters.filter(letters["resolved_at"].is_null())


def group_letters(letters: pa.Table) -> list[Facts]:
    """Count letters by code, step and reason, the most frequent first.

    Each group also has the time of its first and last record, and the origin of one record. Letters
    of an earlier version have no code, and the stage is shown if there is no step.
    """
    reasons = letters.column("reason").combine_chunks().dictionary_encode()
    masked = [mask_values(reason) for reason in reasons.dictionary.to_pylist()]
    step = pc.coalesce(letters.column("step"), letters.column("stage"))
    columns = {
        "code": letters.column("code"),
        "step": step,
        "reason": pa.array(masked, pa.string()).take(reasons.indices),
        "timestamp": letters.column("timestamp"),
        "origin": _origins(letters),
    }
    aggregates = [
        ("origin", "count"),
        ("timestamp", "min"),
        ("timestamp", "max"),
        ("origin", "min"),
    ]
    counted = pa.table(columns).group_by(_GROUP).aggregate(aggregates)
    order = [("origin_count", "descending"), *((name, "ascending") for name in _GROUP)]
    return [
        {
            "records": row["origin_count"],
            "code": row["code"],
            "step": row["step"],
            "reason": row["reason"],
            "first": _time_text(row["timestamp_min"]),
            "last": _time_text(row["timestamp_max"]),
            "such as": row["origin_min"],
        }
        for row in python_rows(counted.sort_by(order))
    ]


def _origins(letters: pa.Table) -> pa.ChunkedArray:
    numbers = (pc.cast(letters.column(name), pa.string()) for name in ("partition", "offset"))
    return pc.binary_join_element_wise(letters.column("topic"), *numbers, ":")


def _records(table: OpenTable, arguments: argparse.Namespace) -> Iterator[Facts]:
    for letters in _read(table, arguments.where, arguments.all, REJECTS_SCHEMA.names):
        for row, origin in zip(python_rows(letters), _origins(letters).to_pylist(), strict=True):
            yield _facts(row, origin)


def _facts(row: dict[str, Any], origin: str) -> Facts:
    return {
        "origin": origin,
        "timestamp": _time_text(row["timestamp"]),
        "code": row["code"],
        "step": row["step"] or row["stage"],
        "column": row["column"],
        "reason": row["reason"],
        "schema id": row["schema_id"],
        "attempts": row["attempts"],
        "replayed in": row["replayed_in"],
        "resolved at": _time_text(row["resolved_at"]),
        "key": as_text(row["key"]),
        "value": as_text(row["value"]),
        "headers": _headers_text(row["headers"]),
    }


def _headers_text(headers: Sequence[Mapping[str, object]] | None) -> str | None:
    """Return headers as ``name=value``, with commas between them; None if there are none."""
    if not headers:
        return None
    return ", ".join(f"{one['key']}={as_text(one['value']) or ''}" for one in headers)


def _time_text(time: object) -> str | None:
    """Return a time as text; ``python_value`` has done so for a time that Python lacks."""
    return time.isoformat() if isinstance(time, datetime) else cast(str | None, time)


def as_text(content: object) -> str | None:
    """Return bytes as text if they are UTF-8, and otherwise as ``0x`` and hexadecimal digits."""
    if not isinstance(content, bytes):
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"0x{content.hex()}"


def mask_values(reason: str) -> str:
    """Return a reason without the values and numbers of one record."""
    return _VALUE.sub(lambda found: found["name"] or "…", reason)
