"""``lakemark table rejects`` counts the records of a dead-letter table by reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakemark.storage import StorageLocation, open_storage
from streamer.cli import MISUSED, OK, main
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


def test_other_tables_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    commit(writer(storage), [Row("a")])
    assert main(["table", "rejects", str(tmp_path / "t")]) == MISUSED
    assert "is not a dead-letter table" in capsys.readouterr().err
