"""``lakemark query --explain``: prints which file groups a query reads, and why it skips others."""

from __future__ import annotations

import argparse

import pyarrow.compute as pc
from rich.console import Console

from lakemark.model.file_slice import FileSlice
from lakemark.operations.open_table import OpenTable
from lakemark.read.explanation import Explanation, SkipReason
from lakemark.read.queries import Query
from streamer.commands.query_condition import filter_with_duckdb, needs_duckdb
from streamer.commands.table import Facts, show_rows

_REASONS = {
    SkipReason.QUERY: "no file for this query",
    SkipReason.PARTITION: "partition",
    SkipReason.BUCKET: "bucket",
    SkipReason.RECORD_INDEX: "record index",
    SkipReason.SECONDARY_INDEX: "secondary index",
    SkipReason.STATISTICS: "statistics",
    SkipReason.BLOOM_FILTER: "Bloom filter",
}


def explain(table: OpenTable, query: Query, arguments: argparse.Namespace) -> None:
    """Print one row for each file group, and a summary unless JSON is printed.

    Raises:
        HudiError: as for the query itself.
    """
    explanation = _explanation(table, query, arguments)
    console = Console()
    show_rows(file_group_rows(explanation), console, arguments.json, "no file groups")
    if not arguments.json:
        console.print(str(explanation), markup=False, highlight=False, soft_wrap=True)


def _explanation(table: OpenTable, query: Query, arguments: argparse.Namespace) -> Explanation:
    where: pc.Expression | str | None = arguments.where
    if arguments.where is not None and needs_duckdb(arguments.where):
        scans = filter_with_duckdb(table, query, None, arguments.where, arguments.key).explain()
        # If the condition is false for any row, DuckDB reads nothing.
        where = scans[0].condition if scans else pc.scalar(False)
    return table.explain(query, where, arguments.key)


def file_group_rows(explanation: Explanation) -> list[Facts]:
    """Return one row for each file group."""
    found: list[tuple[FileSlice, str | None, tuple[str, ...]]]
    found = [(one, None, ()) for one in explanation.read]
    found += [(one.file_slice, _REASONS[one.reason], one.columns) for one in explanation.skipped]
    return [_row(*one) for one in sorted(found, key=lambda one: one[0].group)]


def _row(one: FileSlice, reason: str | None, columns: tuple[str, ...]) -> Facts:
    return {
        "partition": one.group.partition_path,
        "file id": one.group.file_id,
        "read": reason is None,
        "skipped by": reason,
        "columns": list(columns),
        "base bytes": None if one.base is None else one.base.size_bytes,
        "logs": len(one.logs),
        "log bytes": one.log_bytes,
    }
