"""Copies the pages of the documentation, and the files that they link to, for the generator.

``python scripts/site_pages.py FOLDER``. The pages keep their paths, so links between them, and from
a page to a file of the code, work on the site as they do in the repository.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Pages about tests are for those who have the code.
LEFT_OUT = ("tests/",)

_LINK = re.compile(r"\]\(([^)#\s]+)")


def pages() -> list[Path]:
    """The pages, from the project's folder."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.splitlines() if not name.startswith(LEFT_OUT)]
    return [Path(name) for name in names]


def linked_files(page: Path) -> Iterator[Path]:
    """Files of the project to which a page links, other pages excepted."""
    for link in _LINK.findall((ROOT / page).read_text()):
        if "://" in link or link.startswith("mailto:"):
            continue
        target = (ROOT / page).parent.joinpath(link).resolve()
        if target.is_file() and target.suffix != ".md":
            yield target.relative_to(ROOT)


def main(folder: Path) -> None:
    """Copy all of it into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    found = pages()
    for path in {*found, *(file for page in found for file in linked_files(page))}:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, folder / path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
