"""``lakemark table validate`` finds what the metadata table says wrongly, and makes it anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamer.cli import main
from table.storage import StorageLocation, open_storage
from tests.tables import Row, commit, data_files, make, writer


def test_a_file_that_is_gone_is_found_and_a_rebuild_forgets_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "t")
    storage = open_storage(StorageLocation(place))
    make(storage)
    commit(writer(storage), [Row("a"), Row("b", region="south")])
    assert main(["table", "validate", place]) == 0
    assert "agree with the files" in capsys.readouterr().out
    gone = next(path for path in data_files(storage) if path.startswith("south/"))
    storage.delete([gone])
    assert main(["table", "validate", place, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["place"] == gone
    assert main(["table", "validate", place, "--rebuild"]) == 0
