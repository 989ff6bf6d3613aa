from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from rich.console import Console

from lakemark.errors import InvalidConfig
from streamer.row_output import (
    check_file,
    first_rows,
    json_texts,
    print_rows,
    write_file,
    write_json_lines,
)

ROWS = pa.table(
    {
        "id": ["a", "b [x]", None],
        "price": pa.array([Decimal("1.10"), None, None], pa.decimal128(5, 2)),
        "day": [date(2026, 5, 1), None, None],
        "at": pa.array([datetime(2026, 5, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
    }
)
NESTED = pa.table({"tags": [["a"], None], "raw": [b"\xff", None]})


def test_parquet_and_csv_hold_what_was_read(tmp_path: Path) -> None:
    assert write_file(ROWS.to_batches(), ROWS.schema, tmp_path / "rows.parquet") == 3
    assert pyarrow.parquet.read_table(tmp_path / "rows.parquet") == ROWS
    assert write_file(ROWS.to_batches(), ROWS.schema, tmp_path / "rows.csv") == 3
    options = pyarrow.csv.ConvertOptions(column_types=ROWS.schema, strings_can_be_null=True)
    read = pyarrow.csv.read_csv(tmp_path / "rows.csv", convert_options=options)
    assert read == ROWS


BINARY = pa.table(
    {
        "raw": pa.array([b"\xff\x00", None, b"", b'a,"b'], pa.binary()),
        "large": pa.array([b"\xff", None, None, None], pa.large_binary()),
        "fixed": pa.array([b"\x80\x81", None, None, None], pa.binary(2)),
        "id": ["a", None, "", "b"],
    }
)


def test_csv_holds_bytes_as_json_lines_do(tmp_path: Path) -> None:
    assert write_file(BINARY.to_batches(), BINARY.schema, tmp_path / "rows.csv") == 4
    assert (tmp_path / "rows.csv").read_text().splitlines() == [
        '"raw","large","fixed","id"',
        '"/wA=","/w==","gIE=","a"',
        ",,,",
        '"",,,""',
        '"YSwiYg==",,,"b"',
    ]
    write_file(BINARY.to_batches(), BINARY.schema, tmp_path / "rows.jsonl")
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["raw"] for line in lines] == ["/wA=", None, "", "YSwiYg=="]


def test_decimals_have_no_exponent() -> None:
    prices = pa.array([Decimal(0), Decimal("1E+2")], pa.decimal128(38, 18))
    rows = pa.record_batch({"price": prices})
    zeros = "0" * 18
    texts = [json.loads(text)["price"] for text in json_texts(rows)]
    assert texts == [f"0.{zeros}", f"100.{zeros}"]


@pytest.mark.parametrize("extension", [".csv", ".jsonl", ".parquet"])
def test_a_file_that_cannot_be_written_is_named_itself(tmp_path: Path, extension: str) -> None:
    file = tmp_path / f"rows{extension}"
    (tmp_path / f".rows{extension}.part").mkdir()
    with pytest.raises(OSError, match=r"name a folder with free space") as raised:
        write_file(ROWS.to_batches(), ROWS.schema, file)
    assert str(raised.value).startswith(f"--out {file}: ")
    assert ".part" not in str(raised.value)


def test_path_of_an_output_file_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"the folder .*missing does not exist; create"):
        check_file(tmp_path / "missing" / "rows.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidConfig, match=r"folder\.csv: this is a folder"):
        check_file(tmp_path / "folder.csv")


def test_empty_grid_prints_a_message(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=100)
    assert print_rows([], console) == 0
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "no rows\n"


def test_json_lines_are_exact(tmp_path: Path) -> None:
    assert write_file(ROWS.to_batches(), ROWS.schema, tmp_path / "rows.jsonl") == 3
    first, *_ = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(first) == {
        "id": "a",
        "price": "1.10",
        "day": "2026-05-01",
        "at": "2026-05-01T00:00:00+00:00",
    }
    out = io.StringIO()
    write_json_lines(NESTED.to_batches(), out)
    assert out.getvalue() == '{"tags": ["a"], "raw": "/w=="}\n{"tags": null, "raw": null}\n'


def test_an_unknown_extension_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InvalidConfig, match=r"ends in \.parquet, \.jsonl, \.csv"):
        check_file(Path("rows.xlsx"))


def test_csv_refuses_nested_columns_and_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("before")
    with pytest.raises(InvalidConfig, match="cannot hold tags"):
        write_file(NESTED.to_batches(), NESTED.schema, file)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.csv"]
    assert file.read_text() == "before"


def test_a_limit_ends_reading() -> None:
    def endless() -> object:
        while True:
            yield ROWS.to_batches()[0]

    limited = list(first_rows(endless(), 7))  # type: ignore[arg-type]
    assert [batch.num_rows for batch in limited] == [3, 3, 1]
    assert sum(batch.num_rows for batch in first_rows(ROWS.to_batches(), None)) == 3


def test_times_on_the_screen_are_in_iso_8601() -> None:
    console = Console(file=io.StringIO(), width=100)
    at = datetime(2026, 1, 31, 6, 0, 0, 100_000, UTC)
    print_rows(pa.table({"at": [at], "day": [at.date()]}).to_batches(), console)
    assert isinstance(console.file, io.StringIO)
    assert "2026-01-31T06:00:00.100000+00:00  2026-01-31" in console.file.getvalue()


def test_rows_on_the_screen_show_brackets_and_nulls() -> None:
    console = Console(file=io.StringIO(), width=100)
    assert print_rows(ROWS.to_batches(), console) == 3
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "b [x]" in shown
    assert "NULL" in shown


def test_null_empty_text_and_none_differ_on_the_screen() -> None:
    console = Console(file=io.StringIO(), width=100)
    rows = pa.table({"a": [None, "", "none"], "n": [1, None, 3], "is": [True, False, None]})
    print_rows(rows.to_batches(), console)
    assert isinstance(console.file, io.StringIO)
    shown = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert shown == [
        "a        n  is",
        "NULL     1  true",
        "      NULL  false",
        "none     3  NULL",
    ]


def test_numbers_that_json_has_no_word_for_are_texts() -> None:
    rows = pa.table({"n": [float("nan"), 1.5], "inner": [[float("inf"), -float("inf")], None]})
    out = io.StringIO()
    write_json_lines(rows.to_batches(), out)
    assert [
        json.loads(line, parse_constant=pytest.fail) for line in out.getvalue().splitlines()
    ] == [
        {"n": "NaN", "inner": ["Infinity", "-Infinity"]},
        {"n": 1.5, "inner": None},
    ]


def test_times_outside_of_the_years_of_python_are_shown() -> None:
    """Times outside Python's range, which Spark writes up to the year 294247, are shown."""
    at = pa.array([0, 253_402_300_800_000_000], pa.int64()).view(pa.timestamp("us", "UTC"))
    day = pa.array([0, -800_000], pa.int32()).view(pa.date32())
    inner = pa.StructArray.from_arrays([at], ["at"])
    mapped = pa.MapArray.from_arrays([0, 1, 2], ["a", "b"], at)
    listed = pa.ListArray.from_arrays([0, 1, 2], at)
    rows = pa.table([at, day, inner, mapped, listed], ["at", "day", "inner", "mapped", "listed"])
    out = io.StringIO()
    assert write_json_lines(rows.to_batches(), out) == 2
    first, second = map(json.loads, out.getvalue().splitlines())
    assert (first["at"], first["day"]) == ("1970-01-01T00:00:00+00:00", "1970-01-01")
    far = "10000-01-01T00:00:00.000000+00:00"
    assert second == {
        "at": far,
        "day": "-0221-09-04",
        "inner": {"at": far},
        "mapped": {"b": far},
        "listed": [far],
    }
    console = Console(file=io.StringIO(), width=200)
    assert print_rows(rows.to_batches(), console) == 2


def test_control_characters_of_a_value_do_not_reach_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=100)
    print_rows(pa.table({"s": ["\x1b]0;title\x07a\r\nb\tc\x9b"]}).to_batches(), console)
    assert isinstance(console.file, io.StringIO)
    assert r"\x1b]0;title\x07a\r\nb\tc\x9b" in console.file.getvalue()
