"""Rows to look at: a grid as wide as it needs, or one value a line where a terminal is narrower.

Nothing is cut, so that every value can be copied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

#: Name to value; the rows of a grid have the same names.
Row = Mapping[str, object]

_ABSENT = "none"
_GAP = "  "


def print_grid(rows: Sequence[Row], console: Console, if_empty: str = "no rows") -> None:
    """Print rows below each other, numbers to the right; without any rows, print ``if_empty``."""
    if not rows:
        console.print(Text(if_empty), soft_wrap=True)
        return
    texts = {name: [_text(row[name]) for row in rows] for name in rows[0]}
    widths = {name: max(map(cell_len, (name, *column))) for name, column in texts.items()}
    if console.is_terminal and sum(widths.values()) + len(_GAP) * len(widths) > console.width:
        _print_expanded(rows, console)
        return
    aligned = [_align(name, texts[name], widths[name], _is_number(rows, name)) for name in texts]
    for number, line in enumerate(zip(*aligned, strict=True)):
        style = "bold" if number == 0 else ""
        console.print(Text(_GAP.join(line).rstrip(), style), soft_wrap=True)


def print_facts(facts: Row, console: Console) -> None:
    """Print names and values, one pair a line."""
    longest = max(map(len, facts), default=0)
    for name, value in facts.items():
        line = Text.assemble((name.ljust(longest), "bold"), _GAP, _text(value))
        console.print(line, soft_wrap=True)


def _print_expanded(rows: Sequence[Row], console: Console) -> None:
    for number, row in enumerate(rows, 1):
        console.rule(f"[dim]{number}", align="left", style="dim")
        print_facts(row, console)


def _align(name: str, column: Sequence[str], width: int, to_right: bool) -> list[str]:
    blanks = [" " * (width - cell_len(text)) for text in (name, *column)]
    pairs = zip((name, *column), blanks, strict=True)
    return [blank + text if to_right else text + blank for text, blank in pairs]


def _is_number(rows: Sequence[Row], name: str) -> bool:
    values = [row[name] for row in rows if row[name] is not None]
    return bool(values) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )


def _text(value: object) -> str:
    if value is None or value in ("", [], {}):
        return _ABSENT
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, text in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)
