"""A small language of conditions, compiled to filters of Arrow or of another engine.

::

    condition   = all { "or" all }
    all         = one { "and" one }
    one         = "not" one | "(" condition ")" | test
    test        = column comparison literal
                | column ["not"] "in" "(" literal { "," literal } ")"
                | column "is" ["not"] "null"
    comparison  = "=" | "!=" | "<>" | "<" | "<=" | ">" | ">="
    literal     = number | 'text' ('' is one quote) | true | false
    column      = name { "." field of a struct }; `quoted` where the name is a word of the language

A literal has the type of its column: ``'2026-05-01'`` is a date in a comparison with a date column.
As in SQL, a test of a null is neither true nor false, so ``not`` does not match nulls either; use
``is null``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final, Generic, NoReturn, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])"
    r"|(?P<text>'(?:[^']|'')*')"
    r"|(?P<column>(?:`[^`]+`|[^\W\d]\w*)(?:\.(?:`[^`]+`|[^\W\d]\w*))*)"
    r"|(?P<symbol><=|>=|<>|!=|=|<|>|\(|\)|,))"
)
_NAME_PART = re.compile(r"`([^`]+)`|(\w+)")
_WORDS = frozenset({"and", "or", "not", "in", "is", "null", "true", "false"})
_COMPARISONS: dict[str, Callable[[pc.Expression, pc.Expression], pc.Expression]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Notations of other languages, and what to write instead.
_HINTS: Final = (
    (re.compile("=="), "write = to compare"),
    (re.compile("=>"), "write >= for at least"),
    (re.compile("=<"), "write <= for at most"),
    (re.compile('"'), "write text in single quotes, and a column name in backquotes"),
    (re.compile(r"i?like\b", re.IGNORECASE), "like is not supported; a range such as >= 'a' is"),
    (re.compile(r"between\b", re.IGNORECASE), "write column >= … and column <= …"),
    (re.compile("&&?"), "write and"),
    (re.compile(r"\|\|?"), "write or"),
    (re.compile("[-+*/%]"), "a column is compared with a value; nothing is calculated"),
)
_MAX_DEPTH: Final = 100
#: Largest number of characters of a condition in an error message.
_MAX_SHOWN: Final = 400
#: Decimal digits of a second, by the unit of a column; ``datetime`` has at most six.
_MAX_FRACTION_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 6}

Condition = TypeVar("Condition")


class ConditionMaker(Protocol[Condition]):
    """Builds a parsed condition for one engine, with the same meaning in each engine.

    A column is a sequence: the column's name, then the names of nested fields. A comparison is one
    of ``=  !=  <>  <  <=  >  >=``. Its literal has the column's type and is not null.
    """

    def compare(self, column: Sequence[str], comparison: str, literal: pa.Scalar) -> Condition:
        """Return the comparison; it is null for a null, and false for NaN except with ``!=``."""
        ...

    def is_in(self, column: Sequence[str], literals: pa.Array) -> Condition:
        """Return a condition that is true if a column is equal to one of the literals.

        It is null for a null, and false for NaN. There may be thousands of literals, so an engine
        must search them as a set.

        Args:
            column: the column.
            literals: at least one value of the column's type, none of them null.
        """
        ...

    def is_null(self, column: Sequence[str]) -> Condition:
        """Return a condition that is true if a column is null."""
        ...

    def both(self, one: Condition, other: Condition) -> Condition:
        """Return a condition that is true if both conditions are true."""
        ...

    def either(self, one: Condition, other: Condition) -> Condition:
        """Return a condition that is true if at least one of the conditions is true."""
        ...

    def negate(self, condition: Condition) -> Condition:
        """Return the negation; null stays null."""
        ...


class InvalidWhere(InvalidConfig):
    """A condition that cannot be parsed.

    Attributes:
        text: the condition.
        position: position of the error in the text, in characters from 0.
        reason: what was expected, or why the condition is invalid.
    """

    def __init__(self, text: str, position: int, reason: str) -> None:
        shown, hint = _excerpt(text, position), _hint(text, position)
        super().__init__(f"condition {shown!r}, at character {position + 1}: {reason}{hint}")
        self.text, self.position, self.reason = text, position, reason


def _excerpt(text: str, position: int) -> str:
    """Return the text, or only the part around an error if the text is long."""
    if len(text) <= _MAX_SHOWN:
        return text
    start = min(max(position - _MAX_SHOWN // 2, 0), len(text) - _MAX_SHOWN)
    end = start + _MAX_SHOWN
    return f"{'…' * (start > 0)}{text[start:end]}{'…' * (end < len(text))}"


def _hint(text: str, position: int) -> str:
    """Return a hint on what to write instead; "" if there is none.

    The text from one character before the error is also searched. For example, the error in ``==``
    is at the second character, because the first one is a valid comparison.
    """
    before, rest = text[max(position - 1, 0) :], text[position:].lstrip()
    found = (hint for part in (rest, before) for form, hint in _HINTS if form.match(part))
    return next((f"; {hint}" for hint in found), "")


def parse_where(text: str, schema: pa.Schema) -> pc.Expression:
    """Parse a condition into an Arrow filter.

    Args:
        text: a condition in the language of this module.
        schema: the columns that the condition may name, with their types.

    Raises:
        InvalidWhere: a syntax error, an unknown column, or a literal that does not fit its column.
    """
    return parse_condition(text, schema, _ArrowConditions()).is_true


def parse_where_false(text: str, schema: pa.Schema) -> pc.Expression:
    """Parse a condition into an Arrow filter of the rows for which it is false, and not null.

    Raises:
        InvalidWhere: as for ``parse_where``.
    """
    return parse_condition(text, schema, _ArrowConditions()).is_false


def check_syntax(text: str) -> None:
    """Check the syntax of a condition; its columns may have any name and type.

    Raises:
        InvalidWhere: the syntax is wrong.
    """
    _Parser(text, None, _ArrowConditions()).parse()


def condition_columns(text: str) -> list[str]:
    """Return the columns that a condition names, each once; dotted names for fields of structs.

    Raises:
        InvalidWhere: the syntax is wrong.
    """
    return [*dict.fromkeys(_Parser(text, None, _NamedColumns()).parse())]


def parse_condition(text: str, schema: pa.Schema, maker: ConditionMaker[Condition]) -> Condition:
    """Parse a condition for any engine, like ``parse_where``.

    Raises:
        InvalidWhere: as for ``parse_where``.
    """
    return _Parser(text, schema, maker).parse()


@dataclass(frozen=True, slots=True)
class _ArrowCondition:
    """A condition as two Arrow expressions; neither is true for a row for which it is null.

    A negation exchanges them. So no expression negates a null, for which Arrow's ``is_in`` returns
    false.
    """

    is_true: pc.Expression
    is_false: pc.Expression


class _ArrowConditions:
    """Conditions as Arrow expressions."""

    def compare(
        self, column: Sequence[str], comparison: str, literal: pa.Scalar
    ) -> _ArrowCondition:
        is_true = _COMPARISONS[comparison](_arrow_column(column), pc.scalar(literal))
        return _ArrowCondition(is_true, ~is_true)

    def is_in(self, column: Sequence[str], literals: pa.Array) -> _ArrowCondition:
        value = _arrow_column(column)
        if pa.types.is_floating(literals.type):
            # Arrow's is_in distinguishes -0 from 0. The sum of 0 and either of them is 0.
            zero = pa.scalar(0, literals.type)
            value, literals = value + pc.scalar(zero), pc.add(literals, zero)
        is_true = value.isin(literals)
        return _ArrowCondition(is_true, value.is_valid() & ~is_true)

    def is_null(self, column: Sequence[str]) -> _ArrowCondition:
        value = _arrow_column(column)
        return _ArrowCondition(value.is_null(), value.is_valid())

    def both(self, one: _ArrowCondition, other: _ArrowCondition) -> _ArrowCondition:
        return _ArrowCondition(one.is_true & other.is_true, one.is_false | other.is_false)

    def either(self, one: _ArrowCondition, other: _ArrowCondition) -> _ArrowCondition:
        return _ArrowCondition(one.is_true | other.is_true, one.is_false & other.is_false)

    def negate(self, condition: _ArrowCondition) -> _ArrowCondition:
        return _ArrowCondition(condition.is_false, condition.is_true)


class _NamedColumns:
    """The names of the columns in a condition."""

    def compare(self, column: Sequence[str], comparison: str, literal: pa.Scalar) -> list[str]:
        return self.is_null(column)

    def is_in(self, column: Sequence[str], literals: pa.Array) -> list[str]:
        return self.is_null(column)

    def is_null(self, column: Sequence[str]) -> list[str]:
        return [".".join(column)]

    def both(self, one: list[str], other: list[str]) -> list[str]:
        return one + other

    def either(self, one: list[str], other: list[str]) -> list[str]:
        return one + other

    def negate(self, condition: list[str]) -> list[str]:
        return condition


def _arrow_column(names: Sequence[str]) -> pc.Expression:
    return pc.field(*names) if len(names) == 1 else pc.field(tuple(names))


class _Token:
    __slots__ = ("kind", "position", "text")

    def __init__(self, kind: str, text: str, position: int) -> None:
        self.kind, self.text, self.position = kind, text, position

    @property
    def word(self) -> str:
        """The keyword or symbol of the token, or ""."""
        lower = self.text.lower()
        return lower if self.kind == "symbol" or lower in _WORDS else ""


class _Parser(Generic[Condition]):
    """A recursive descent parser, with one method for each rule of the grammar.

    Without a schema, any column name is valid, columns have no type, and literals become null.
    """

    def __init__(
        self, text: str, schema: pa.Schema | None, maker: ConditionMaker[Condition]
    ) -> None:
        self._text, self._schema, self._make = text, schema, maker
        self._tokens = self._split()
        self._next = 0
        self._depth = 0

    def parse(self) -> Condition:
        condition = self._condition()
        if self._token.kind != "end":
            self._fail(f"expected and, or, or the end, found {self._token.text!r}")
        return condition

    def _split(self) -> list[_Token]:
        tokens, position, end = [], 0, len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None:
                reason = f"cannot parse {self._text[position:].strip()[:20]!r}"
                raise InvalidWhere(self._text, position, reason)
            kind = match.lastgroup or ""
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            position = match.end()
        return [*tokens, _Token("end", "the end", end)]

    def _condition(self) -> Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._fail(f"nested more than {_MAX_DEPTH} deep")
        condition = self._all()
        while self._accept("or"):
            condition = self._make.either(condition, self._all())
        self._depth -= 1
        return condition

    def _all(self) -> Condition:
        condition = self._one()
        while self._accept("and"):
            condition = self._make.both(condition, self._one())
        return condition

    def _one(self) -> Condition:
        negated = False
        while self._accept("not"):
            negated = not negated
        if self._accept("("):
            condition = self._condition()
            self._expect(")")
        else:
            condition = self._test()
        return self._make.negate(condition) if negated else condition

    def _test(self) -> Condition:
        column, data_type = self._column()
        if self._accept("is"):
            negated = self._accept("not")
            self._expect("null")
            missing = self._make.is_null(column)
            return self._make.negate(missing) if negated else missing
        negated = self._accept("not")
        if negated or self._token.word == "in":
            self._expect("in")
            found = self._in(column, data_type)
            return self._make.negate(found) if negated else found
        comparison = self._token.word
        if comparison not in _COMPARISONS:
            self._fail(f"expected a comparison, in, or is null, found {self._token.text!r}")
        self._next += 1
        return self._make.compare(column, comparison, self._literal(column, data_type))

    def _in(self, column: Sequence[str], data_type: pa.DataType | None) -> Condition:
        self._expect("(")
        literals = [self._literal(column, data_type)]
        while self._accept(","):
            literals.append(self._literal(column, data_type))
        self._expect(")")
        return self._make.is_in(column, pa.array(literals, literals[0].type))

    def _column(self) -> tuple[list[str], pa.DataType | None]:
        token = self._token
        if token.kind != "column" or token.word:
            self._fail(f"expected a column, found {token.text!r}")
        names = [quoted or plain for quoted, plain in _NAME_PART.findall(token.text)]
        data_type = None if self._schema is None else self._type_of(names, self._schema)
        self._next += 1
        return names, data_type

    def _type_of(self, names: Sequence[str], schema: pa.Schema) -> pa.DataType:
        fields, data_type = list(schema), None
        for name in names:
            field = next((f for f in fields if f.name == name), None)
            if field is None:
                self._fail(_unknown_column(name, [f.name for f in fields]))
            data_type = field.type
            fields = list(data_type) if pa.types.is_struct(data_type) else []
        assert data_type is not None, names
        return data_type

    def _literal(self, column: Sequence[str], data_type: pa.DataType | None) -> pa.Scalar:
        token = self._token
        if token.word == "null":
            self._fail("null is equal to no value; write is null")
        if token.kind not in ("number", "text") and token.word not in ("true", "false"):
            self._fail(f"expected a value, found {token.text!r} (write text in single quotes)")
        if data_type is None:
            self._next += 1
            return pa.scalar(None)
        try:
            value = _value(token, data_type)
            literal = pa.scalar(value, data_type)
        except (ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowException):
            name, wanted = ".".join(column), _expected_literal(data_type)
            self._fail(f"{token.text} cannot be a value of {name} ({data_type}): use {wanted}")
        self._next += 1
        return literal

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _accept(self, word: str) -> bool:
        taken = self._token.word == word
        self._next += taken
        return taken

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            self._fail(f"expected {word}, found {self._token.text!r}")

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidWhere(self._text, self._token.position, reason)


def _value(token: _Token, data_type: pa.DataType) -> object:
    """Return the Python value of a literal that is compared with a column of ``data_type``.

    Raises:
        ValueError: the literal is of a kind that does not fit the type.
    """
    kind = "truth" if token.word else token.kind
    if kind == "text":
        return _from_text(token.text[1:-1].replace("''", "'"), data_type)
    if kind == "truth" and pa.types.is_boolean(data_type):
        return token.word == "true"
    if kind == "number" and pa.types.is_integer(data_type):
        return int(token.text)
    if kind == "number" and pa.types.is_floating(data_type):
        return float(token.text)
    if kind == "number" and pa.types.is_decimal(data_type):
        number = Decimal(token.text)
        if number and number.adjusted() < -data_type.scale:  # pyarrow may take it for zero
            raise ValueError(token.text)
        return number
    raise ValueError(token.text)


def _from_text(text: str, data_type: pa.DataType) -> object:
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return text
    if pa.types.is_date(data_type):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(data_type):
        time = datetime.fromisoformat(text)
        if _fraction_digits(text) > _MAX_FRACTION_DIGITS[data_type.unit]:
            raise ValueError(text)
        if data_type.tz is None:
            return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
        return time if time.tzinfo else time.replace(tzinfo=UTC)
    raise ValueError(text)


def _fraction_digits(time: str) -> int:
    """Return the number of decimals of the second, without trailing zeros.

    They are counted here, because ``datetime`` ignores decimals after the sixth.
    """
    fraction = re.search(r"[.,](\d+)", time)
    return len(fraction[1].rstrip("0")) if fraction else 0


def _expected_literal(data_type: pa.DataType) -> str:
    if pa.types.is_boolean(data_type):
        return "true or false"
    if pa.types.is_integer(data_type):
        return "a whole number in its range"
    if pa.types.is_floating(data_type) or pa.types.is_decimal(data_type):
        return "a number that it can hold"
    if pa.types.is_date(data_type):
        return "a date such as '2026-05-01'"
    if pa.types.is_timestamp(data_type):
        digits = _MAX_FRACTION_DIGITS[data_type.unit]
        return f"a time such as '2026-05-01 12:00:00' (UTC), with at most {digits} decimals"
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return "a text in single quotes"
    return "only is null with columns of this type"


def _unknown_column(name: str, known: Sequence[str]) -> str:
    import difflib  # only for errors

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; columns: {', '.join(known) or 'none'}"
    return f"there is no column {name!r}{hint}"
