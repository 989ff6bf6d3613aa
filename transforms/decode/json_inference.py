"""A schema for JSON records that nobody declared, out of a sample of them.

A field takes the kind that most of its values have: string, number, boolean, array or struct.

The type of numbers loses no digit of an integer, and none of a key:

integers of 64 bits        bigint
larger integers            decimal(38,0), whatever their length, as later ones may be longer
fractions, and integers    double if no integer is beyond 2^53 and the field is part of no key;
                           else decimal(38,s), where s halves the digits that the sample leaves over

A number with a point or an exponent (1.0, 1e3) counts as a fraction, as the decoder reads none as
bigint. A field is refused if most of its values are integers of more than 38 digits, or if no
decimal holds all numbers of the sample. A double rounds fractions of more than 17 digits: such
fields are reported.

Strings stay strings, with one exception: a field is a timestamp if every value of it is an ISO-8601
date and time, and either all of them have an offset or none has. The decoder then reads the latter
as UTC. A mix stays a string, because a value without an offset may be local time.

A field that is null, an empty array or an empty object in every record has no type. It is left out
of the schema and reported, so that it is an unknown field until it is declared or evolves. So is a
field whose name begins with ``_hoodie_``: Hudi gives such columns a meaning (a row with the
``_hoodie_operation`` D is a delete), which only a declaration may ask for.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import is_reserved
from lakemark.schema.evolution import ELEMENT, MAX_EVOLVED_DEPTH, Path, dotted
from transforms.decode.json_inspection import (
    LongInteger,
    count_digits,
    read_decimal,
    read_integer,
    spell_out_infinity,
)
from transforms.decode.json_screening import screen

SAMPLED_VALUES = 10_000

_BIGINTS = range(-(2**63), 2**63)
_EXACT_IN_DOUBLE = range(-(2**53), 2**53 + 1)
_DECIMAL_DIGITS = 38
#: No ``double`` needs more digits to be told from all others.
_DOUBLE_DIGITS = 17

_DECODER = json.JSONDecoder(parse_int=read_integer, parse_float=read_decimal)
_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """What a sample shows.

    Attributes:
        schema: for ``JsonDecoder``, all nullable; without columns when no field has a type.
        records: JSON objects that were sampled.
        untyped: dotted names of fields that hold nothing in any of them.
        reserved: fields that are left out because Hudi gives their names a meaning.
        rounded: dotted names of ``double`` fields that have fractions of more digits.
    """

    schema: pa.Schema
    records: int
    untyped: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    rounded: tuple[str, ...] = ()


def infer_schema(
    values: pa.Array | pa.ChunkedArray,
    sampled_values: int = SAMPLED_VALUES,
    texts: Collection[str] = (),
    exact: Collection[str] = (),
) -> InferredSchema:
    """Columns of the first ``sampled_values`` records, in order of first appearance.

    Broken records are passed over. The names are the records' own: ``schema_text.check_columns``
    tells whether a table can have them.

    Args:
        values: ``binary``.
        sampled_values: how many to look at.
        texts: dotted names of fields whose strings stay strings, such as record keys.
        exact: dotted names of fields whose fractions are decimals, as two of them must never become
            one: record keys and partition columns.

    Raises:
        InvalidConfig: no type holds the numbers of some field exactly.
    """
    sample = values.slice(0, sampled_values)
    chunks = sample.chunks if isinstance(sample, pa.ChunkedArray) else [sample]
    root = _Seen()
    for chunk in chunks:
        for value in chunk.filter(pa.array(screen(chunk).passed)).to_pylist():
            root.add(_parse(value))
    reserved = tuple(filter(is_reserved, root.members))
    for name in reserved:
        del root.members[name]
    types = _Types(texts, exact)
    schema = pa.schema(types.fields_of(root, ()))
    records = root.kinds["struct"]
    return InferredSchema(schema, records, tuple(types.untyped), reserved, tuple(types.rounded))


def _parse(value: bytes) -> object:
    """The record, or null for a broken one."""
    try:
        return _DECODER.decode(spell_out_infinity(value.decode()))
    except (ValueError, RecursionError):
        return None


class _Numbers:
    """What was seen of the numbers in one place."""

    def __init__(self) -> None:
        self.are_integers = self.fit_bigint = self.fit_double = True
        self.has_rounded_fractions = False
        #: The most that a number of at most 38 digits has before and after its point.
        self.whole_digits = self.fraction_digits = 0

    def add(self, number: Decimal | float) -> None:
        """Count one number: an ``int`` or ``LongInteger``, any other one, NaN or an infinity."""
        if _is_long_integer(number):
            self.fit_double = False
            return
        self.are_integers &= isinstance(number, int)
        if isinstance(number, int):
            self.fit_double &= number in _EXACT_IN_DOUBLE
            self.fit_bigint &= number in _BIGINTS
        if isinstance(number, float):
            return
        whole, fraction = count_digits(Decimal(number))
        self.whole_digits = max(self.whole_digits, whole)
        self.fraction_digits = max(self.fraction_digits, fraction)
        if isinstance(number, Decimal):
            digits = "".join(map(str, number.as_tuple().digits)).strip("0")
            self.has_rounded_fractions |= len(digits) > _DOUBLE_DIGITS

    @property
    def as_decimal(self) -> pa.DataType | None:
        """A decimal for them, with room on both sides of the point; None if none holds them."""
        if self.are_integers:
            return pa.decimal128(_DECIMAL_DIGITS, 0)
        spare = _DECIMAL_DIGITS - self.whole_digits - self.fraction_digits
        if spare < 0:
            return None
        return pa.decimal128(_DECIMAL_DIGITS, self.fraction_digits + spare // 2)


class _Seen:
    """What was seen of the values in one place."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.members: dict[str, _Seen] = {}
        self.elements: _Seen | None = None
        self.numbers = _Numbers()
        #: Of all strings whether they are times with an offset, without one (False), or others.
        self.has_offset: set[bool | None] = set()

    def add(self, value: object, depth: int = 0) -> None:
        """Count one value; null tells nothing."""
        if depth > MAX_EVOLVED_DEPTH:
            # Deeper than any table: the decoder rejects it, whatever the type.
            self.kinds["string"] += 1
            self.has_offset.add(None)
        elif isinstance(value, dict):
            self.kinds["struct"] += 1
            for name, member in value.items():
                self.members.setdefault(name, _Seen()).add(member, depth + 1)
        elif isinstance(value, list):
            self.kinds["array"] += 1
            self.elements = self.elements or _Seen()
            for element in value:
                self.elements.add(element, depth + 2)
        elif isinstance(value, bool):
            self.kinds["boolean"] += 1
        elif isinstance(value, (int, float, Decimal)):
            self.kinds["long integer" if _is_long_integer(value) else "number"] += 1
            self.numbers.add(value)
        elif isinstance(value, str):
            self.kinds["string"] += 1
            if None not in self.has_offset:
                self.has_offset.add(_has_offset(value))

    @property
    def are_timestamps(self) -> bool:
        """Whether all values are times that a timestamp column reads without a guess."""
        return len(self.kinds) == 1 and self.has_offset in ({True}, {False})


@dataclass(frozen=True, slots=True)
class _Types:
    """Chooses types, and notes the fields that have none or lose digits."""

    texts: Collection[str]
    exact: Collection[str]
    untyped: list[str] = field(default_factory=list)
    rounded: list[str] = field(default_factory=list)

    def fields_of(self, seen: _Seen, path: Path) -> list[pa.Field]:
        """Fields of an object."""
        types = {name: self._type(of, (*path, name)) for name, of in seen.members.items()}
        return [pa.field(name, inferred) for name, inferred in types.items() if inferred]

    def _type(self, seen: _Seen, path: Path) -> pa.DataType | None:
        """The type in one place, or None where nothing has one."""
        kind = seen.kinds.most_common(1)[0][0] if seen.kinds else "nothing"
        if kind == "struct" and seen.members:
            fields = self.fields_of(seen, path)
            return pa.struct(fields) if fields else None
        if kind == "array" and seen.elements is not None and seen.elements.kinds:
            element = self._type(seen.elements, (*path, ELEMENT))
            return None if element is None else pa.list_(pa.field("element", element))
        if kind in ("struct", "array", "nothing"):
            self.untyped.append(dotted(path))
            return None
        if kind in ("number", "long integer"):
            return self._number_type(seen.numbers, kind, path)
        if kind == "boolean":
            return pa.bool_()
        is_time = seen.are_timestamps and dotted(path) not in self.texts
        return _TIMESTAMP if is_time else pa.string()

    def _number_type(self, numbers: _Numbers, kind: str, path: Path) -> pa.DataType:
        name = dotted(path)
        if kind == "number" and numbers.are_integers and numbers.fit_bigint:
            return pa.int64()
        if kind == "number" and not numbers.are_integers and numbers.fit_double:
            if name not in self.exact:
                self.rounded.extend([name] if numbers.has_rounded_fractions else [])
                return pa.float64()
        decimal = numbers.as_decimal
        if kind == "long integer" or decimal is None:
            message = (
                f"field {name!r}: its numbers need more than the {_DECIMAL_DIGITS} digits of a "
                "decimal, and no other type holds them exactly; send them as strings, or declare "
                "decode.schema (decode.unknown_fields says what happens to fields it leaves out)"
            )
            raise InvalidConfig(message)
        return decimal


def _is_long_integer(number: Decimal | float) -> bool:
    """Whether a number is an integer of more digits than a decimal has."""
    return isinstance(number, (int, LongInteger)) and abs(number) >= 10**_DECIMAL_DIGITS


_DATE_AND_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
    r"(Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?",
    re.ASCII,
)


def _has_offset(text: str) -> bool | None:
    """Whether a date and time has an offset from UTC; None for any other text."""
    match = _DATE_AND_TIME.fullmatch(text)
    if match is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        if parsed.tzinfo is not None:  # otherwise it is in UTC, and not in this machine's zone
            parsed.astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or beyond the years 1 to 9999 in UTC
        return None
    return match[1] is not None
