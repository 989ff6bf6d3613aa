"""The pages use the terms of the field, as ``docs/development.md`` requires."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

#: Private words of earlier versions, and words of another language's clause order.
REPLACED = re.compile(
    r"\b(?:anew|beside|give way|gives way|laid aside|lays aside|mint|minted|nobody|obeyed|"
    r"stand still|stands still|tell|tells|told|untold|upkeep|whoever)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_the_words_of_the_field(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)
    assert REPLACED.findall(prose) == []
