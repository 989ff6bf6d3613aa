"""Rows of a query on their way out: a file by its extension, JSON lines, or a table to look at.

A file appears whole or not at all: it is written beside its place and renamed at the end.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from rich.console import Console

from streamer.grid import print_grid
from table.errors import InvalidConfig

Batches = Iterable[pa.RecordBatch]

_LONGEST_CELL = 60


def check_file(path: Path) -> None:
    """Refuse a file that no format is known for, before anything is read.

    Raises:
        InvalidConfig: its extension is unknown.
    """
    if path.suffix not in _WRITERS:
        message = f"--out {path}: expected a name that ends in {', '.join(_WRITERS)}"
        raise InvalidConfig(message)


def write_file(batches: Batches, schema: pa.Schema, path: Path) -> int:
    """Write all rows to ``path``, replacing what is there; returns how many.

    Raises:
        InvalidConfig: the extension is unknown, or CSV cannot hold a column.
        OSError: the file cannot be written.
    """
    check_file(path)
    prepared = path.with_name(f".{path.name}.part")
    try:
        count = _WRITERS[path.suffix](batches, schema, prepared)
        prepared.replace(path)
    finally:
        prepared.unlink(missing_ok=True)
    return count


def write_json_lines(batches: Batches, out: TextIO) -> int:
    """Write one JSON object a line; binary as base64, decimals and times as text."""
    count = 0
    for batch in batches:
        for row in _python_rows(batch):
            out.write(json.dumps(row, default=_plain, ensure_ascii=False) + "\n")
        count += batch.num_rows
    return count


def print_rows(batches: Batches, console: Console) -> int:
    """Print rows to look at, long values cut short; returns how many."""
    rows = [row for batch in batches for row in _python_rows(batch)]
    print_grid([{name: _cell(value) for name, value in row.items()} for row in rows], console)
    return len(rows)


def first_rows(batches: Batches, limit: int | None) -> Iterator[pa.RecordBatch]:
    """At most ``limit`` rows; stops reading once it has them."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if left == 0:
            return


def _write_parquet(batches: Batches, schema: pa.Schema, path: Path) -> int:
    count = 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_csv(batches: Batches, schema: pa.Schema, path: Path) -> int:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        message = (
            f"a CSV file cannot hold {', '.join(nested)} (nested); write .parquet or .jsonl, or "
            "name other columns with --columns"
        )
        raise InvalidConfig(message)
    count = 0
    with pyarrow.csv.CSVWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_json_file(batches: Batches, schema: pa.Schema, path: Path) -> int:
    with path.open("w", encoding="utf-8") as out:
        return write_json_lines(batches, out)


_WRITERS: dict[str, Callable[[Batches, pa.Schema, Path], int]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_json_file,
    ".csv": _write_csv,
}


def _plain(value: object) -> str:
    """What JSON has no type for, as text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    assert isinstance(value, Decimal), type(value)
    return str(value)


def _cell(value: object) -> object:
    """A value as it is shown: numbers as they are, the rest as one short text."""
    if value is None or isinstance(value, int | float):
        return value
    text = json.dumps(value, default=_plain) if isinstance(value, list | dict) else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _python_rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = batch.to_pylist(maps_as_pydicts="lossy")
    return rows
