"""``python -m tests.golden.make.listing``: the list of golden tables, as the README has it."""

from __future__ import annotations

from tests.golden.make.recipes import RECIPES


def listing() -> str:
    """One line of a Markdown table for each golden table."""
    lines = [f"| `{name}` | {RECIPES[name].shows} |" for name in sorted(RECIPES)]
    return "\n".join(["| Table | What it shows |", "|---|---|", *lines])


if __name__ == "__main__":
    print(listing())
