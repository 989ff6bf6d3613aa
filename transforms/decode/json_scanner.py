"""Reads the text of single JSON records; no other module of the decoder reads JSON text.

pyarrow reads almost all records, in blocks (``json_block``). A record is read here only if its
columns do not show enough about it:

``json_inspection``  why a record is rejected, and the forms of its timestamps
``json_mismatches``  its unknown fields, and its values that only fit a wider type
``json_rescue``      the text of its unknown fields, or of its known fields
``json_presence``    whether it has a field, which may be null
``json_inference``   the types of its fields, in a sample
``tombstone_keys``   whether a key has a field inside an object

A record can be read in two ways. ``parse`` returns its values. ``find_members`` and
``find_elements`` yield the spans of its values in the text, so that a value can be copied without
changing a digit. Both ways obey these rules:

- They read every text that pyarrow reads, so that the result does not depend on which parser reads
  a record. ``NaN``, ``Inf`` and ``Infinity`` are numbers, with or without a minus sign, and a
  number may have any length.
- No number overflows. ``parse`` returns an infinite ``float`` only if the record contains an
  infinity. For a number that is too large for a ``double``, it returns a ``Decimal``.
- A field that is given twice is reported: ``parse`` returns a ``RepeatingObject``, and
  ``find_members`` yields both members.
- ``json.JSONDecodeError``, a ``ValueError``, means that the text is not JSON. Only ``parse`` checks
  this; the other functions require a valid record.
- ``RecursionError`` means that a value is nested too deeply for Python. Only ``find_names`` reads
  values of any depth.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation

_STRUCTURE = json.JSONDecoder(parse_int=str, parse_float=str)

#: Returns a nested value or None, and the position after the value.
Skip = Callable[[str, int], tuple[object, int]]

_STRING = r'"([^"\\]*(?:\\.[^"\\]*)*)"'
_UNNAMED_STRING = _STRING.replace("(", "(?:", 1)
#: A member of an object: its name and its value. If the value is nested, the group of the value is
#: empty.
_MEMBER = re.compile(
    rf"[ \t\n\r,]*{_STRING}[ \t\n\r]*:[ \t\n\r]*"
    rf"({_UNNAMED_STRING}|[^ \t\n\r,{{}}\[\]\"]+|(?=[\[{{]))",
    re.DOTALL,
)
_STRING_OR_BRACKET = re.compile(rf"{_UNNAMED_STRING}|[{{}}\[\]]", re.DOTALL)


class LongInteger(Decimal):
    """An integer with so many digits that Python does not convert it to an ``int``."""


class RepeatingObject(dict[str, object]):
    """A JSON object that names a field more than once; it contains the field's last value."""

    def __init__(self, members: list[tuple[str, object]]) -> None:
        super().__init__(members)
        names = [name for name, _ in members]
        self.repeated = {name for name in names if names.count(name) > 1}


def parse(text: str, *, exact: bool = False) -> object:
    """Parse a record, or a value in a record.

    Args:
        text: the record.
        exact: whether fractions become a ``Decimal`` with all their digits. Otherwise they become a
            ``float``, which takes half the time.

    Returns:
        The record. Each integer in it is an ``int`` or a ``LongInteger``.

    Raises:
        json.JSONDecodeError: the record is not JSON.
        RecursionError: the record is nested too deeply.
    """
    text = spell_out_constants(text)
    try:
        return (_EXACT if exact else _ROUNDED).decode(text)
    except json.JSONDecodeError:
        raise
    except (ValueError, ArithmeticError):  # a number has too many digits, or too large an exponent
        return (_EXACT_OF_ANY_LENGTH if exact else _ROUNDED_OF_ANY_LENGTH).decode(text)


def parse_structure(text: str, begin: int) -> tuple[object, int]:
    """Parse the value at ``begin``, but keep numbers as text, which is faster than ``parse``.

    Args:
        text: a valid record, after ``spell_out_constants``.
        begin: the position of the value.

    Returns:
        The value, and the position after it. In the value, each number is a text, and a field that
        is given twice has its last value.

    Raises:
        RecursionError: the value is nested too deeply.
    """
    return _STRUCTURE.raw_decode(text, begin)


def find_members(
    text: str, start: int, skip: Skip = _STRUCTURE.raw_decode
) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each member of the object at ``start``, and the span of its value.

    Args:
        text: a valid record, after ``spell_out_constants``.
        start: the position of the ``{``.
        skip: returns the position after a nested value, like ``parse_structure``.

    Raises:
        RecursionError: a value is nested too deeply for ``skip``.
    """
    position = start + 1
    while (member := _MEMBER.match(text, position)) is not None:
        begin, position = member.span(2)
        if begin == position:
            position = skip(text, begin)[1]
        name = member[1]
        yield json.loads(f'"{name}"') if "\\" in name else name, begin, position


def find_elements(text: str, start: int) -> Iterator[tuple[int, int]]:
    """Yield the span of each element of the array at ``start``; see ``find_members``."""
    position = start + 1
    while text[begin := _after_blanks(text, position)] != "]":
        _, position = parse_structure(text, begin)
        yield begin, position


def find_names(text: str) -> Iterator[str]:
    """Yield the names of the top-level fields of a valid record. Its values may have any depth."""
    text = spell_out_constants(text)
    return (name for name, _, _ in find_members(text, text.index("{"), _skip_any_depth))


#: Numbers that pyarrow accepts and Python does not; also strings, which may contain these letters.
_CONSTANT = re.compile(r'("(?:[^"\\]|\\.)*")|-(NaN)|(Inf)(?!inity)')


def spell_out_constants(text: str) -> str:
    """Replace ``Inf`` by ``Infinity`` and ``-NaN`` by ``NaN``, which Python accepts."""
    if "Inf" not in text and "-NaN" not in text:
        return text
    return _CONSTANT.sub(lambda match: match[1] or match[2] or "Infinity", text)


#: The value that replaces numbers whose exponent is too large for ``Decimal``.
_TOO_LARGE = Decimal("1e999999")


def read_decimal(text: str) -> Decimal:
    """Parse a number exactly; if its exponent is too large for ``Decimal``, return 1e999999."""
    try:
        return Decimal(text)
    except InvalidOperation:
        is_tiny = float(text) == 0.0
        return Decimal(0) if is_tiny else _TOO_LARGE.copy_sign(Decimal(f"{text[0]}1"))


def count_digits(number: Decimal) -> tuple[int, int]:
    """Count the digits that a number needs before and after the point."""
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), number
    trailing_zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if trailing_zeros == len(digits):
        return 0, 0
    return max(0, len(digits) + exponent), max(0, -exponent - trailing_zeros)


#: Longer integers become a ``LongInteger``, because Python refuses integers of thousands of digits.
_MAX_INTEGER_CHARACTERS = 400


def _read_integer(text: str) -> int | LongInteger:
    return int(text) if len(text) <= _MAX_INTEGER_CHARACTERS else LongInteger(text)


def _read_rounded(text: str) -> float | Decimal:
    """Parse a fraction to the nearest ``double``; parse it exactly if this would be infinity."""
    number = float(text)
    return read_decimal(text) if math.isinf(number) else number


def _to_object(members: list[tuple[str, object]]) -> dict[str, object]:
    plain = dict(members)
    return plain if len(plain) == len(members) else RepeatingObject(members)


_ROUNDED = json.JSONDecoder(object_pairs_hook=_to_object, parse_float=_read_rounded)
_EXACT = json.JSONDecoder(object_pairs_hook=_to_object, parse_float=Decimal)

#: Slower decoders, because they call a function for each integer. They are used only if necessary.
_ROUNDED_OF_ANY_LENGTH = json.JSONDecoder(
    object_pairs_hook=_to_object, parse_int=_read_integer, parse_float=_read_rounded
)
_EXACT_OF_ANY_LENGTH = json.JSONDecoder(
    object_pairs_hook=_to_object, parse_int=_read_integer, parse_float=read_decimal
)


def _skip_any_depth(text: str, begin: int) -> tuple[object, int]:
    try:
        return parse_structure(text, begin)
    except RecursionError:
        return None, _matching_bracket(text, begin) + 1


def _matching_bracket(text: str, begin: int) -> int:
    """Return the position of the bracket that closes the bracket at ``begin``."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text, begin):
        if match[0] in "{[":
            depth += 1
        elif match[0] in "}]":
            depth -= 1
            if not depth:
                return match.start()
    message = "the record is not JSON: a bracket is not closed"
    raise ValueError(message)


def _after_blanks(text: str, position: int) -> int:
    while text[position] in " \t\n\r,":
        position += 1
    return position
