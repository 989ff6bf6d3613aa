"""Inspects single JSON records, to find reject reasons and the forms of timestamps.

Only the records of a block that pyarrow could not read, or may have read wrongly
(``json_overflow``), are inspected. The inspection only reports faults for which the decoder also
refuses the record alone (``tests/property`` checks this). So the result for a record never depends
on other records. Records that pass the inspection are read by pyarrow.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TypeGuard

import pyarrow as pa

from transforms.decode.json_block import TimestampForm, count_timestamps
from transforms.decode.json_scanner import (
    LongInteger,
    RepeatingObject,
    count_digits,
    parse,
    read_decimal,
)
from transforms.reject_reason import RejectCode, RejectReason

#: One form for each timestamp of the schema; None if the record has no value for the timestamp.
SeenForms = tuple[TimestampForm | None, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of inspecting one record.

    Attributes:
        reason: why the record is broken; None if it is not broken.
        forms: the forms of the record's timestamps.
        is_complete: whether Python could parse the record. If not, only pyarrow can check it.
    """

    reason: RejectReason | None
    forms: SeenForms
    is_complete: bool = True


class RecordInspector:
    """Inspects records against one schema.

    Attributes:
        holds_decimals: whether the schema has a decimal, so that numbers are parsed exactly.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._timestamps = sum(count_timestamps(field.type) for field in schema)
        self._check = _object_check(list(schema), iter(range(self._timestamps)))
        self.holds_decimals = any(map(_holds_decimals, schema.types))

    def inspect(self, value: bytes) -> Finding:
        """Return what is wrong with a record, if anything is, and the forms of its timestamps."""
        try:
            record = parse(value.decode(), exact=self.holds_decimals)
        except json.JSONDecodeError as error:
            text = f"invalid JSON: {error}"
            return self._without_forms(RejectReason(RejectCode.INVALID_MESSAGE, text))
        except RecursionError:
            return self._without_forms(None, is_complete=False)
        seen: _Seen = [None] * self._timestamps
        reason = _format_fault(self._check(record, seen))
        return Finding(reason, tuple(seen))

    def _without_forms(self, reason: RejectReason | None, *, is_complete: bool = True) -> Finding:
        return Finding(reason, (None,) * self._timestamps, is_complete)


def _format_fault(fault: str | None) -> RejectReason | None:
    if fault is None:
        return None
    path, _, problem = fault.partition(": ")
    name = path[1:]
    return RejectReason(RejectCode.INVALID_VALUE, f"column {name!r}: {problem}", name)


_Seen = list[TimestampForm | None]

#: Checks a value that is not null, and records the forms of its timestamps. The result is None or a
#: fault, ``<path>: <what is wrong>``. Each caller prepends a part of the path.
_Check = Callable[[object, _Seen], str | None]


def _holds_decimals(data_type: pa.DataType) -> bool:
    nested = [data_type.field(i).type for i in range(data_type.num_fields)]
    return pa.types.is_decimal(data_type) or any(map(_holds_decimals, nested))


def _check_for(wanted: pa.DataType, timestamps: Iterator[int]) -> _Check:
    """Return the check for a type; ``timestamps`` yields the index of each timestamp's form."""
    if pa.types.is_struct(wanted):
        return _object_check(list(wanted), timestamps)
    if pa.types.is_list(wanted):
        return _array_check(wanted.value_type, timestamps)
    if pa.types.is_timestamp(wanted):
        return _timestamp_check(next(timestamps))
    return _decimal_check(wanted) if pa.types.is_decimal(wanted) else _LEAF_CHECKS[wanted]


def _object_check(fields: list[pa.Field], timestamps: Iterator[int]) -> _Check:
    members = [(field.name, _check_for(field.type, timestamps)) for field in fields]

    def check(value: object, seen: _Seen) -> str | None:
        if not isinstance(value, dict):
            return f": {_describe(value)} is not an object"
        if isinstance(value, RepeatingObject):
            for name, _ in members:
                if name in value.repeated:
                    return f".{name}: it is given twice"
        for name, check_member in members:
            member = value.get(name)
            if member is not None and (fault := check_member(member, seen)) is not None:
                return f".{name}{fault}"
        return None

    return check


def _array_check(element_type: pa.DataType, timestamps: Iterator[int]) -> _Check:
    check_element = _check_for(element_type, timestamps)

    def check(value: object, seen: _Seen) -> str | None:
        if not isinstance(value, list):
            return f": {_describe(value)} is not an array"
        for element in value:
            if element is not None and (fault := check_element(element, seen)) is not None:
                return f"[]{fault}"
        return None

    return check


def _timestamp_check(number: int) -> _Check:
    def check(value: object, seen: _Seen) -> str | None:
        form = _find_form(value)
        if form is None:
            return f": {_describe(value)} is not a timestamp (ISO-8601, or an integer since 1970)"
        merged = merge_forms(seen[number], form)
        if merged is None:
            return ": texts and integers are mixed in one record"
        seen[number] = merged
        return None

    return check


def merge_forms(one: TimestampForm | None, other: TimestampForm | None) -> TimestampForm | None:
    """Return the form that can read values of both forms; None if there is none."""
    if one is None or other is None or one is other:
        return one or other
    if TimestampForm.EPOCH in (one, other):
        return None
    return TimestampForm.LONG_FRACTION


_TIMESTAMP_TEXT = re.compile(
    r"(\d{4}-\d\d-\d\d)"
    r"(?:[T ]\d\d(?::\d\d(?::\d\d(?:\.(\d+))?)?)?(?:Z|[+-]\d\d(?::?\d\d)?)?)?",
    re.ASCII,
)
_MICROSECOND_DIGITS = 6


def _find_form(value: object) -> TimestampForm | None:
    if type(value) is int:
        return TimestampForm.EPOCH if -_INT64_MAX - 1 <= value <= _INT64_MAX else None
    match = _TIMESTAMP_TEXT.fullmatch(value) if isinstance(value, str) else None
    if match is None or not _is_date(match[1]):
        return None
    if len(match[2] or "") > _MICROSECOND_DIGITS:
        return TimestampForm.LONG_FRACTION
    return TimestampForm.ISO


def _is_date(text: object) -> bool:
    if not isinstance(text, str) or not _DATE_TEXT.fullmatch(text):
        return False
    try:
        date(int(text[:4]), int(text[5:7]), int(text[8:]))
    except ValueError:
        return False
    return True


_DATE_TEXT = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_BASE64_TEXT = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII
)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
#: Slightly above the greatest ``float``, because pyarrow decides how values near it are rounded.
_FLOAT_CEILING = 3.5e38


def _check_string(value: object, _: _Seen) -> str | None:
    return None if isinstance(value, str) else f": {_describe(value)} is not a string"


def _check_boolean(value: object, _: _Seen) -> str | None:
    return None if isinstance(value, bool) else f": {_describe(value)} is not a boolean"


def _check_int(value: object, _: _Seen) -> str | None:
    return _integer_fault(value, _INT32_MAX, "int")


def _check_bigint(value: object, _: _Seen) -> str | None:
    return _integer_fault(value, _INT64_MAX, "bigint")


def _integer_fault(value: object, maximum: int, name: str) -> str | None:
    if type(value) is not int and not isinstance(value, LongInteger):
        return f": {_describe(value)} is not an integer"
    return None if -maximum - 1 <= value <= maximum else f": {_describe(value)} does not fit {name}"


def _check_double(value: object, _: _Seen) -> str | None:
    return _floating_fault(value, math.inf, "double")


def _check_float(value: object, _: _Seen) -> str | None:
    return _floating_fault(value, _FLOAT_CEILING, "float")


def _floating_fault(value: object, ceiling: float, name: str) -> str | None:
    """Return what is wrong with a number that must be below ``ceiling``; None if it is valid."""
    if not _is_number(value):
        return f": {_describe(value)} is not a number"
    is_special = isinstance(value, float) and not math.isfinite(value)
    if is_special or abs(_to_double(value)) < ceiling:
        return None
    return f": {_describe(value)} does not fit {name}"


def _to_double(value: float | Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _check_date(value: object, _: _Seen) -> str | None:
    return None if _is_date(value) else f": {_describe(value)} is not a date (yyyy-MM-dd)"


def _check_binary(value: object, _: _Seen) -> str | None:
    is_base64 = isinstance(value, str) and _BASE64_TEXT.fullmatch(value)
    return None if is_base64 else f": {_describe(value)} is not Base64"


def _decimal_check(wanted: pa.DataType) -> _Check:
    def check(value: object, _: _Seen) -> str | None:
        if isinstance(value, str) and not _DECIMAL_TEXT.fullmatch(value):
            return f": {_describe(value)} is not a decimal number"
        if isinstance(value, bool) or not isinstance(value, (str, int, Decimal)):
            return f": {_describe(value)} is not a decimal number"
        number = read_decimal(value) if isinstance(value, str) else Decimal(value)
        whole, fraction = count_digits(number)
        if whole > wanted.precision - wanted.scale or fraction > wanted.scale:
            return f": {_describe(value)} does not fit decimal({wanted.precision},{wanted.scale})"
        return None

    return check


_LEAF_CHECKS: dict[pa.DataType, _Check] = {
    pa.string(): _check_string,
    pa.bool_(): _check_boolean,
    pa.int32(): _check_int,
    pa.int64(): _check_bigint,
    pa.float32(): _check_float,
    pa.float64(): _check_double,
    pa.date32(): _check_date,
    pa.binary(): _check_binary,
}

#: The types that inspection and decoder support, in addition to decimals and timestamps.
LEAF_TYPES = frozenset(_LEAF_CHECKS)


def _is_number(value: object) -> TypeGuard[int | float | Decimal]:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


_SHOWN_CHARACTERS = 40


def _describe(value: object) -> str:
    """Return the kind and the shortened content of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, bool):
        return f"boolean {str(value).lower()}"
    kind, shown = ("string", repr(value)) if isinstance(value, str) else ("number", str(value))
    if len(shown) > _SHOWN_CHARACTERS:
        shown = f"{shown[:_SHOWN_CHARACTERS]}..."
    return f"{kind} {shown}"
