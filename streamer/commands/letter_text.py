"""Prints dead letters for people: one fact per line, and JSON with one field per line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from streamer.row_output import escape_control

#: How many characters of a key, a value or a reason are printed.
_SHOWN = 2_000

_INDENT = "  "

#: The strings, the punctuation, and the other values of a JSON text.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def print_letters(
    letters: Sequence[Mapping[str, object]], console: Console, *, in_full: bool
) -> None:
    """Print each fact of each letter; those that it lacks are omitted.

    Args:
        letters: the facts by name, of which the first is the origin.
        console: where they are printed.
        in_full: whether long texts are not cut.
    """
    for number, letter in enumerate(letters):
        if number:
            console.print()
        facts = {name: str(fact) for name, fact in letter.items() if fact is not None}
        width = max(map(len, facts))
        for name, fact in facts.items():
            lines = [*_lines(fact, in_full=in_full)]
            if len(lines) == 1:
                _print(console, Text.assemble((name.ljust(width), "bold"), _INDENT, *lines))
                continue
            _print(console, Text(name, "bold"))
            for line in lines:
                _print(console, Text(_INDENT + line))


def _print(console: Console, line: Text) -> None:
    console.print(line, soft_wrap=True)


def _lines(text: str, *, in_full: bool) -> Iterator[str]:
    """Yield the lines of a text, without characters that a terminal would obey."""
    shown = indent_json(text)
    cut = shown if in_full or len(shown) <= _SHOWN else shown[:_SHOWN]
    yield from map(escape_control, cut.split("\n"))
    if len(cut) < len(shown):
        yield f"… ({len(text):,} characters; --full prints all of them)"


def indent_json(text: str) -> str:
    """Return a JSON object or array with one value per line, and any other text unchanged.

    Names and values are those of the text, also numbers that Python would round, and names that are
    given twice.
    """
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    parts, depth, follows_opening = list[str](), 0, False
    for token in _TOKEN.findall(text):
        is_closing = token in ("}", "]")
        depth -= is_closing
        if (follows_opening and not is_closing) or (is_closing and not follows_opening):
            parts.append(f"\n{_INDENT * depth}")
        parts.append(f"{token} " if token == ":" else token)
        if token == ",":
            parts.append(f"\n{_INDENT * depth}")
        follows_opening = token in ("{", "[")
        depth += follows_opening
    return "".join(parts)
