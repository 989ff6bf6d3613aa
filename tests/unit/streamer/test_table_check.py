"""``lakemark table check`` finds errors of the metadata table, and counts repeated keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakemark.metadata import bootstrap
from lakemark.metadata.metadata_compaction import EVERY_DELTA_COMMITS
from lakemark.metadata.metadata_table_opener import METADATA_FOLDER
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.action import Action
from lakemark.operations.metadata_table import metadata_differences
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.folder_storage import FolderStorage
from lakemark.timeline.timeline_store import TimelineStore
from lakemark.view.file_lister import StorageFileLister
from streamer.cli import main
from tests.tables import INDEXES, Row, commit, data_files, make, writer


def test_missing_file_is_reported_and_a_rebuild_removes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "t")
    storage = open_storage(StorageLocation(place))
    make(storage)
    commit(writer(storage), [Row("a"), Row("b", region="south")])
    assert main(["table", "check", place]) == 0
    out = capsys.readouterr().out
    assert "agree with the files" in out
    assert "no rows" not in out
    gone = next(path for path in data_files(storage) if path.startswith("south/"))
    storage.delete([gone])
    assert main(["table", "check", place, "--json"]) == 1
    first, *ranges = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["path"], first["aspect"]) == (gone, "size")
    about_it = {gone.removeprefix("south/")}
    assert {reported["path"] for reported in ranges} == about_it, "statistics of it"
    own = {path: (tmp_path / "t" / path).read_bytes() for path in _metadata_files(tmp_path / "t")}
    assert main(["table", "check", place, "--rebuild"]) == 1
    assert "add --run to replace the metadata table" in capsys.readouterr().err
    assert own == {p: (tmp_path / "t" / p).read_bytes() for p in _metadata_files(tmp_path / "t")}
    assert main(["table", "check", place, "--rebuild", "--run"]) == 0


def test_check_with_run_needs_something_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "check", str(tmp_path), "--run"]) == 2
    assert "changes nothing without --rebuild" in capsys.readouterr().err


def test_keys_in_several_partitions_are_counted_and_are_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "t")
    storage = open_storage(StorageLocation(place))
    make(storage)
    commit(writer(storage), [Row("a"), Row("b")])
    assert main(["table", "check", place]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "unique within a partition; no record key of this table exists in more than one" in text
    commit(writer(storage), [Row("a", region="south")])
    assert main(["table", "check", place]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "1 record key exists in more than one partition, with 2 rows" in text
    assert "'a' in 'north', 'south'" in text
    assert main(["table", "check", place, "--json"]) == 0
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (found["keys"], found["rows"]) == (1, 2)
    assert found["examples"] == [{"key": "a", "partitions": ["north", "south"]}]
    assert main(["table", "check", place, "--skip-keys"]) == 0
    assert "unique" not in capsys.readouterr().out


def test_writer_continues_with_a_metadata_table_that_another_process_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = str(tmp_path / "t")
    storage = open_storage(StorageLocation(place))
    more = [(kind, prefix, 4) for kind, prefix, _ in bootstrap.PARTITIONS]
    with monkeypatch.context() as of_another:
        of_another.setattr(bootstrap, "PARTITIONS", more)
        make(storage, indexes=INDEXES)
    to = writer(storage)
    for number in range(EVERY_DELTA_COMMITS - 1):
        commit(to, [Row("a", number), Row("b", region="south")])
    assert main(["table", "check", place, "--rebuild", "--run"]) == 0
    for number in range(2):
        commit(to, [Row("a", 10 + number), Row(f"c{number}", region="west")])
    table = writer(storage).table
    assert metadata_differences(table) == []
    own = FolderStorage(storage, METADATA_FOLDER)
    files = {kind: count for kind, _, count in bootstrap.PARTITIONS}
    assert {kind: _file_groups(own, kind) for kind in files} == files
    assert not TimelineStore(own).load().completed(Action.COMMIT), "it has two commits"


def _metadata_files(table: Path) -> list[str]:
    files = (table / METADATA_FOLDER).rglob("*")
    return sorted(str(file.relative_to(table)) for file in files if file.is_file())


def _file_groups(own: Storage, kind: PartitionKind) -> int:
    files = StorageFileLister(own).list_files()[kind.stored_name]
    return len({file.name.file_id for file in files})
