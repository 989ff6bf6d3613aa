"""``lakemark sql``: runs an SQL query on tables, or explains it, without Spark."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Console

from lakemark.errors import InvalidConfig
from lakemark.sql.relation import TableScan
from lakemark.sql.run import open_query
from streamer import row_output
from streamer.commands.location import open_named_table
from streamer.commands.query_explain import file_group_rows
from streamer.commands.result_output import output_rows
from streamer.commands.table import Facts, for_programs
from streamer.row_output import print_facts, print_grid

_SHOWN = ("table", "columns", "condition")


def execute(arguments: argparse.Namespace) -> int:
    """Print the rows of the query, or write them to a file.

    Raises:
        InvalidConfig: the query or the file's extension is not valid, or DuckDB is not installed.
        HudiError: a table cannot be read.
    """
    if arguments.explain:
        _refuse_with_explain(arguments)
    if arguments.out is not None:
        row_output.check_file(arguments.out)
    text = sys.stdin.read() if arguments.query == "-" else arguments.query
    query = open_query(
        text, lambda path: open_named_table(path, arguments.storage, arguments.merger)
    )
    if arguments.explain:
        _print_scans(query.explain(), arguments)
        return 0
    output_rows(query.to_reader(), arguments)
    return 0


def _refuse_with_explain(arguments: argparse.Namespace) -> None:
    for name in ("limit", "out"):
        if getattr(arguments, name) is not None:
            message = f"--{name} cannot be combined with --explain, which prints no rows"
            raise InvalidConfig(message)


def _print_scans(scans: Sequence[TableScan], arguments: argparse.Namespace) -> None:
    """Print each scan with the file groups that it reads, or as one JSON object per line."""
    if arguments.json:
        for scan in scans:
            print(json.dumps(_facts(scan), ensure_ascii=False))
        return
    console = Console()
    for scan in scans:
        print_facts({name: fact for name, fact in _facts(scan).items() if name in _SHOWN}, console)
        if scan.explanation is not None:
            print_grid(file_group_rows(scan.explanation), console, "no file groups")
            console.print(str(scan.explanation), markup=False, highlight=False, soft_wrap=True)
    if not scans:
        console.print("reads no table")


def _facts(scan: TableScan) -> Facts:
    groups = None if scan.explanation is None else file_group_rows(scan.explanation)
    condition = None if scan.condition is None else " ".join(str(scan.condition).split())
    return {
        "table": str(scan.table),
        "columns": list(scan.columns),
        "condition": condition,
        "file_groups": None if groups is None else [for_programs(row) for row in groups],
    }
