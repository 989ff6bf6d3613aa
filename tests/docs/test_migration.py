"""The page about HoodieStreamer shows what ``lakemark migrate`` prints for its example."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from streamer.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "from_hoodiestreamer.md").read_text()


def block(language: str, beginning: str) -> str:
    """Return the text of the block in a language that begins with a word."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.M)
    (only,) = [text for word, text in found if word == language and text.startswith(beginning)]
    return str(only)


def test_example_is_translated_as_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders.properties").write_text(block("properties", ""))
    command = block("sh", "lakemark migrate").replace("\\\n", " ").partition(">")[0]
    assert main(shlex.split(command)[1:]) == 0
    printed = capsys.readouterr()
    assert printed.out == block("yaml", "# The job")
    assert printed.err == block("", "without counterpart")
