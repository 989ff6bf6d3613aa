"""The examples on the page about mergers work."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from streamer.cli import parser

PAGE = (Path(__file__).parents[2] / "docs" / "mergers.md").read_text()


def test_the_mergers_keep_the_rules() -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    shown = [program for program in programs if "lakemark.open" not in program]
    assert len(shown) == len(programs) - 1 == 3
    seen: dict[str, object] = {"__name__": "shop.mergers"}
    for program in shown:
        exec(program, seen)


def test_the_commands_are_commands() -> None:
    (line,) = re.findall(r"^lakemark (.*)$", PAGE, re.MULTILINE)
    assert parser().parse_args(shlex.split(line)).merger == ["mergers.py:Highest"]
