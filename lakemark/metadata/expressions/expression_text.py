"""The text of an expression, such as ``substring(name, 1, 3)``.

The arguments are those of the function in SQL. A text may be written in single quotes. The name of
a column alone is its value itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakemark.errors import InvalidConfig
from lakemark.metadata.expressions.functions import ARGUMENTS, EXPRESSION, IDENTITY

_CALL = re.compile(r"(?P<function>\w+)\s*\((?P<arguments>.*)\)", re.DOTALL)
_ARGUMENT = re.compile(
    r"\s*'(?P<quoted>([^']|'')*)'\s*(?P<comma>,|\Z)|(?!\s*')(?P<plain>[^,]*)(?P<end>,|\Z)"
)


def parse_expression(text: str) -> tuple[str, str, dict[str, str]]:
    """Return the function, the column and the options of an expression, as in a definition.

    Raises:
        InvalidConfig: the function is unknown, or has too many arguments; or a quote is not closed.
    """
    call = _CALL.fullmatch(text.strip())
    if call is None:
        return IDENTITY, text.strip(), {EXPRESSION: IDENTITY}
    function = call["function"].lower()
    column, *rest = _split(call["arguments"]) or [""]
    if function not in ARGUMENTS or not column or len(rest) > len(ARGUMENTS[function]):
        raise _unknown(text)
    named = zip(ARGUMENTS[function], rest, strict=False)
    return function, column, {EXPRESSION: function, **dict(named)}


def print_expression(function: str, column: str, options: Mapping[str, str]) -> str:
    """Return the text of an expression, from a definition."""
    if function == IDENTITY:
        return column
    known = (options.get(name) for name in ARGUMENTS.get(function, ()))
    arguments = [one if one.isalnum() else _quote(one) for one in known if one is not None]
    return f"{function}({', '.join([column, *arguments])})"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _split(arguments: str) -> list[str]:
    """Split arguments at commas that are not in quotes; the result is empty if a quote is wrong."""
    found: list[str] = []
    at, is_last = 0, False
    while not is_last:
        one = _ARGUMENT.match(arguments, at)
        if one is None:
            return []
        is_quoted = one["quoted"] is not None
        found.append(one["quoted"].replace("''", "'") if is_quoted else one["plain"].strip())
        at, is_last = one.end(), not one["comma" if is_quoted else "end"]
    return found


def _unknown(text: str) -> InvalidConfig:
    calls = ", ".join(print_call(name) for name in ARGUMENTS if name != IDENTITY)
    message = f"{text!r} is not an expression that an index may have; use a column, or {calls}"
    return InvalidConfig(message)


def print_call(function: str) -> str:
    """Return the form of a function: its arguments by their names."""
    return f"{function}({', '.join(['column', *ARGUMENTS[function]])})"
