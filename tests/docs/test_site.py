"""The pages as a web site: each is in the navigation, and its links work there and on GitHub."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.site_pages import linked_files, pages

ROOT = Path(__file__).parents[2]
PAGES = pages()
NAVIGATION = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]

_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def test_each_page_is_in_the_navigation_once() -> None:
    assert sorted(targets(NAVIGATION)) == sorted(map(str, PAGES))


def test_the_navigation_separates_learning_doing_looking_up_and_understanding() -> None:
    assert [next(iter(one)) for one in NAVIGATION] == [
        "lakemark",
        "Tutorial",
        "How to",
        "Reference",
        "Explanation",
        "Development",
    ]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_of_a_page_lead_to_files_of_the_site(page: Path) -> None:
    copied = {ROOT / path for path in [*PAGES, *(f for p in PAGES for f in linked_files(p))]}
    for link, anchor in re.findall(r"\]\(([^)#\s]*)(#[^)\s]+)?\)", prose(page)):
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (ROOT / page).parent.joinpath(link).resolve() if link else ROOT / page
        assert target in copied, link
        if anchor:
            assert anchor[1:] in anchors(target), f"{link}{anchor}"


def targets(navigation: object) -> Iterator[str]:
    """List the pages of a part of the navigation."""
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, dict):
        yield from targets(list(navigation.values()))
    elif isinstance(navigation, list):
        for one in navigation:
            yield from targets(one)


def prose(page: Path) -> str:
    return _FENCE.sub("", (ROOT / page).read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings that get the same anchor from GitHub and the generator."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", heading) for heading in headings]
    return {on_site(text) for text in plain} & {on_github(text) for text in plain}


def on_github(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def on_site(heading: str) -> str:
    """Return the anchor that Python-Markdown gives a heading."""
    ascii_text = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_text).strip().lower())
