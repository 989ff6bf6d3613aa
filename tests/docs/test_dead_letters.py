"""The page of dead letters lists the columns and the codes that they have."""

from __future__ import annotations

import re
from pathlib import Path

from transforms.reject_reason import RejectCode
from transforms.rejects import REJECTS_SCHEMA, Stage

PAGE = (Path(__file__).parents[2] / "docs" / "dead_letters.md").read_text()


def test_page_lists_every_column_and_every_code() -> None:
    of_columns, of_codes = (_first_cells(f"\n| {header} |") for header in ("column", "code"))
    assert of_columns == REJECTS_SCHEMA.names
    assert of_codes == [*RejectCode]


def test_page_lists_every_stage() -> None:
    (line,) = re.findall(r"^\| `stage` \|.*$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == {"stage", *Stage}


def _first_cells(header: str) -> list[str]:
    """Return the words in backquotes in the first cells of a table's rows."""
    table = PAGE[PAGE.index(header) + 1 :].partition("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return [word for cell in cells for word in re.findall(r"`(\w+)`", cell)]
