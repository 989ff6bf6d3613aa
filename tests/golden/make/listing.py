"""``python -m tests.golden.make.listing``: print the list of golden tables for the README."""

from __future__ import annotations

from tests.golden.make.recipes import RECIPES


def listing() -> str:
    """Render one line of a Markdown table for each golden table."""
    lines = [f"| `{name}` | {RECIPES[name].shows} |" for name in sorted(RECIPES)]
    return "\n".join(["| Table | What it shows |", "|---|---|", *lines])


if __name__ == "__main__":
    print(listing())
