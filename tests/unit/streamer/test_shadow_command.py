"""``lakemark shadow`` refuses a second table that it must not write, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import yaml

import lakemark
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.cli import FAILED, MISUSED, main

ROWS = pa.table({"id": ["1", "2"], "ts": pa.array([1, 1], pa.int64())})


@pytest.fixture
def file(tmp_path: Path) -> str:
    tree = {
        "source": {"bootstrap_servers": "localhost:1", "topic": "orders"},
        "decode": {"schema": {"id": "string", "ts": "bigint"}},
        "table": {"path": str(tmp_path / "orders"), "record_key": "id", "ordering": "ts"},
        "dead_letters": {"path": str(tmp_path / "letters")},
    }
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(tree))
    return str(path)


def create(path: Path) -> None:
    table = lakemark.create(path, schema=ROWS.schema, record_key=["id"], ordering=["ts"])
    table.upsert(ROWS)


@pytest.mark.parametrize(
    ("second", "shared"),
    [
        ("orders", "orders"),
        ("orders/shadow", "orders"),
        ("../{folder}/orders", "orders"),
        ("", "orders"),
        ("letters", "letters"),
        ("letters/shadow", "letters"),
    ],
)
def test_folders_of_the_job_are_refused(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], second: str, shared: str
) -> None:
    path = tmp_path / second.format(folder=tmp_path.name)
    assert main(["shadow", file, "--to", str(path)]) == MISUSED
    printed = capsys.readouterr().err
    assert f"{tmp_path / shared} belongs to the job" in printed


def test_dead_letters_of_the_second_table_are_not_those_of_the_job(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = f"dead_letters.path={tmp_path / 'shadow_dead_letters'}"
    command = ["shadow", file, "--to", str(tmp_path / "shadow"), "--set", letters]
    assert main(command) == MISUSED
    assert "belongs to the job" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--from-topic"]], ids=["copied", "from topic"])
def test_incomplete_copy_is_not_continued(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    for name in ("orders", "shadow"):
        create(tmp_path / name)
    job = open_table(StorageLocation(str(tmp_path / "orders")))
    write_checkpoint(job, "", KafkaCheckpoint("orders", {0: 2}))
    assert main(["shadow", file, "--to", str(tmp_path / "shadow"), *options]) == FAILED
    assert "was not copied completely" in capsys.readouterr().err
