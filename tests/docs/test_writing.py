"""The programs of ``docs/writing.md`` run unchanged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "writing.md").read_text()


def test_the_programs_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 7
    for program in programs:
        exec(program, {})
    assert (tmp_path / "lake/orders/.hoodie").is_dir()
