"""Runs the examples of ``docs/reading.md``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest

from streamer.cli import parser
from tests.golden.golden_table import sorted_rows, unpack

PAGE = (Path(__file__).parents[2] / "docs" / "reading.md").read_text()


def test_the_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = unpack("v9_mor_parquet_bucket", tmp_path)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "orders").symlink_to(golden.root)
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert programs
    seen: dict[str, object] = {}
    for program in programs:
        exec(program, seen)
    found = seen["then"]
    assert isinstance(found, pa.Table)
    assert sorted_rows(found) == sorted_rows(golden.expected("snapshot"))


def test_the_commands_are_commands() -> None:
    lines = re.findall(r"^lakemark (.*)$", PAGE, re.MULTILINE)
    assert lines
    for line in lines:
        parser().parse_args(shlex.split(line))
