"""``lakemark table rejects`` counts the records of a dead-letter table by reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakemark.storage import StorageLocation, open_storage
from streamer.cli import MISUSED, OK, main
from streamer.commands.table_rejects import mask_values
from tests.json_stream import JsonStream
from tests.tables import Row, commit, make, writer


def test_reasons_are_counted_without_the_values_that_they_quote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = JsonStream(StorageLocation(str(tmp_path / "t")))
    stream.write([{"id": "a", "ts": 1}, {"id": "b", "ts": "x"}, {"id": "c", "ts": "y"}, {"ts": 1}])
    letters = stream.rejects.table.location.url
    assert main(["table", "rejects", letters, "--json"]) == OK
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["records"], second["records"]) == (2, 1)
    assert "…" in first["reason"]
    assert first["such_as"].count(":") == 2
    assert main(["query", letters, "--columns", "value,reason"]) == OK
    assert '{"id": "b", "ts": "x"}' in capsys.readouterr().out, "a value is shown as text"


def test_masked_reason_keeps_the_column() -> None:
    reasons = {
        "column 'a1': text 'x' is not a timestamp (ISO-8601, or 13 digits)",
        "column 'a1': text '7' is not a timestamp (ISO-8601, or 13 digits)",
        "column 'b': 2026-05-01 12:30:05.5 does not fit",
        "field 'c' is not declared, and decode.unknown_fields is reject",
    }
    assert {mask_values(reason) for reason in reasons} == {
        "column 'a1': text … is not a timestamp (ISO-8601, or … digits)",
        "column 'b': … … does not fit",
        "field 'c' is not declared, and decode.unknown_fields is reject",
    }


def test_other_tables_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    commit(writer(storage), [Row("a")])
    assert main(["table", "rejects", str(tmp_path / "t")]) == MISUSED
    assert "is not a dead-letter table" in capsys.readouterr().err
