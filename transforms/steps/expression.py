"""A small language of expressions, computed on columns.

::

    expression  = term { ("+" | "-" | "||") term }
    term        = factor { ("*" | "/") factor }
    factor      = "-" factor | number | 'text' ('' is one quote) | true | false
                | function "(" expression { "," expression } ")" | "(" expression ")" | column
    column      = name { "." field of a struct }

- Integers are computed as bigint, and other numbers as double; decimals stay decimals, except in a
  division, whose result is always double. A number that contains a point is a double.
- ``||`` joins texts; a number becomes its text.
- The result for a null is null, except that ``coalesce`` returns its first value that is not null.
- ``lower``, ``upper``, ``trim`` and ``length`` take a text; ``substring(text, from, length)``
  counts characters from 1; ``abs``; ``round(number, digits)`` rounds halves away from zero;
  ``year``, ``month``, ``day`` take a date or a timestamp (in UTC), ``hour`` takes a timestamp.

A value for which the computation fails, such as an overflow or a division by zero, raises
``pa.ArrowInvalid``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.schema.field_path import column_at

#: An array, or a scalar for an expression without columns.
Value = Any
_Node = Callable[[pa.Table], Value]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?!\w)"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)"
    r"|(?P<symbol>\|\||[-+*/(),]))"
)
_MAX_DEPTH = 100
_INT64 = pa.int64()
_DECIMAL_OF_INT = pa.decimal128(19, 0)


class InvalidExpression(InvalidConfig):
    """An expression that cannot be parsed, or that does not fit the columns."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"expression {text!r}: {reason}")
        self.text, self.reason = text, reason


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Attributes:
        columns: the names of the columns in the expression; dotted names for fields of structs.
    """

    columns: tuple[str, ...]
    _node: _Node

    def compute(self, rows: pa.Table) -> Value:
        """Return the value for each row.

        Raises:
            pa.ArrowInvalid: the computation fails for a value.
            pa.ArrowNotImplementedError, pa.ArrowTypeError: a type does not fit a function.
        """
        found = self._node(rows)
        return pa.repeat(found, rows.num_rows) if isinstance(found, pa.Scalar) else found


@functools.lru_cache(maxsize=256)
def parse_expression(text: str) -> Expression:
    """Parse an expression.

    Raises:
        InvalidExpression: the syntax is wrong, or there is no such function.
    """
    return _Parser(text).parse()


def result_type(text: str, schema: pa.Schema) -> pa.DataType:
    """Return the type of an expression over columns.

    Raises:
        InvalidExpression: the expression cannot be parsed, a column does not exist, or its type
            does not fit the function.
    """
    expression = parse_expression(text)
    try:
        kind = expression.compute(schema.empty_table()).type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidExpression(text, str(error)) from error
    except InvalidConfig as error:
        raise InvalidExpression(text, str(error)) from error
    return kind


def _calculate(function: Callable[[Value, Value], Value]) -> Callable[[Value, Value], Value]:
    return lambda one, other: function(*_numbers(one, other))


def _numbers(one: Value, other: Value) -> tuple[Value, Value]:
    """Convert two numbers to one type, in which they are computed."""
    kinds = [_number_type(one), _number_type(other)]
    if pa.float64() in kinds:
        return one.cast(pa.float64()), other.cast(pa.float64())
    if kinds == [_INT64, _INT64]:
        return one.cast(_INT64), other.cast(_INT64)
    return _as_decimal(one), _as_decimal(other)


def _number_type(value: Value) -> pa.DataType:
    kind = value.type
    if pa.types.is_integer(kind):
        return _INT64
    if pa.types.is_decimal(kind):
        return kind
    if pa.types.is_floating(kind):
        return pa.float64()
    message = f"{kind} is not a number; cast it before"
    raise pa.ArrowTypeError(message)


def _as_decimal(value: Value) -> Value:
    return value.cast(_DECIMAL_OF_INT) if pa.types.is_integer(value.type) else value


def _negate(value: Value) -> Value:
    number, _ = _numbers(value, value)
    return pc.negate_checked(number)


def _divide(one: Value, other: Value) -> Value:
    _numbers(one, other)
    return pc.divide_checked(one.cast(pa.float64()), other.cast(pa.float64()))


def _join(one: Value, other: Value) -> Value:
    return pc.binary_join_element_wise(_text(one), _text(other), "")


def _text(value: Value) -> Value:
    kind = value.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_floating(kind):
        message = f"{kind} has no single text; cast it to string before"
        raise pa.ArrowTypeError(message)
    return value.cast(pa.string())


def _substring(text: Value, start: Value, length: Value) -> Value:
    if not all(isinstance(one, pa.Scalar) and one.type == _INT64 for one in (start, length)):
        message = "substring needs whole numbers as the first character and the length"
        raise pa.ArrowTypeError(message)
    first, count = start.as_py() - 1, length.as_py()
    if first < 0 or count < 0:
        message = "substring counts characters from 1, and a length is not negative"
        raise pa.ArrowTypeError(message)
    return pc.utf8_slice_codeunits(text, first, first + count)


def _round(number: Value, digits: Value) -> Value:
    if not isinstance(digits, pa.Scalar) or digits.type != _INT64:
        message = "round needs a whole number of digits"
        raise pa.ArrowTypeError(message)
    return pc.round(number, digits.as_py(), round_mode="half_towards_infinity")


def _part(function: Callable[[Value], Value]) -> Callable[[Value], Value]:
    return lambda time: function(time).cast(pa.int32())


_SUMS: dict[str, Callable[[Value, Value], Value]] = {
    "+": _calculate(pc.add_checked),
    "-": _calculate(pc.subtract_checked),
    "||": _join,
}
_PRODUCTS: dict[str, Callable[[Value, Value], Value]] = {
    "*": _calculate(pc.multiply_checked),
    "/": _divide,
}
#: For each function: how many arguments it takes (None for one or more), and what computes it.
FUNCTIONS: dict[str, tuple[int | None, Callable[..., Value]]] = {
    "lower": (1, pc.utf8_lower),
    "upper": (1, pc.utf8_upper),
    "trim": (1, pc.utf8_trim_whitespace),
    "length": (1, pc.utf8_length),
    "substring": (3, _substring),
    "coalesce": (None, pc.coalesce),
    "abs": (1, pc.abs_checked),
    "round": (2, _round),
    "year": (1, _part(pc.year)),
    "month": (1, _part(pc.month)),
    "day": (1, _part(pc.day)),
    "hour": (1, _part(pc.hour)),
}


class _Parser:
    """A recursive descent parser, with one method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._depth = 0
        self._columns: dict[str, None] = {}

    def parse(self) -> Expression:
        node = self._expression()
        if self._tokens:
            self._fail(f"unexpected {self._tokens[-1][1]!r}")
        return Expression(tuple(self._columns), node)

    def _split(self) -> list[tuple[str, str]]:
        """Return kind and text of the tokens in reverse order, so that ``pop`` returns the next."""
        tokens, position, text = [], 0, self._text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                self._fail(f"cannot parse {text[position:].strip()[:20]!r}")
            kind = match.lastgroup or ""
            tokens.append((kind, match[kind]))
            position = match.end()
        return tokens[::-1]

    def _expression(self) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"nested more than {_MAX_DEPTH} deep")
        node = self._binary(_SUMS, lambda: self._binary(_PRODUCTS, self._factor))
        self._depth -= 1
        return node

    def _binary(
        self, operators: dict[str, Callable[[Value, Value], Value]], inner: Callable[[], _Node]
    ) -> _Node:
        node = inner()
        while (symbol := self._peek()) in operators:
            self._tokens.pop()
            node = _apply(operators[symbol], (node, inner()))
        return node

    def _factor(self) -> _Node:
        kind, text = self._tokens.pop() if self._tokens else ("end", "the end")
        if text == "-":
            return _apply(_negate, (self._nested(self._factor),))
        if text == "(":
            node = self._expression()
            self._expect(")")
            return node
        if kind == "number":
            return self._number(text)
        if kind == "text":
            return _constant(pa.scalar(text[1:-1].replace("''", "'")))
        if kind != "name":
            self._fail(f"expected a value, a column or a function, found {text!r}")
        if text.lower() in ("true", "false"):
            return _constant(pa.scalar(text.lower() == "true"))
        if self._peek() == "(":
            return self._function(text.lower())
        self._columns[text] = None
        return lambda rows: column_at(rows, text)

    def _number(self, text: str) -> _Node:
        if not text.isdigit():
            return _constant(pa.scalar(float(text)))
        if int(text) >= 1 << 63:
            self._fail(f"{text} does not fit 64 bits; write {text}.0 for a double")
        return _constant(pa.scalar(int(text), _INT64))

    def _nested(self, inner: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"nested more than {_MAX_DEPTH} deep")
        node = inner()
        self._depth -= 1
        return node

    def _function(self, name: str) -> _Node:
        if name not in FUNCTIONS:
            self._fail(f"there is no function {name!r}; functions: {', '.join(FUNCTIONS)}")
        count, function = FUNCTIONS[name]
        self._expect("(")
        arguments = [self._expression()]
        while self._peek() == ",":
            self._tokens.pop()
            arguments.append(self._expression())
        self._expect(")")
        if count is not None and len(arguments) != count:
            self._fail(f"{name} needs {count} arguments, found {len(arguments)}")
        return _apply(function, arguments)

    def _peek(self) -> str:
        return self._tokens[-1][1] if self._tokens else ""

    def _expect(self, symbol: str) -> None:
        found = self._tokens.pop()[1] if self._tokens else "the end"
        if found != symbol:
            self._fail(f"expected {symbol}, found {found!r}")

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidExpression(self._text, reason)


def _constant(value: pa.Scalar) -> _Node:
    return lambda rows: value


def _apply(function: Callable[..., Value], arguments: Sequence[_Node]) -> _Node:
    return lambda rows: function(*(argument(rows) for argument in arguments))
