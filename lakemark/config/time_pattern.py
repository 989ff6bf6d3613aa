"""Patterns that format a time as the folder of a partition, such as ``yyyy-MM-dd``.

The patterns are those of Joda-Time, which Apache Hudi uses. Lakemark supports ``y``, ``yyy`` and
``yyyy``; one or two of the letters ``M d H m s``; text in single quotes; and every character that
is not a letter. Other letters, and names of months, are refused. Source: ``DateTimeFormat`` of
Joda-Time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from lakemark.errors import InvalidConfig


class TimePart(StrEnum):
    """The parts of a time that a pattern can contain, the largest first."""

    YEAR = "y"
    MONTH = "M"
    DAY = "d"
    HOUR = "H"
    MINUTE = "m"
    SECOND = "s"


#: The largest number of letters that each part may have. Three letters ``M`` are a name.
_MAX_LETTERS = {part: 4 if part is TimePart.YEAR else 2 for part in TimePart}

_TOKEN = re.compile(
    r"(?P<letters>([A-Za-z])\2*)|(?P<quote>'')|'(?P<quoted>([^']|'')+)'|(?P<other>[^A-Za-z']+)"
)


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern, parsed.

    Attributes:
        text: the pattern.
        tokens: the parts of a time with their smallest number of digits, and the texts in between.
    """

    text: str
    tokens: tuple[tuple[TimePart, int] | str, ...]

    @classmethod
    def parse(cls, text: str) -> TimePattern:
        """Parse a pattern.

        Raises:
            InvalidConfig: the pattern is empty, has no part of a time, or has a letter that
                lakemark does not support.
        """
        tokens: list[tuple[TimePart, int] | str] = []
        end = 0
        for found in _TOKEN.finditer(text):
            if found.start() != end:
                break
            end = found.end()
            letters = found["letters"]
            tokens.append(_part(letters, text) if letters else _literal(found))
        if end != len(text) or not any(isinstance(token, tuple) for token in tokens):
            message = (
                f"{text!r} is not a pattern for times; combine yyyy, MM, dd, HH, mm and ss, as in "
                "yyyy-MM-dd"
            )
            raise InvalidConfig(message)
        return cls(text, tuple(tokens))

    @property
    def finest(self) -> TimePart:
        """The smallest part of a time that the pattern contains."""
        order = list(TimePart)
        return max((part for part in self._parts), key=order.index)

    def format(self, time: datetime) -> str:
        """Return the text of a time, which has no zone."""
        return "".join(
            token if isinstance(token, str) else _digits(_value(time, token[0]), *token)
            for token in self.tokens
        )

    @property
    def _parts(self) -> list[TimePart]:
        return [token[0] for token in self.tokens if isinstance(token, tuple)]


def _part(letters: str, pattern: str) -> tuple[TimePart, int]:
    try:
        part = TimePart(letters[0])
    except ValueError:
        part = None
    # Joda-Time cuts a year of two letters to two digits.
    if part is None or len(letters) > _MAX_LETTERS[part] or letters == "yy":
        message = (
            f"pattern {pattern!r} contains {letters!r}; lakemark formats times with yyyy, MM, dd, "
            "HH, mm and ss only"
        )
        raise InvalidConfig(message)
    return part, len(letters)


def _literal(found: re.Match[str]) -> str:
    """Return the text between parts; two quotes in a pattern are one quote."""
    text = found["other"] or found["quoted"] or found["quote"]
    return text if found["other"] else text.replace("''", "'")


def _value(time: datetime, part: TimePart) -> int:
    value: int = getattr(time, part.name.lower())
    return value


def _digits(value: int, part: TimePart, letters: int) -> str:
    return f"{value:0{letters}d}"
