"""Each golden table was created with its recipe, and the list of tables contains all of them."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.golden.make.listing import listing
from tests.golden.make.recipes import RECIPES

_ARCHIVES = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_archive_was_created_with_the_options_of_its_recipe(name: str) -> None:
    with tarfile.open(_ARCHIVES / f"{name}.tar.gz") as archive:
        file = archive.extractfile(f"{name}/meta.json")
        assert file is not None
        meta = json.load(file)
    assert meta["options"] == {**RECIPES[name].options, "hoodie.table.name": name}
    kinds = {query.partition("_")[0] for query in meta["queries"]}
    assert {"snapshot", "read"} <= kinds


def test_every_archive_has_a_recipe() -> None:
    assert {path.name.removesuffix(".tar.gz") for path in _ARCHIVES.glob("*.tar.gz")} == set(
        RECIPES
    )


def test_readme_lists_the_tables_of_all_recipes() -> None:
    assert listing() in (_ARCHIVES / "README.md").read_text("utf-8")
