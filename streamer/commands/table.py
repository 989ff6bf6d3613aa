"""``lakemark table show``, ``timeline`` and ``files``: views of a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pyarrow as pa
from rich.console import Console

from checkpoints import commit_keys
from checkpoints.lookup import find_progress
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.services.compaction_plan import delta_commits_uncompacted
from lakemark.timeline.clock import TimelineClock
from sinks.audit import Audit
from streamer.commands.location import open_named_table
from streamer.row_output import print_facts, print_grid
from transforms.schema_text import print_schema

#: What a view shows: values by name. With ``--json``, blanks in the names become ``_``.
Facts = Mapping[str, object]


def execute(arguments: argparse.Namespace) -> int:
    """Print one view of a table.

    Raises:
        HudiError: the table cannot be read.
    """
    table = open_named_table(arguments.table, arguments.storage)
    console = Console()
    if arguments.view == "show":
        show(describe(table), console, arguments.json)
    elif arguments.view == "timeline":
        show_rows(timeline_rows(table), console, arguments.json, "no instants")
    else:
        show_rows(file_rows(table), console, arguments.json, "no file slices")
    return 0


def describe(table: OpenTable) -> Facts:
    """Return the properties, columns, newest commit, checkpoint and sizes of a table."""
    properties, slices = table.properties, table.view().latest_slices()
    commits = [i for i in table.timeline.completed() if i.action.is_ingest]
    progress = find_progress(table, table.timeline)
    checkpoint = None if progress is None else progress.checkpoint
    schema = table.schema
    return {
        "name": properties.table_name,
        "location": table.location.url,
        "type": properties.table_type.value,
        "version": properties.version,
        "record key": list(properties.record_key_fields),
        "partitioned by": _partition_texts(properties),
        "merge mode": properties.merge_mode.value,
        "ordering": list(properties.ordering_fields),
        "columns": {} if schema is None else _columns(schema),
        "commits": len(commits),
        "last commit": commits[-1].requested_at if commits else None,
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "pending": [str(instant) for instant in table.timeline.pending()],
        "plans pending": len(pending := table.timeline.pending(Action.COMPACTION)),
        "oldest plan s": _age_s(pending[0], table.store.clock) if pending else None,
        "not compacted": delta_commits_uncompacted(table.timeline),
        "partitions": len({one.group.partition_path for one in slices}),
        "file groups": len(slices),
        "base file bytes": sum(one.base.size_bytes for one in slices if one.base),
        "log files": sum(len(one.logs) for one in slices),
        "log file bytes": sum(one.log_bytes for one in slices),
    }


def _partition_texts(properties: TableProperties) -> list[str]:
    """Return the fields of the partition path; for an expression also the column that stores it."""
    stored = properties.partition_expressions
    return [
        f"{field.expression} as {field.stored_column}" if field in stored else str(field)
        for field in properties.partition_by
    ]


def timeline_rows(table: OpenTable) -> list[Facts]:
    """Return one row for each instant, oldest first."""
    return [_instant_row(table, instant) for instant in table.timeline.instants]


def file_rows(table: OpenTable) -> list[Facts]:
    """Return one row for each file slice that a snapshot query would read."""
    return [
        {
            "partition": one.group.partition_path,
            "file id": one.group.file_id,
            "base instant": one.base_instant,
            "base bytes": None if one.base is None else one.base.size_bytes,
            "logs": len(one.logs),
            "log bytes": one.log_bytes,
        }
        for one in table.view().latest_slices()
    ]


def show(facts: Facts, console: Console, as_json: bool) -> None:
    """Print the facts, one line for each."""
    if as_json:
        print(json.dumps(for_programs(facts), indent=2, ensure_ascii=False))
    else:
        print_facts(facts, console)


def show_rows(
    rows: Sequence[Facts], console: Console, as_json: bool, if_empty: str = "no rows"
) -> None:
    """Print rows as a grid, or as one JSON object per line.

    Args:
        rows: the rows; all have the same names.
        console: where the grid is printed.
        as_json: whether to print JSON; if there are no rows, this prints nothing.
        if_empty: the text to print instead of an empty grid.
    """
    if as_json:
        for row in rows:
            print(json.dumps(for_programs(row), ensure_ascii=False))
    else:
        print_grid(rows, console, if_empty)


def for_programs(facts: Facts) -> Facts:
    """Return the facts with ``_`` for each blank in their names."""
    return {name.replace(" ", "_"): fact for name, fact in facts.items()}


def _instant_row(table: OpenTable, instant: Instant) -> Facts:
    has_metadata = instant.is_completed and instant.action.is_ingest
    commit = table.store.read_commit(instant) if has_metadata else CommitMetadata()
    stats = commit.write_stats
    checkpoint = commit_keys.decode(commit.extra_metadata, instant.requested_at)
    audit = Audit.in_commit(commit.extra_metadata)
    return {
        "requested": instant.requested_at,
        "action": instant.action.value,
        "state": instant.state.value,
        "completed": instant.completed_at,
        "operation": commit.operation if has_metadata else None,
        "files": len(stats),
        "rows": commit.rows_written,
        "deletes": sum(stat.num_deletes for stat in stats),
        "bytes": sum(stat.total_write_bytes for stat in stats),
        "records": None if audit is None else audit.records,
        "merged": None if audit is None else audit.merged,
        "rejected": None if audit is None else audit.rejected,
        "skipped": None if audit is None else audit.skipped,
        "ignored": None if audit is None else audit.ignored,
        "filtered": None if audit is None else audit.filtered,
        "added rows": None if audit is None else audit.added_rows,
        "lost": None if audit is None else audit.lost,
        "checkpoint": None if checkpoint is None else str(checkpoint),
    }


def _age_s(instant: Instant, clock: TimelineClock) -> int | None:
    """Return the age in whole seconds; None if the timeline's time zone is not known."""
    if clock.doubt is not None:
        return None
    return round((datetime.now(UTC) - clock.parse(instant.requested_at)).total_seconds())


def _columns(schema: pa.Schema) -> dict[str, str]:
    return {field.name: _type_text(field) for field in without_meta_columns(schema)}


def _type_text(field: pa.Field) -> str:
    """Return the type as ``decode.schema`` declares it, or that of Arrow, for example of a map."""
    try:
        return print_schema(pa.schema([field]))[field.name]
    except InvalidConfig:
        return str(field.type)
