"""Each row of the page about features names a test or a page, or gives a reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "features.md"

#: What may be in the column "lakemark".
ANSWERS = ("yes", "partly", "no")
READERS = ("tested", "cited")

#: The sections of the page, in order.
SECTIONS = (
    "Command line",
    "Source",
    "Checkpoint",
    "Schema and transformers",
    "Keys, partitions and merging",
    "Errors and checks",
    "Table services",
    "Concurrency, catalogs, callbacks and metrics",
    "Queries and SQL",
    "Complaints about HoodieStreamer",
    "Engines that read the tables",
)

_TEST = re.compile(r"`((?:\w+/)+test_\w+\.py)::(\w+)`")
_LINK = re.compile(r"\[[^\]]+\]\(([^)#]+)(?:#[^)]*)?\)")
_SENTENCE = re.compile(r"[A-Z`][^|]*\w[^|]*\.(?: |$)")


def rows() -> list[tuple[str, list[str]]]:
    """Return each row of each table, with the heading above it and without the heads of tables."""
    found: list[tuple[str, list[str]]] = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if line.startswith("|")]
        found += [(heading, [cell.strip() for cell in line[1:-1].split("|")]) for line in lines[2:]]
    return found


ROWS = rows()


def problem(cells: list[str]) -> str | None:
    """Return what is wrong with a row; None if nothing is."""
    answer, evidence = cells[-2], cells[-1]
    tests = _TEST.findall(evidence)
    for file, name in tests:
        path = ROOT / "tests" / file
        if not path.is_file() or f"def {name}(" not in path.read_text():
            return f"there is no test {file}::{name}"
    links = [link for link in _LINK.findall(evidence) if "://" not in link]
    if lost := [link for link in links if not (PAGE.parent / link).is_file()]:
        return f"there is no page {lost[0]}"
    has_sentence = _SENTENCE.match(_TEST.sub("", evidence)) is not None
    needed = {
        "yes": bool(tests or links),
        "partly": bool(tests or links) and has_sentence,
        "no": has_sentence,
        "tested": bool(tests),
        "cited": "](https://" in evidence,
    }
    return None if needed.get(answer) else f"{answer!r} is not shown by {evidence!r}"


def test_sections_have_the_order_of_the_list_of_wishes() -> None:
    assert tuple(dict.fromkeys(heading for heading, _ in ROWS)) == SECTIONS


@pytest.mark.parametrize("heading", SECTIONS)
def test_each_row_names_a_test_or_a_page_or_gives_a_reason(heading: str) -> None:
    own = [cells for one, cells in ROWS if one == heading]
    accepted = READERS if heading.startswith("Engines") else ANSWERS
    assert len(own) > 10
    assert {len(cells) for cells in own} == {len(own[0])}
    assert [cells[0] for cells in own if cells[-2] not in accepted] == []
    assert [found for cells in own if (found := problem(cells))] == []
    assert [cells[0] for cells in own if "" in cells] == []


@pytest.mark.parametrize(
    ("answer", "evidence"),
    [
        ("yes", "It works."),
        ("yes", "`docs/test_features.py::test_that_nobody_wrote`"),
        ("yes", "[a page](nowhere.md)"),
        ("partly", "`docs/test_features.py::test_a_row_without_evidence_is_found`"),
        ("partly", "Only half of it works."),
        ("no", "not yet"),
        ("tested", "[docs](https://example.com)"),
        ("cited", "`docs/test_features.py::test_a_row_without_evidence_is_found`"),
    ],
)
def test_a_row_without_evidence_is_found(answer: str, evidence: str) -> None:
    assert problem(["feature", answer, evidence]) is not None
