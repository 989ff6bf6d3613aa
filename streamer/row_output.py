"""Writes rows to a file, or prints them as JSON lines or as a grid.

An output file is complete or absent, because it is written under a temporary name in the same
folder and then renamed. On the screen, a grid is as wide as its values need. If the terminal is
narrower, each value is printed on a line of its own, so that it can still be copied.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.python_values import python_rows

if TYPE_CHECKING:
    from rich.console import Console

Batches = Iterable[pa.RecordBatch]

#: Values by name. All rows of a grid have the same names.
Row = Mapping[str, object]

#: What a grid of facts shows for a fact that is absent, and one of rows for a null.
_ABSENT, _NULL = "none", "NULL"
_GAP = "  "
_MAX_CELL_LENGTH = 60

#: Characters that would move the cursor of a terminal, or colour the text after them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_file(path: Path) -> None:
    """Check the path of an output file before rows are read.

    Raises:
        InvalidConfig: the extension is not known, the path is a folder, or its folder does not
            exist.
    """
    if path.suffix not in _WRITERS:
        message = f"--out {path}: expected a name that ends in {', '.join(_WRITERS)}"
        raise InvalidConfig(message)
    if path.is_dir():
        message = f"--out {path}: this is a folder; name a file"
        raise InvalidConfig(message)
    if not path.parent.is_dir():
        message = (
            f"--out {path}: the folder {path.parent} does not exist; create it, or name another"
        )
        raise InvalidConfig(message)


def write_file(batches: Batches, schema: pa.Schema, path: Path) -> int:
    """Write all rows to ``path``, and replace an existing file.

    Returns:
        The number of rows.

    Raises:
        InvalidConfig: see ``check_file``; or CSV cannot hold the values of a column.
        OSError: the file cannot be written.
    """
    check_file(path)
    temporary = path.with_name(f".{path.name}.part")
    try:
        count = _WRITERS[path.suffix](batches, schema, temporary)
        temporary.replace(path)
    except OSError as error:
        # The error names the temporary file, which the user does not know.
        text = str(error).replace(temporary.name, path.name)
        reason = os.strerror(error.errno) if error.errno else text
        message = f"--out {path}: {reason}; name a folder with free space that you may write to"
        raise OSError(message) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return count


def write_json_lines(batches: Batches, out: TextIO) -> int:
    """Write one JSON object per line.

    Binary values are written as base64; decimals, times, NaN and infinity as text.

    Returns:
        The number of rows.
    """
    count = 0
    for batch in batches:
        for text in json_texts(batch):
            out.write(text + "\n")
        count += batch.num_rows
    return count


def json_texts(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield each row as a JSON object, as ``write_json_lines`` writes it."""
    return (json_text(row) for row in python_rows(batch))


def print_rows(batches: Batches, console: Console) -> int:
    """Print rows of a table as a grid, with long values shortened; return the number of rows."""
    rows = [row for batch in batches for row in python_rows(batch)]
    shown = [{name: screen_value(value) for name, value in row.items()} for row in rows]
    print_grid(shown, console, text_of=_text_of_value)
    return len(rows)


def first_rows(batches: Batches, limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield at most ``limit`` rows, and read no more than needed."""
    remaining = limit
    for batch in batches:
        if remaining is None:
            yield batch
            continue
        count = min(remaining, batch.num_rows)
        yield batch.slice(0, count)
        remaining -= count
        if remaining == 0:
            return


def _text_of_fact(value: object) -> str:
    if value is None or value in ("", [], {}):
        return _ABSENT
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, text in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _text_of_value(value: object) -> str:
    """Return a value of a row, where a null, an empty text and the text ``none`` must differ."""
    return _NULL if value is None else str(value)


def print_grid(
    rows: Sequence[Row],
    console: Console,
    if_empty: str = "no rows",
    *,
    text_of: Callable[[object], str] = _text_of_fact,
) -> None:
    """Print rows as a grid, with numbers aligned right.

    Args:
        rows: the rows.
        console: the screen.
        if_empty: what is printed if there are no rows.
        text_of: returns the text of a value; by default, values are facts, which may be absent.
    """
    from rich.cells import cell_len
    from rich.text import Text

    if not rows:
        console.print(Text(if_empty), soft_wrap=True)
        return
    texts = {name: [text_of(row[name]) for row in rows] for name in rows[0]}
    widths = {name: max(map(cell_len, (name, *column))) for name, column in texts.items()}
    if console.is_terminal and sum(widths.values()) + len(_GAP) * len(widths) > console.width:
        _print_expanded(rows, console, text_of)
        return
    aligned = [_align(name, texts[name], widths[name], _is_number(rows, name)) for name in texts]
    for number, line in enumerate(zip(*aligned, strict=True)):
        style = "bold" if number == 0 else ""
        console.print(Text(_GAP.join(line).rstrip(), style), soft_wrap=True)


def print_facts(
    facts: Row, console: Console, text_of: Callable[[object], str] = _text_of_fact
) -> None:
    """Print names and values, one pair per line; see ``print_grid``."""
    from rich.text import Text

    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        line = Text.assemble((name.ljust(width), "bold"), _GAP, text_of(value))
        console.print(line, soft_wrap=True)


def _print_expanded(
    rows: Sequence[Row], console: Console, text_of: Callable[[object], str]
) -> None:
    for number, row in enumerate(rows, 1):
        console.rule(f"[dim]{number}", align="left", style="dim")
        print_facts(row, console, text_of)


def _align(name: str, column: Sequence[str], width: int, to_right: bool) -> list[str]:
    from rich.cells import cell_len

    blanks = [" " * (width - cell_len(text)) for text in (name, *column)]
    pairs = zip((name, *column), blanks, strict=True)
    return [blank + text if to_right else text + blank for text, blank in pairs]


def _is_number(rows: Sequence[Row], name: str) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _write_parquet(batches: Batches, schema: pa.Schema, path: Path) -> int:
    import pyarrow.parquet

    count = 0
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_csv(batches: Batches, schema: pa.Schema, path: Path) -> int:
    import pyarrow.csv

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
    """Return the schema with text columns in place of binary columns."""
    return pa.schema([f.with_type(pa.string()) if _is_binary(f.type) else f for f in schema])


def _binary_as_base64(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Encode binary columns as base64, as in JSON lines, because binary values may not be text."""
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


def json_text(value: object) -> str:
    """Return a value as JSON. NaN and infinity, which JSON lacks, become text, as in Spark."""
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
    """Return a value as text, if JSON has no type for it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    assert isinstance(value, Decimal), type(value)
    return format(value, "f")  # str() would print 0 with 18 digits as 0E-18


def screen_value(value: object) -> object:
    """Return a value for the screen: null and numbers unchanged, other values as one short text.

    Control characters are escaped, because they would move the cursor of a terminal.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, int | float):
        return value
    text = escape_control(_cell_text(value))
    return text if len(text) <= _MAX_CELL_LENGTH else f"{text[: _MAX_CELL_LENGTH - 1]}…"


def escape_control(text: str) -> str:
    """Return a text in which control characters are escaped, as in Python."""
    return _CONTROL.sub(_escaped, text)


def _cell_text(value: object) -> str:
    if isinstance(value, list | dict):
        return json_text(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, bytes):  # for example a dead letter's value, which is mostly text
        with suppress(UnicodeDecodeError):
            return value.decode("utf-8")
    return str(value)


def _escaped(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode("ascii")
