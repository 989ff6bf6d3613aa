"""Parses and prints the columns that a configuration declares, with the types of Spark's DDL.

For example, ``{"id": "bigint", "tags": "array<string>", "at": "timestamp"}`` becomes a
``pa.Schema``. All columns and nested fields are nullable. Timestamps are in UTC with microseconds,
as in Hudi. There is no map type, because a JSON object could be either a map or a struct.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.schema.table_columns import check_columns

TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type that a configuration can declare.

    Attributes:
        name: the name of the type in declarations.
        json: the JSON values that fit the type, for the reference page (``transforms.decode.json``
            decodes them).
        arrow: the Arrow type; None for a type with parameters.
        synonyms: other accepted names of the type.
    """

    name: str
    json: str
    arrow: pa.DataType | None = None
    synonyms: tuple[str, ...] = ()


#: All types. Messages, synonyms and the reference are generated from this list.
TYPES = (
    ColumnType("string", "a string", pa.string()),
    ColumnType("int", "a 32-bit integer (`1.0` is not an integer)", pa.int32(), ("integer",)),
    ColumnType("bigint", "a 64-bit integer", pa.int64(), ("long",)),
    ColumnType(
        "float",
        "a number in the range of 32 bits, `NaN`, `Infinity` or `-Infinity`",
        pa.float32(),
        ("real",),
    ),
    ColumnType(
        "double", "a number in the range of 64 bits, `NaN`, `Infinity` or `-Infinity`", pa.float64()
    ),
    ColumnType("boolean", "`true`, `false`", pa.bool_()),
    ColumnType("binary", "a string: Base64 with padding", pa.binary()),
    ColumnType("date", "a string: `2026-01-31`", pa.date32()),
    ColumnType(
        "timestamp",
        "a string in ISO 8601, such as `2026-01-31T06:00:00Z` (UTC if it has no zone); or an "
        "integer that counts from 1970 in `decode.timestamp_unit`",
        TIMESTAMP,
    ),
    ColumnType(
        "decimal(p,s)",
        "a number or a string with at most `p - s` digits before the point and `s` after it, not "
        "counting zeros at either end",
        synonyms=("dec",),
    ),
    ColumnType("array<type>", "an array"),
    ColumnType("struct<name:type,...>", "an object"),
)
_PLAIN = {
    column_type.name: column_type.arrow for column_type in TYPES if column_type.arrow is not None
}
_SYNONYMS = {
    other: column_type.name.partition("(")[0]
    for column_type in TYPES
    for other in column_type.synonyms
}
_ACCEPTED = ", ".join(column_type.name for column_type in TYPES)
_MAX_DECIMAL_PRECISION = 38
_TOKEN = re.compile(r"\s*(?:(`[^`]+`)|(\w+)|([<>(),:]))")


def parse_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Parse the schema that a configuration declares.

    Args:
        columns: the type of each column by name, in the order of the table.

    Raises:
        InvalidConfig: there are no columns, a name is not valid in Hudi, or a type is not valid.
    """
    fields = [pa.field(name, parse_type(name, text)) for name, text in columns.items()]
    return check_columns(pa.schema(fields))


def parse_type(column: str, text: str) -> pa.DataType:
    """Parse the type that ``text`` declares for ``column``.

    Raises:
        InvalidConfig: the text is not a type. The message names the column, the text and the valid
            types.
    """
    return _TypeText(column, text).parse()


def print_schema(schema: pa.Schema) -> dict[str, str]:
    """Return the declaration of a schema, from which ``parse_schema`` returns the schema again.

    Raises:
        InvalidConfig: a column has a type that cannot be declared.
    """
    return {field.name: _print_type(field.name, field.type) for field in schema}


def _print_type(column: str, data_type: pa.DataType) -> str:
    if pa.types.is_list(data_type):
        return f"array<{_print_type(column, data_type.value_type)}>"
    if pa.types.is_struct(data_type):
        fields = [f"{f.name}:{_print_type(f'{column}.{f.name}', f.type)}" for f in data_type]
        return f"struct<{','.join(fields)}>"
    if pa.types.is_decimal128(data_type):
        return f"decimal({data_type.precision},{data_type.scale})"
    for word, plain in _PLAIN.items():
        if plain.equals(data_type):
            return word
    message = f"column {column!r} cannot be declared as {data_type}; accepted are {_ACCEPTED}"
    raise InvalidConfig(message)


class _TypeText:
    """A recursive-descent parser of one declaration."""

    def __init__(self, column: str, text: str) -> None:
        self._column, self._text = column, text
        self._tokens = self._split()

    def parse(self) -> pa.DataType:
        data_type = self._type()
        if self._tokens:
            self._refuse(f"unexpected {self._tokens[-1]!r} after the type")
        return data_type

    def _split(self) -> list[str]:
        """Return the tokens in reverse order, so that ``pop`` returns the next one."""
        tokens, position, text = [], 0, self._text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._refuse(f"unexpected {text[position:].lstrip()[:1]!r}")
            tokens.append(match.group().strip())
            position = match.end()
        return tokens[::-1]

    def _type(self) -> pa.DataType:
        word = self._next("a type").lower()
        word = _SYNONYMS.get(word, word)
        if word == "array":
            return self._array()
        if word == "struct":
            return self._struct()
        if word == "decimal":
            return self._decimal()
        if word not in _PLAIN:
            self._refuse(f"unknown type {word!r}")
        return _PLAIN[word]

    def _array(self) -> pa.DataType:
        self._expect("<")
        element = self._type()
        self._expect(">")
        return pa.list_(element)

    def _struct(self) -> pa.DataType:
        fields = []
        self._expect("<")
        while True:
            name = self._next("a field name").strip("`")
            if self._peek() == ":":
                self._next(":")
            fields.append(pa.field(name, self._type()))
            if self._peek() != ",":
                break
            self._next(",")
        self._expect(">")
        return pa.struct(fields)

    def _decimal(self) -> pa.DataType:
        """Parse a decimal. Both numbers are required: Spark's defaults (10, 0) rarely fit money."""
        precision, scale = None, None
        if self._peek() == "(":
            self._next("(")
            precision = self._number()
            if self._peek() == ",":
                self._next(",")
                scale = self._number()
            self._expect(")")
        if precision is None or scale is None:
            self._refuse("a decimal needs its precision and scale, such as decimal(18, 2)")
        if not 1 <= precision <= _MAX_DECIMAL_PRECISION or scale > precision:
            self._refuse("a decimal has 1 to 38 digits and a scale of at most as many")
        return pa.decimal128(precision, scale)

    def _number(self) -> int:
        token = self._next("a number")
        if not (token.isascii() and token.isdigit()):
            self._refuse(f"expected a number, found {token!r}")
        return int(token)

    def _peek(self) -> str | None:
        return self._tokens[-1] if self._tokens else None

    def _next(self, expected: str) -> str:
        if not self._tokens:
            self._refuse(f"it ends where {expected} is expected")
        return self._tokens.pop()

    def _expect(self, token: str) -> None:
        if (found := self._next(repr(token))) != token:
            self._refuse(f"expected {token!r}, found {found!r}")

    def _refuse(self, reason: str) -> NoReturn:
        message = (
            f"column {self._column!r}: cannot read the type {self._text!r}: {reason}; "
            f"accepted are {_ACCEPTED}"
        )
        raise InvalidConfig(message)
