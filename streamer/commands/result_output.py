"""Prints the rows of a query or writes them to a file, by ``--json``, ``--out`` and ``--limit``."""

from __future__ import annotations

import argparse
import sys

import pyarrow as pa
from rich.console import Console

from streamer import row_output
from streamer.wording import counted

_ROWS_ON_SCREEN = 20


def output_rows(rows: pa.RecordBatchReader, arguments: argparse.Namespace) -> None:
    """Print or write rows.

    Args:
        rows: the rows; no more are read than are printed or written.
        arguments: the options ``json``, ``out`` and ``limit``.

    Raises:
        InvalidConfig: CSV cannot hold the values of a column.
        HudiError: the rows cannot be read.
        OSError: the file cannot be written.
    """
    limited = row_output.first_rows(rows, arguments.limit)
    if arguments.out is not None:
        count = row_output.write_file(limited, rows.schema, arguments.out)
        print(f"{counted(count, 'row')} in {arguments.out}", file=sys.stderr)
    elif arguments.json:
        row_output.write_json_lines(limited, sys.stdout)
    else:
        _print(rows, arguments.limit)


def _print(rows: pa.RecordBatchReader, limit: int | None) -> None:
    shown = limit or _ROWS_ON_SCREEN
    limited = pa.Table.from_batches(row_output.first_rows(rows, shown + 1), rows.schema)
    row_output.print_rows(row_output.first_rows(limited.to_batches(), shown), Console())
    if limit is None and limited.num_rows > shown:
        print(
            f"only the first {counted(shown, 'row')}; use --limit for more, --out FILE for all",
            file=sys.stderr,
        )
