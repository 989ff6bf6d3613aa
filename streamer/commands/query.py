"""``lakemark query``: prints or exports rows of a table, or explains a query, without Spark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

import pyarrow as pa

from lakemark.errors import InvalidConfig, Refused
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.read.queries import Incremental, Query, ReadOptimized, Snapshot
from lakemark.read.scan import Scan
from streamer import row_output
from streamer.commands.location import open_named_table
from streamer.commands.query_condition import filter_with_duckdb, needs_duckdb
from streamer.commands.result_output import output_rows
from streamer.commands.selected_fields import columns_of, select_fields


def execute(arguments: argparse.Namespace) -> int:
    """Print the rows, or write them to a file.

    Raises:
        InvalidConfig: a column, the condition, a time or the file's extension is not valid.
        Refused: the rows cannot be exported, because the table has no commit and so no columns.
        HudiError: the table cannot be read.
    """
    if arguments.out is not None:
        row_output.check_file(arguments.out)
    query = _query(arguments)
    if arguments.explain:
        _refuse(arguments, ("columns", "limit", "out"), "--explain, which prints no rows")
    table = open_named_table(arguments.table, arguments.storage, arguments.merger)
    if arguments.explain and query is not None and table.is_schema_known:
        from streamer.commands.query_explain import explain

        explain(table, query, arguments)
        return 0
    rows = _rows(table, query, arguments)
    if table.schema is None:
        _report_no_commit(arguments)
    else:
        output_rows(rows, arguments)
    return 0


def _rows(
    table: OpenTable, query: Query | None, arguments: argparse.Namespace
) -> pa.RecordBatchReader:
    """Plan the query. Before the first commit, check only its arguments, because no rows exist."""
    # Few rows are printed, so one thread is enough and no data is read in advance.
    threads = None if arguments.out is not None and arguments.limit is None else 1
    if query is None:
        return table.changes(arguments.begin, arguments.end).to_reader(threads)
    names, where = arguments.columns, arguments.where
    columns = None if names is None else columns_of(names)
    is_for_duckdb = where is not None and needs_duckdb(where)
    if not table.is_schema_known:
        return table.scan(query, record_keys=arguments.key).to_reader(threads)
    if is_for_duckdb:
        rows = filter_with_duckdb(table, query, columns, where, arguments.key).to_reader()
    else:
        scan = table.scan(query, columns, where, arguments.key)
        rows = _without_meta_columns(scan, columns).to_reader(threads)
    return rows if names is None else select_fields(rows, names)


def _report_no_commit(arguments: argparse.Namespace) -> None:
    """Report that the table has no commit, so it has no columns and no file can be written."""
    if arguments.out is not None:
        message = (
            f"--out {arguments.out}: the table {arguments.table} has no commit yet, so it has no "
            "columns and no file was written; query it again after its first commit"
        )
        raise Refused(message)
    print("the table has no commit yet", file=sys.stderr)


def _query(arguments: argparse.Namespace) -> Query | None:
    """Return the query of the arguments; None for ``--type cdc``, which returns no rows."""
    has_range = arguments.type in ("incremental", "cdc")
    if has_range:
        _refuse(arguments, ("as_of",), f"--type {arguments.type}")
    elif arguments.begin is not None or arguments.end is not None:
        message = "--begin and --end need --type incremental or --type cdc"
        raise InvalidConfig(message)
    if has_range and arguments.begin is None:
        message = f"--type {arguments.type} needs --begin: an instant, a date, or earliest"
        raise InvalidConfig(message)
    match arguments.type:
        case "cdc":
            _refuse(arguments, ("columns", "where", "key", "explain"), "--type cdc")
            return None
        case "incremental":
            return Incremental(arguments.begin, arguments.end)
        case "read_optimized":
            return ReadOptimized(arguments.as_of)
        case _:
            return Snapshot(arguments.as_of)


def _refuse(arguments: argparse.Namespace, names: Iterable[str], other: str) -> None:
    """Refuse the first of these options that is given together with the other option."""
    given = [name for name in names if getattr(arguments, name) not in (None, False)]
    if given:
        option = "--" + given[0].replace("_", "-")
        message = f"{option} cannot be combined with {other}"
        raise InvalidConfig(message)


def _without_meta_columns(scan: Scan, columns: list[str] | None) -> Scan:
    """Omit Hudi's meta columns, unless the command line names columns."""
    return scan if columns else scan.with_columns(without_meta_columns(scan.schema).names)
