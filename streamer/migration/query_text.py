"""Splits the text of a query of Spark SQL at its literals, quoted names and comments.

Only the text between them is code. A ``;`` or ``--`` in a literal, and a quote in a comment, have
no meaning.
Source: ``SqlBaseLexer.g4`` of Apache Spark 3.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

_TOKEN = re.compile(
    r"""
    (?P<literal>\b[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<line>--(?:\\\n|[^\r\n])*)
    |(?P<block>/\*)
    """,
    re.DOTALL | re.VERBOSE,
)
_EDGE_OF_BLOCK = re.compile(r"/\*|\*/")


class Kind(Enum):
    """What a part of a query is."""

    CODE = auto()
    LITERAL = auto()
    NAME = auto()
    COMMENT = auto()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a query.

    Attributes:
        kind: what it is; a name is one in backticks, and a literal has its quotes.
        text: the part as written.
    """

    kind: Kind
    text: str


_KINDS = {"literal": Kind.LITERAL, "name": Kind.NAME, "line": Kind.COMMENT, "block": Kind.COMMENT}


def split_query(text: str) -> Iterator[Part]:
    """Yield the parts of a text; joined, they are the text."""
    position = 0
    while found := _TOKEN.search(text, position):
        if found.start() > position:
            yield Part(Kind.CODE, text[position : found.start()])
        kind = _KINDS[str(found.lastgroup)]
        position = _end_of_block(text, found.end()) if found["block"] else found.end()
        yield Part(kind, text[found.start() : position])
    if position < len(text):
        yield Part(Kind.CODE, text[position:])


def split_statements(text: str) -> list[str]:
    """Return the statements of a text, without spaces and comments around them.

    The text of a statement, with its line breaks and the comments in it, is as written.
    """
    statements: list[list[Part]] = [[]]
    for part in split_query(text):
        first, *others = part.text.split(";") if part.kind is Kind.CODE else [part.text]
        statements[-1].append(Part(part.kind, first))
        statements += [[Part(part.kind, other)] for other in others]
    trimmed = (_trimmed(one) for one in statements)
    return [one for one in trimmed if one]


def _end_of_block(text: str, position: int) -> int:
    """Return the end of a comment that begins before a position; comments may be nested."""
    depth = 1
    for edge in _EDGE_OF_BLOCK.finditer(text, position):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def _trimmed(parts: list[Part]) -> str:
    """Return the text of a statement without the spaces and comments around it."""
    kept = [n for n, part in enumerate(parts) if not _is_empty(part)]
    inner = parts[kept[0] : kept[-1] + 1] if kept else []
    return "".join(part.text for part in inner).strip()


def _is_empty(part: Part) -> bool:
    return part.kind is Kind.COMMENT or not part.text.strip()
