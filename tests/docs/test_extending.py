"""All files and definitions that ``docs/extending.md`` names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract import test_catalogs, test_hooks, test_lock, test_storage, test_transform
from tests.fixtures import storage as storage_fixtures
from tests.merging import modes
from tests.protocol import two_processes
from tests.recovery import scenarios

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"
TEXT = PAGE.read_text()

#: The rows of all tables: the cell with the files, and the cell with the names.
ROWS = re.findall(r"^\| (\[[^|]*) \|([^|]*)\|", TEXT, re.MULTILINE)

#: The lists to which an implementation is added, so that a suite runs on it.
LISTS = {
    "SCENARIOS": scenarios,
    "ACTS": two_processes,
    "MODES": modes,
    "LOCK_KINDS": test_lock,
    "SERVER_KINDS": test_lock,
    "TRANSFORMS": test_transform,
    "STORAGE_KINDS": storage_fixtures,
    "EMULATED_KINDS": storage_fixtures,
    "CATALOG_KINDS": test_catalogs,
    "HOOK_KINDS": test_hooks,
}


@pytest.mark.parametrize(("files", "names"), ROWS)
def test_the_files_define_the_names_next_to_them(files: str, names: str) -> None:
    paths = [PAGE.parent / link for link in re.findall(r"\]\(([^)#]+)", files)]
    code = "\n".join(path.read_text() for path in paths)
    for name in re.findall(r"`(\w+)`", names):
        assert re.search(rf"^\s*(?:def|class) {name}\b|^{name}\b", code, re.MULTILINE), name


def test_every_addition_has_a_checklist_and_a_suite() -> None:
    sections = TEXT.split("\n## ")[1:]
    assert [section.splitlines()[0] for section in sections] == [
        "Setting",
        "Log block",
        "Table service",
        "Storage",
        "Step of `transform`",
        "Format of values",
        "Source",
        "Record merger",
        "Lock provider",
        "Catalog",
        "Hook",
        "Index",
    ]
    for section in sections:
        assert "\n- [ ] " in section
        assert "](../tests/" in section


def test_the_lists_of_implementations_are_where_the_page_says() -> None:
    for name, module in LISTS.items():
        assert f"`{name}`" in TEXT
        assert getattr(module, name)
    assert test_storage.__name__.replace(".", "/") in TEXT
