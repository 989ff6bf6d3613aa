"""``lakemark table delete`` prints what it would delete, deletes rows, or erases every copy."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from lakemark.storage import StorageLocation, open_storage
from sinks.letter_layout import KEY_FIELDS
from streamer.cli import FAILED, MISUSED, OK, main
from streamer.commands.table_delete import NOT_ERASED
from tests.golden.golden_table import unpack
from tests.json_stream import JsonStream
from tests.rejection_days import Days, letters_at
from tests.tables import make
from tests.unit.operations.tables import FAST, contents, create, rows
from tests.unit.sinks.test_letters_by_day import DAY_1, DAY_2, bad
from tests.unit.sinks.test_replay import STRICT
from transforms.rejects import REJECTS_SCHEMA


@pytest.fixture
def table(tmp_path: Path) -> lakemark.Table:
    made = create(str(tmp_path / "orders"), buckets=1)
    made.upsert(rows(*((f"order-{n}", "north" if n % 2 else "south", 1, n) for n in range(6))))
    return made


def run(*words: str) -> int:
    return main(["table", "delete", *words, "--clock-skew-ms", "0", "--json"])


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def certificates(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    text, listed, decoder = capsys.readouterr().out.strip(), [], json.JSONDecoder()
    while text:
        one, end = decoder.raw_decode(text)
        listed.append(one)
        text = text[end:].strip()
    return listed


def test_rows_are_counted_and_deleted(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (table.location, "--where", "v >= 3")
    expected = [{"partition": "north", "rows": 2}, {"partition": "south", "rows": 1}]
    assert run(*command) == OK
    assert printed(capsys) == [{"instant": None, **one} for one in expected]
    assert len(contents(table)) == 6
    assert run(*command, "--key", "order-3", "--key", "order-4", "--run") == OK
    deleted = printed(capsys)
    assert [(one["partition"], one["rows"]) for one in deleted] == [("north", 1), ("south", 1)]
    assert all(one["instant"] for one in deleted)
    assert contents(table).keys() == {f"order-{n}" for n in (0, 1, 2, 5)}
    assert run(*command, "--key", "order-3", "--run") == OK
    assert printed(capsys) == []


def test_keys_come_from_a_file_or_the_standard_input(
    table: lakemark.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("\ufefforder-0\n\norder-1\nabsent\n", "utf-8")  # with a byte order mark
    assert run(table.location, "--keys", str(file), "--run") == OK
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufefforder-2"))
    assert run(table.location, "--keys", "-", "--key", "order-3", "--run") == OK
    assert contents(table).keys() == {"order-4", "order-5"}


def test_wrong_arguments_are_refused(
    table: lakemark.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, reason in (
        ([], "needs --key, --keys or --where"),
        (["--keys", str(tmp_path / "none")], "cannot be read"),
        (["--where", "nothing = 1"], "nothing"),
        (["--key", "a", "--dead-letters", "x"], "needs --erase"),
    ):
        assert run(table.location, *words, "--run") == MISUSED
        assert reason in capsys.readouterr().err
    absent = ["--key", "a", "--erase", "--dead-letters", str(tmp_path / "none")]
    assert run(table.location, *absent) == FAILED
    assert run(table.location, "--key", "a", "--erase", "--dead-letters", table.location) == MISUSED
    assert "is not a dead-letter table" in capsys.readouterr().err
    foreign = ["--key", "order-1", "--erase", "--dead-letters", table.location, "--run"]
    assert run(table.location, *foreign) == MISUSED, "before any row is deleted"
    assert len(contents(table)) == 6


def test_erase_removes_the_records_from_the_table_and_its_dead_letters(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = dead_letters(table, b'{"id": "order-1"}', b'{"id": "order-2"}', b"order-1;x")
    command = (table.location, "--key", "order-1", "--erase")
    assert run(*command) == OK
    planned = certificates(capsys)
    assert [(one["table"], one["record_keys"]) for one in planned] == [
        (table.location, 1),
        (letters.location, 2),
    ]
    assert all(one["files"] for one in planned)
    assert len(contents(table)) == 6

    assert run(*command, "--run") == OK
    done = certificates(capsys)
    assert [one["result"] for one in done] == ["no file contains one of the record keys"] * 2
    assert [one["deleted_rows"] for one in done] == [1, 2]
    assert all(not one["files"] and one["searched_files"]["base file"] for one in done)
    assert "order-1" not in contents(table)
    left = lakemark.open(letters.location).scan(columns=["value"]).to_table()
    assert left["value"].to_pylist() == [b'{"id": "order-2"}']


def test_erase_removes_dead_letters_of_several_days(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    days, location = Days(monkeypatch), StorageLocation(str(tmp_path / "orders"))
    stream = JsonStream(location, STRICT)
    stream.write([{"id": "a", "ts": 1}, *bad("a", "b")])
    days.advance()
    stream.write(bad("a", "c"))
    letters = stream.rejects.table.location
    named = ("--key", "a", "--erase", "--dead-letters", letters.url, "--run")
    assert run(location.url, *named) == OK
    assert [(row["offset"], row["_hoodie_partition_path"]) for row in letters_at(letters)] == [
        (2, DAY_1),
        (4, DAY_2),
    ]


def test_dead_letters_are_erased_although_an_earlier_process_has_deleted_them(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that dies after the deletion leaves the record in older file slices."""
    letters = dead_letters(table, b'{"id": "order-1", "name": "Ada"}', b'{"id": "order-2"}')
    letters.compact()
    letters.delete([letters.scan().to_table()["_hoodie_record_key"][0].as_py()])
    command = (table.location, "--key", "order-1", "--erase", "--run")
    assert run(*command) == OK
    assert [one["deleted_rows"] for one in certificates(capsys)] == [1, 0]
    stored = [pq.read_table(file) for file in Path(letters.location).glob("*.parquet")]
    assert [rows["value"].to_pylist() for rows in stored] == [[b'{"id": "order-2"}']]
    assert not [*Path(letters.location).glob(".*.log.*")]


def test_a_dead_letter_table_without_a_commit_does_not_prevent_an_erasure(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first start of a pipeline creates its dead-letter table."""
    letters = f"{table.location}_dead_letters"
    make(open_storage(StorageLocation(letters)))
    command = (table.location, "--key", "order-1", "--erase", "--run", "--dead-letters", letters)
    assert run(*command) == OK
    assert "has no commit yet, so it has no dead letters" in capsys.readouterr().err


def test_another_table_with_the_name_of_the_dead_letter_table_is_left_alone(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    other = create(f"{table.location}_dead_letters")
    other.upsert(rows(("order-1", "north", 1, 1)))
    assert run(table.location, "--key", "order-1", "--erase", "--run") == OK
    shown = capsys.readouterr()
    assert json.loads(shown.out)["table"] == table.location
    assert "_dead_letters is not a dead-letter table of lakemark, and is left" in shown.err
    assert contents(other).keys() == {"order-1"}


def test_records_of_a_table_of_apache_with_buckets_are_erased(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = str(unpack("v6_mor_avro_bucket", tmp_path).root)
    command = (root, "--key", "k0018", "--erase", "--run")
    assert run(*command) == MISUSED
    assert "buckets" in capsys.readouterr().err
    assert run(*command, "--buckets", "2") == OK
    (done,) = certificates(capsys)
    assert (done["deleted_rows"], done["result"][:7]) == (1, "no file")


def test_an_erasure_of_no_key_is_no_proof(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(Path(table.location).rglob("*"))
    assert run(table.location, "--where", "v = 77", "--erase", "--run") == OK
    shown = capsys.readouterr()
    assert not shown.out
    assert "nothing was searched or erased" in shown.err
    assert sorted(Path(table.location).rglob("*")) == before


def test_erase_fails_if_a_file_still_contains_a_record(
    table: lakemark.Table, capsys: pytest.CaptureFixture[str]
) -> None:
    base = next(Path(table.location).glob("north/*.parquet"))
    (base.parent / "copy.parquet").write_bytes(base.read_bytes())
    assert run(table.location, "--key", "order-1", "--erase", "--run") == NOT_ERASED
    (one,) = certificates(capsys)
    assert [file["file"] for file in one["files"]] == ["north/copy.parquet"]
    assert one["result"] == "1 file contains record keys, or cannot be read"


def dead_letters(table: lakemark.Table, *values: bytes) -> lakemark.Table:
    made = lakemark.create(
        f"{table.location}_dead_letters",
        schema=REJECTS_SCHEMA,
        record_key=list(KEY_FIELDS),
        merge_mode="COMMIT_TIME_ORDERING",
        buckets=1,
        multi_writer=FAST,
    )
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    given = [
        {"topic": "orders", "partition": 0, "offset": n, "timestamp": moment, "value": value}
        for n, value in enumerate(values)
    ]
    made.upsert(pa.Table.from_pylist(given, schema=REJECTS_SCHEMA))
    return made
