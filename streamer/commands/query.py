"""``lakemark query``: rows of a table, without Spark."""

from __future__ import annotations

import argparse
import sys

import pyarrow as pa
from rich.console import Console

from streamer import row_output
from streamer.commands.location import open_named_table
from streamer.where import parse_where
from table.errors import InvalidConfig
from table.hudi_table import HudiTable
from table.model.meta_columns import without_meta_columns

_ROWS_ON_SCREEN = 20


def execute(arguments: argparse.Namespace) -> int:
    """Print the rows, or write them to a file.

    Raises:
        InvalidConfig: a column, the condition or the file's extension.
        HudiError: the table cannot be read.
    """
    if arguments.out is not None:
        row_output.check_file(arguments.out)
    table = open_named_table(arguments.table, arguments.storage)
    schema = table.schema
    if schema is None:
        print("the table has no commit yet", file=sys.stderr)
        return 0
    return _query(arguments, table, schema)


def _query(arguments: argparse.Namespace, table: HudiTable, schema: pa.Schema) -> int:
    columns = arguments.columns or without_meta_columns(schema).names
    _check_columns(columns, schema)
    condition = parse_where(arguments.where, schema) if arguments.where else None
    read = table.read_optimized if arguments.type == "read_optimized" else table.snapshot
    rows = read(columns, condition)
    if arguments.out is not None:
        limited = row_output.first_rows(rows, arguments.limit)
        count = row_output.write_file(limited, rows.schema, arguments.out)
        print(f"{count:,} rows in {arguments.out}", file=sys.stderr)
    elif arguments.json:
        row_output.write_json_lines(row_output.first_rows(rows, arguments.limit), sys.stdout)
    else:
        _print(rows, arguments.limit)
    return 0


def _print(rows: pa.RecordBatchReader, limit: int | None) -> None:
    shown = limit or _ROWS_ON_SCREEN
    limited = pa.Table.from_batches(row_output.first_rows(rows, shown + 1), rows.schema)
    row_output.print_rows(limited.slice(0, shown).to_batches(), Console())
    if limit is None and limited.num_rows > shown:
        print(f"the first {shown} rows; --limit shows more, --out all", file=sys.stderr)


def _check_columns(columns: list[str], schema: pa.Schema) -> None:
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        message = f"--columns: no column {', '.join(unknown)}; there are {', '.join(schema.names)}"
        raise InvalidConfig(message)
