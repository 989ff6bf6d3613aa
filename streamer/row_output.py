"""Rows of a query on their way out: a file by its extension, JSON lines, or a table to look at.

A file appears whole or not at all: it is written beside its place and renamed at the end.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TextIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from rich.console import Console

from lakemark.errors import InvalidConfig
from streamer.grid import print_grid

Batches = Iterable[pa.RecordBatch]

_LONGEST_CELL = 60

#: What would move the cursor of a terminal, or colour what follows.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_file(path: Path) -> None:
    """Refuse a file that no format is known for or no folder is there for, before rows are read.

    Raises:
        InvalidConfig: its extension is unknown, or it cannot be made where it is to lie.
    """
    if path.suffix not in _WRITERS:
        message = f"--out {path}: expected a name that ends in {', '.join(_WRITERS)}"
        raise InvalidConfig(message)
    if path.is_dir():
        message = f"--out {path}: a folder is there; name another file"
        raise InvalidConfig(message)
    if not path.parent.is_dir():
        message = f"--out {path}: there is no folder {path.parent}; make it, or name another folder"
        raise InvalidConfig(message)


def write_file(batches: Batches, schema: pa.Schema, path: Path) -> int:
    """Write all rows to ``path``, replacing what is there; returns how many.

    Raises:
        InvalidConfig: see ``check_file``; or CSV cannot hold a column.
        OSError: the file cannot be written.
    """
    check_file(path)
    prepared = path.with_name(f".{path.name}.part")
    try:
        count = _WRITERS[path.suffix](batches, schema, prepared)
        prepared.replace(path)
    except OSError as error:
        # The error names the part, which nobody has asked for.
        told = str(error).replace(prepared.name, path.name)
        reason = os.strerror(error.errno) if error.errno else told
        message = f"--out {path}: {reason}; name a place with room that this user may write to"
        raise OSError(message) from error
    finally:
        with suppress(OSError):
            prepared.unlink(missing_ok=True)
    return count


def write_json_lines(batches: Batches, out: TextIO) -> int:
    """Write one JSON object a line; binary as base64, decimals, times, NaN and infinity as text."""
    count = 0
    for batch in batches:
        for row in _python_rows(batch):
            out.write(_json(row) + "\n")
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
        taken = min(left, batch.num_rows)
        yield batch.slice(0, taken)
        left -= taken
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
    with pyarrow.csv.CSVWriter(path, _with_text(schema)) as writer:
        for batch in batches:
            writer.write_batch(_binary_as_base64(batch))
            count += batch.num_rows
    return count


def _with_text(schema: pa.Schema) -> pa.Schema:
    """The schema with text where there are bytes."""
    return pa.schema([f.with_type(pa.string()) if _is_binary(f.type) else f for f in schema])


def _binary_as_base64(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as JSON lines hold them: bytes need not be text, so all of them are base64."""
    columns = [_base64(column) if _is_binary(column.type) else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=_with_text(batch.schema))


def _base64(column: pa.Array) -> pa.Array:
    values = column.to_pylist()
    return pa.array([None if value is None else _plain(value) for value in values], pa.string())


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _write_json_file(batches: Batches, schema: pa.Schema, path: Path) -> int:
    with path.open("w", encoding="utf-8") as out:
        return write_json_lines(batches, out)


_WRITERS: dict[str, Callable[[Batches, pa.Schema, Path], int]] = {
    ".parquet": _write_parquet,
    ".jsonl": _write_json_file,
    ".csv": _write_csv,
}


def _json(value: object) -> str:
    """``value`` as JSON, which has no number for NaN and infinity: they are texts, as in Spark."""
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_with_finite_numbers(value), default=_plain, ensure_ascii=False)


def _with_finite_numbers(value: object) -> object:
    if isinstance(value, dict):
        return {name: _with_finite_numbers(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_finite_numbers(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


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
    if isinstance(value, list | dict):
        text = _json(value)
    else:
        text = value.isoformat() if isinstance(value, date | datetime | time) else str(value)
    text = _CONTROL.sub(_escaped, text)
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")


def _python_rows(batch: pa.RecordBatch) -> list[dict[str, object]]:
    try:
        rows: list[dict[str, object]] = batch.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):  # a time outside of the years 1 to 9999
        return [_python_row(batch, row) for row in range(batch.num_rows)]
    return rows


def _python_row(batch: pa.RecordBatch, row: int) -> dict[str, object]:
    names = batch.schema.names
    return {name: _python_value(batch.column(at)[row]) for at, name in enumerate(names)}


def _python_value(value: pa.Scalar) -> object:
    """The value in Python; a time that Python cannot hold as text of the same form."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.MapScalar):
        keys, values = value.values.flatten()
        pairs = zip(keys, values, strict=True)
        return {str(_python_value(key)): _python_value(one) for key, one in pairs}
    if isinstance(value, pa.StructScalar):
        return {name: _python_value(one) for name, one in value.items()}
    if isinstance(value, pa.ListScalar):
        return [_python_value(one) for one in value]
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        text: str = value.cast(pa.string()).as_py()
        return text.replace(" ", "T").replace("Z", "+00:00")
