"""One JSON record looked at by itself, to say what is wrong with it and how it spells its times.

Only the few records of a block that pyarrow could not read come here. The inspection is on the
safe side: it finds fault only where pyarrow would (``tests/property`` holds it to that), so that
a record's fate never depends on the records beside it. What it lets pass, pyarrow judges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pyarrow as pa

from transforms.decode.json_block import TimestampForm, count_timestamps

#: A form for each timestamp of the schema; None where the record has no value to tell it by.
SeenForms = tuple[TimestampForm | None, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    """What the inspection of one record found; a ``reason`` means that it is broken."""

    reason: str | None
    forms: SeenForms


class RecordInspector:
    """Inspects records against one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._timestamps = sum(count_timestamps(field.type) for field in schema)
        self._check = _object_check("", list(schema), iter(range(self._timestamps)))
        self._json = json.JSONDecoder(object_pairs_hook=_to_object, parse_float=Decimal)

    def inspect(self, value: bytes) -> Finding:
        """What is wrong with a record, if anything is, and its forms of timestamps."""
        seen: list[TimestampForm | None] = [None] * self._timestamps
        text = value.decode()
        try:
            reason = self._check(self._json.decode(text), seen)
        except json.JSONDecodeError as error:
            reason = None if "Inf" in text else f"invalid JSON: {error}"
        except (RecursionError, ValueError, ArithmeticError):
            reason = None  # too deep or too long for Python, which pyarrow may still read
        return Finding(reason, tuple(seen))


_Check = Callable[[object, list[TimestampForm | None]], str | None]


class _RepeatingObject(dict[str, object]):
    """A JSON object that names a field more than once."""

    def __init__(self, members: list[tuple[str, object]]) -> None:
        super().__init__(members)
        names = [name for name, _ in members]
        self.repeated = {name for name in names if names.count(name) > 1}


def _to_object(members: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(members)
    return plain if len(plain) == len(members) else _RepeatingObject(members)


def _check_for(path: str, wanted: pa.DataType, timestamps: Iterator[int]) -> _Check:
    """The check for values of one column; ``timestamps`` numbers the forms, depth first."""
    if pa.types.is_struct(wanted):
        return _object_check(path, list(wanted), timestamps)
    if pa.types.is_list(wanted):
        return _array_check(path, wanted, timestamps)
    if pa.types.is_timestamp(wanted):
        return _timestamp_check(path, next(timestamps))
    find_fault = _find_fault_of(wanted)

    def check(value: object, _: list[TimestampForm | None]) -> str | None:
        fault = find_fault(value)
        return None if fault is None else f"column {path!r}: {fault}"

    return check


def _object_check(path: str, fields: list[pa.Field], timestamps: Iterator[int]) -> _Check:
    prefix = f"{path}." if path else ""
    members = {f.name: _check_for(f"{prefix}{f.name}", f.type, timestamps) for f in fields}

    def check(value: object, seen: list[TimestampForm | None]) -> str | None:
        if not isinstance(value, dict):
            return f"column {path!r}: {_say(value)} is not an object"
        if isinstance(value, _RepeatingObject):
            for name in members:
                if name in value.repeated:
                    return f"column {prefix + name!r} is given twice"
        for name, check_member in members.items():
            member = value.get(name)
            if member is not None and (reason := check_member(member, seen)) is not None:
                return reason
        return None

    return check


def _array_check(path: str, wanted: pa.DataType, timestamps: Iterator[int]) -> _Check:
    check_element = _check_for(f"{path}[]", wanted.value_type, timestamps)

    def check(value: object, seen: list[TimestampForm | None]) -> str | None:
        if not isinstance(value, list):
            return f"column {path!r}: {_say(value)} is not an array"
        reasons = (check_element(element, seen) for element in value if element is not None)
        return next((reason for reason in reasons if reason is not None), None)

    return check


def _timestamp_check(path: str, number: int) -> _Check:
    def check(value: object, seen: list[TimestampForm | None]) -> str | None:
        form = _form_of(value)
        if form is None:
            return (
                f"column {path!r}: {_say(value)} is not a timestamp "
                "(ISO-8601 text, or an integer since 1970)"
            )
        merged = merge_forms(seen[number], form)
        if merged is None:
            return f"column {path!r} mixes texts and integers in one record"
        seen[number] = merged
        return None

    return check


def merge_forms(one: TimestampForm | None, other: TimestampForm | None) -> TimestampForm | None:
    """The form that reads values of both, or None when there is none to be named."""
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


def _form_of(value: object) -> TimestampForm | None:
    if type(value) is int:
        return TimestampForm.EPOCH if abs(value) <= _INT64_MAX else None
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
#: Somewhat above the greatest ``float``, so that rounding is left to pyarrow.
_FLOAT_CEILING = Decimal("3.5e38")

_FindFault = Callable[[object], str | None]


def _find_fault_of(wanted: pa.DataType) -> _FindFault:
    if pa.types.is_decimal(wanted):
        return lambda value: _decimal_fault(value, wanted)
    return _FIND_FAULT[wanted]


def _string_fault(value: object) -> str | None:
    return None if isinstance(value, str) else f"{_say(value)} is not a string"


def _boolean_fault(value: object) -> str | None:
    return None if isinstance(value, bool) else f"{_say(value)} is not a boolean"


def _int_fault(value: object) -> str | None:
    return _integer_fault(value, _INT32_MAX, "int")


def _bigint_fault(value: object) -> str | None:
    return _integer_fault(value, _INT64_MAX, "bigint")


def _integer_fault(value: object, greatest: int, name: str) -> str | None:
    if type(value) is not int:
        return f"{_say(value)} is not an integer"
    return None if -greatest - 1 <= value <= greatest else f"{_say(value)} does not fit {name}"


def _double_fault(value: object) -> str | None:
    return None if _is_number(value) else f"{_say(value)} is not a number"


def _float_fault(value: object) -> str | None:
    if isinstance(value, (int, Decimal)) and abs(Decimal(value)) > _FLOAT_CEILING:
        return f"{_say(value)} does not fit float"
    return _double_fault(value)


def _date_fault(value: object) -> str | None:
    return None if _is_date(value) else f"{_say(value)} is not a date (yyyy-MM-dd)"


def _binary_fault(value: object) -> str | None:
    is_base64 = isinstance(value, str) and _BASE64_TEXT.fullmatch(value)
    return None if is_base64 else f"{_say(value)} is not Base64"


def _decimal_fault(value: object, wanted: pa.DataType) -> str | None:
    if isinstance(value, str) and _DECIMAL_TEXT.fullmatch(value):
        number = Decimal(value)
    elif isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        number = Decimal(value)
    else:
        return f"{_say(value)} is not a decimal number"
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), number
    significant = "".join(map(str, digits)).rstrip("0")
    exponent += len(digits) - len(significant)
    whole_digits = len(significant) + exponent if significant else 0
    if significant and (-exponent > wanted.scale or whole_digits > wanted.precision - wanted.scale):
        return f"{_say(value)} does not fit decimal({wanted.precision},{wanted.scale})"
    return None


_FIND_FAULT: dict[pa.DataType, _FindFault] = {
    pa.string(): _string_fault,
    pa.bool_(): _boolean_fault,
    pa.int32(): _int_fault,
    pa.int64(): _bigint_fault,
    pa.float32(): _float_fault,
    pa.float64(): _double_fault,
    pa.date32(): _date_fault,
    pa.binary(): _binary_fault,
}

#: What the inspection, and so the decoder, knows how to read besides decimals and timestamps.
LEAF_TYPES = frozenset(_FIND_FAULT)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


_SHOWN_CHARACTERS = 40


def _say(value: object) -> str:
    """Kind and, shortened, content of a JSON value."""
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
