"""Runs the examples of ``docs/sql.md``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

import lakemark
from streamer.cli import OK, main

pytest.importorskip("duckdb")

PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
SCHEMA = pa.schema(
    [
        *[(name, pa.string()) for name in ("id", "region", "note")],
        *[(name, pa.int64()) for name in ("qty", "price")],
    ]
)


@pytest.fixture(autouse=True)
def _in_folder_with_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    orders = lakemark.create("lake/orders", schema=SCHEMA, record_key="id", partition_by="region")
    row = {"id": "a", "region": "r1", "note": "the door", "qty": 4, "price": 50}
    orders.upsert(pa.Table.from_pylist([row], SCHEMA))


def commands() -> list[list[str]]:
    shell = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^lakemark (.*)$", shell, re.M)]


def test_the_commands_run() -> None:
    local = [one for one in commands() if "s3://" not in " ".join(one)]
    assert len(local) > 3
    for command in local:
        assert main(command) == OK, command


def test_the_program_runs() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    seen: dict[str, object] = {}
    exec(program, seen)
    counts = seen["counts"]
    assert isinstance(counts, pa.Table)
    assert counts.to_pylist() == [{"region": "r1", "orders": 1}]
