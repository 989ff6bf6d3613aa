"""Infers a schema from a sample of JSON records.

The kind of a field is that of most of its values: string, number, boolean, array or struct.

The types for numbers keep all digits of integers and of keys:

integers of 64 bits        bigint
larger integers            decimal(38,0), because later ones may be longer
any fractions              double if no integer is above 2^53 and the field is not part of a key;
                           otherwise decimal(38,s), where s includes half of the digits that the
                           sample does not use

A number with a point or an exponent (1.0, 1e3) is a fraction, because the decoder does not read it
as bigint. A field is refused if most of its values are integers of more than 38 digits, or if no
decimal fits all numbers of the sample. A double rounds fractions of more than 17 digits. Fields
with such fractions are reported.

A string field becomes a timestamp if every value is an ISO-8601 date and time, and either all or
none of the values have an offset. The decoder reads values without an offset as UTC. If only some
values have an offset, the field remains a string, because the other values may be in local time.

A field that is null, an empty array or an empty object in every record has no type. It is reported
and is not part of the schema. So it is an unknown field until it is declared or evolves. The same
is true for a field whose name begins with ``_hoodie_``. Hudi gives such columns a meaning, so users
must declare them. For example, a row with the ``_hoodie_operation`` D is a delete.
"""

from __future__ import annotations

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
from transforms.decode.json_scanner import LongInteger, count_digits, parse
from transforms.decode.json_screening import screen

SAMPLED_VALUES = 10_000

_BIGINTS = range(-(2**63), 2**63)
_EXACT_IN_DOUBLE = range(-(2**53), 2**53 + 1)
_DECIMAL_DIGITS = 38
#: 17 digits are enough to distinguish a ``double`` from all others.
_DOUBLE_DIGITS = 17

_TIMESTAMP = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredSchema:
    """The result of the inference.

    Attributes:
        schema: the schema for ``JsonDecoder``. All columns are nullable. If no field has a type,
            there are no columns.
        records: the number of JSON objects in the sample.
        untyped: the dotted names of fields without content in all records.
        reserved: the fields that are not in the schema, because Hudi gives their names a meaning.
        rounded: the dotted names of ``double`` fields with fractions of more than 17 digits.
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
    """Infer columns from the first ``sampled_values`` records, in order of first appearance.

    Broken records are skipped. Names are not checked; ``check_columns`` of
    ``lakemark.schema.table_columns`` checks whether a table can have them.

    Args:
        values: the records, of type ``binary``.
        sampled_values: the size of the sample.
        texts: the dotted names of fields whose strings never become timestamps, such as record
            keys.
        exact: the dotted names of fields whose fractions become decimals: record keys and partition
            columns. They must be exact, because rounding could make two different keys equal.

    Raises:
        InvalidConfig: no type fits the numbers of a field exactly.
    """
    sample = values.slice(0, sampled_values)
    chunks = sample.chunks if isinstance(sample, pa.ChunkedArray) else [sample]
    root = _FieldStatistics()
    for chunk in chunks:
        for value in chunk.filter(pa.array(screen(chunk).passed)).to_pylist():
            root.add(_parse(value))
    reserved = tuple(filter(is_reserved, root.members))
    for name in reserved:
        del root.members[name]
    types = _TypeChooser(texts, exact)
    schema = pa.schema(types.choose_fields(root, ()))
    records = root.kinds["struct"]
    return InferredSchema(
        schema=schema,
        records=records,
        untyped=tuple(types.untyped),
        reserved=reserved,
        rounded=tuple(types.rounded),
    )


def _parse(value: bytes) -> object:
    """Parse a record; return None if it is broken."""
    try:
        return parse(value.decode(), exact=True)
    except (ValueError, RecursionError):
        return None


class _NumberStatistics:
    """Statistics of the numbers of one field."""

    def __init__(self) -> None:
        self.are_integers = self.fit_bigint = self.fit_double = True
        self.has_rounded_fractions = False
        #: The maximum number of digits before and after the point, among numbers of at most 38
        #: digits.
        self.whole_digits = self.fraction_digits = 0

    def add(self, number: Decimal | float) -> None:
        """Count one number: an integer, a fraction, NaN or an infinity."""
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
    def decimal_type(self) -> pa.DataType | None:
        """A decimal type for all numbers, with spare digits if possible; None if there is none."""
        if self.are_integers:
            return pa.decimal128(_DECIMAL_DIGITS, 0)
        spare = _DECIMAL_DIGITS - self.whole_digits - self.fraction_digits
        if spare < 0:
            return None
        return pa.decimal128(_DECIMAL_DIGITS, self.fraction_digits + spare // 2)


class _FieldStatistics:
    """Statistics of the values of one field."""

    def __init__(self) -> None:
        self.kinds: Counter[str] = Counter()
        self.members: dict[str, _FieldStatistics] = {}
        self.elements: _FieldStatistics | None = None
        self.numbers = _NumberStatistics()
        #: The strings that occur: times with an offset (True) or without (False), others (None).
        self.has_offset: set[bool | None] = set()

    def add(self, value: object, depth: int = 0) -> None:
        """Count one value; null is ignored."""
        if depth > MAX_EVOLVED_DEPTH:
            # No table has columns at this depth. The decoder rejects the value, whatever its type.
            self.kinds["string"] += 1
            self.has_offset.add(None)
        elif isinstance(value, dict):
            self.kinds["struct"] += 1
            for name, member in value.items():
                self.members.setdefault(name, _FieldStatistics()).add(member, depth + 1)
        elif isinstance(value, list):
            self.kinds["array"] += 1
            self.elements = self.elements or _FieldStatistics()
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
        """Whether all values are times that a timestamp column can read without guessing."""
        return len(self.kinds) == 1 and self.has_offset in ({True}, {False})


@dataclass(frozen=True, slots=True)
class _TypeChooser:
    """Chooses types, and collects the fields that have no type or lose digits."""

    texts: Collection[str]
    exact: Collection[str]
    untyped: list[str] = field(default_factory=list)
    rounded: list[str] = field(default_factory=list)

    def choose_fields(self, statistics: _FieldStatistics, path: Path) -> list[pa.Field]:
        """Return the fields of an object."""
        types = {
            name: self._choose_type(of, (*path, name)) for name, of in statistics.members.items()
        }
        return [pa.field(name, inferred) for name, inferred in types.items() if inferred]

    def _choose_type(self, statistics: _FieldStatistics, path: Path) -> pa.DataType | None:
        """Return the type of a field; None if none of its values has a type."""
        kind = statistics.kinds.most_common(1)[0][0] if statistics.kinds else "empty"
        if kind == "struct" and statistics.members:
            fields = self.choose_fields(statistics, path)
            return pa.struct(fields) if fields else None
        if kind == "array" and statistics.elements is not None and statistics.elements.kinds:
            element = self._choose_type(statistics.elements, (*path, ELEMENT))
            return None if element is None else pa.list_(pa.field("element", element))
        if kind in ("struct", "array", "empty"):
            self.untyped.append(dotted(path))
            return None
        if kind in ("number", "long integer"):
            return self._choose_number_type(statistics.numbers, kind, path)
        if kind == "boolean":
            return pa.bool_()
        is_time = statistics.are_timestamps and dotted(path) not in self.texts
        return _TIMESTAMP if is_time else pa.string()

    def _choose_number_type(self, numbers: _NumberStatistics, kind: str, path: Path) -> pa.DataType:
        name = dotted(path)
        if kind == "number" and numbers.are_integers and numbers.fit_bigint:
            return pa.int64()
        if kind == "number" and not numbers.are_integers and numbers.fit_double:
            if name not in self.exact:
                self.rounded.extend([name] if numbers.has_rounded_fractions else [])
                return pa.float64()
        decimal = numbers.decimal_type
        if kind == "long integer" or decimal is None:
            message = (
                f"field {name!r}: its numbers need more than the {_DECIMAL_DIGITS} digits of a "
                "decimal, and no other type fits them exactly; send them as strings, or declare "
                "decode.schema without the field (see decode.unknown_fields)"
            )
            raise InvalidConfig(message)
        return decimal


def _is_long_integer(number: Decimal | float) -> bool:
    """Return whether a number is an integer with more digits than a decimal can have."""
    return isinstance(number, (int, LongInteger)) and abs(number) >= 10**_DECIMAL_DIGITS


_DATE_AND_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ](?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d(?:\.\d+)?)?"
    r"(Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)?",
    re.ASCII,
)


def _has_offset(text: str) -> bool | None:
    """Return whether a date and time has an offset from UTC; None for any other text."""
    match = _DATE_AND_TIME.fullmatch(text)
    if match is None:
        return None
    try:
        parsed = datetime.fromisoformat(text)
        if parsed.tzinfo is not None:  # astimezone would take a time without a zone as local time
            parsed.astimezone(UTC)
    except (ValueError, OverflowError):  # no such day, or beyond the years 1 to 9999 in UTC
        return None
    return match[1] is not None
