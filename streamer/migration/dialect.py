"""Finds the parts of a query of Spark that may have another meaning in DuckDB.

Without the dialects' parsers, this is an estimate: it lists a part unless it is known to mean the
same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto

import pyarrow as pa

from streamer.migration.query_text import Kind, Part, split_query

#: A text that is the same in both dialects: without escapes.
_PLAIN_TEXT = re.compile(r"'[^\\]*'")
_PLAIN_NAME = re.compile(r"`\w+`")

#: Calls of functions, casts, divisions, powers (Spark's bitwise ``^``), elements of arrays (which
#: Spark counts from 0), texts in double quotes, and escapes and repeated quotes in texts.
_ALWAYS = re.compile(
    r"(?P<call>\b(?!(?:in|and|or|not|where|select|when|then|else|case|between|on|as)\b)\w+)\s*\("
    r"|[/%\"\\^\[]|''(?='')|::",
    re.IGNORECASE,
)
_OPERAND = r"(?:\w+(?:\.\w+)*|''|[()])"
_OPERATION = re.compile(
    rf"(?P<left>{_OPERAND})\s*(?P<operator>\|\||[-+*]|[<>=!]+)\s*-?(?=(?P<right>{_OPERAND}))"
)
_BETWEEN = re.compile(
    rf"(?P<left>{_OPERAND})\s+(?:not\s+)?(?P<operator>between)\s+-?"
    rf"(?P<right>{_OPERAND}\s+and\s+-?{_OPERAND})",
    re.IGNORECASE,
)
_IN = re.compile(
    rf"(?P<left>{_OPERAND})\s+(?:not\s+)?(?P<operator>in)\s*\((?P<right>[^()]*)\)", re.IGNORECASE
)
_SEPARATOR = re.compile(r"\s+and\s+|,", re.IGNORECASE)
#: Words before a star or a sign, which are no operands.
_WORDS = frozenset({"select", "where", "when", "then", "else", "and", "or", "not", "by", "between"})


class _Type(Enum):
    """What is known about the type of an operand."""

    TEXT = auto()
    FLOAT = auto()
    OTHER = auto()
    ANY = auto()
    UNKNOWN = auto()


def find_differences(query: str, columns: pa.Schema) -> set[str]:
    """Return the functions and operators of a query that may have another meaning in DuckDB.

    Besides those that may always differ, these are comparisons and concatenations of a text with a
    value of another type, and arithmetic without a floating-point number, whose overflow and
    precision differ.

    Args:
        query: a query of Spark SQL.
        columns: the columns that are known; without them, operators are listed.
    """
    code = "".join(_code_of(part) for part in split_query(query))
    always = {match["call"] or match[0] for match in _ALWAYS.finditer(code)}
    return always | set(_operators(code, columns))


def _code_of(part: Part) -> str:
    """Return a part without comments; a text that is the same in both dialects becomes ``''``."""
    match part.kind:
        case Kind.COMMENT:
            return " "
        case Kind.NAME:
            return part.text[1:-1] if _PLAIN_NAME.fullmatch(part.text) else "name"
        case Kind.LITERAL if _PLAIN_TEXT.fullmatch(part.text):
            return "''"
        case _:
            return part.text


def _operators(code: str, columns: pa.Schema) -> Iterator[str]:
    """Yield the operators between operands of which the dialects may make different results."""
    for pattern in (_OPERATION, _BETWEEN, _IN):
        for found in pattern.finditer(code):
            left, operator = found["left"], found["operator"].lower()
            if left.lower() in _WORDS:
                continue
            types = {_type_of(one.strip(), columns) for one in _SEPARATOR.split(found["right"])}
            if _may_differ(operator, {_type_of(left, columns), *types}):
                yield operator


def _may_differ(operator: str, types: set[_Type]) -> bool:
    if operator in ("+", "-", "*"):
        return _Type.FLOAT not in types
    if _Type.UNKNOWN in types:
        return True
    others = types & {_Type.FLOAT, _Type.OTHER}
    return bool(others) if operator == "||" else _Type.TEXT in types and bool(others)


def _type_of(operand: str, columns: pa.Schema) -> _Type:
    if operand == "''":
        return _Type.TEXT
    if operand.lower() == "null":
        return _Type.ANY
    if operand.lstrip("-")[:1].isdigit() or operand.lower() in ("true", "false"):
        return _Type.OTHER
    path = operand.lower().split(".")
    kind = _type_at(path, columns) or _type_at(path[1:], columns)  # without the table's alias
    if kind is None:
        return _Type.UNKNOWN
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _Type.TEXT
    return _Type.FLOAT if pa.types.is_floating(kind) else _Type.OTHER


def _type_at(path: list[str], columns: pa.Schema) -> pa.DataType | None:
    """Return the type of a column, or of a field in a struct; None if there is none."""
    fields, found = list(columns), None
    for name in path:
        found = next((field.type for field in fields if field.name.lower() == name), None)
        if found is None:
            return None
        fields = list(found) if pa.types.is_struct(found) else []
    return found
