"""The functions of expression indexes: their options, and the types of their columns and values.

Apache Hudi names a function and its options in the definition of an index. lakemark computes the
functions of this module as Spark does. It refuses other functions, such as ``regexp_extract``, and
functions that parse texts. Source: ``ExpressionIndexSparkFunctions`` and ``HoodieExpressionIndex``
of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.bloom import FALSE_POSITIVES, KEYS_PER_ROW, MAX_KEYS
from lakemark.config.time_pattern import TimePattern
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.metadata.expressions import text_functions as text
from lakemark.metadata.expressions import time_functions as time
from lakemark.metadata.expressions.covering_values import CoveringValues

IDENTITY: Final = "identity"

#: The names of options of a definition that are not arguments of the function.
EXPRESSION: Final = "expr"
BLOOM_OPTIONS: Final = ("filtertype", "numentries", "fpp", "maxentries")

#: The arguments of each function after the column, as SQL orders them, by the names of options.
ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    IDENTITY: (),
    "upper": (),
    "lower": (),
    "length": (),
    "trim": ("trimString",),
    "ltrim": ("trimString",),
    "rtrim": ("trimString",),
    "substring": ("pos", "len"),
    "year": (),
    "month": (),
    "day": (),
    "hour": (),
    "date_add": ("days",),
    "date_sub": ("days",),
    "date_format": ("format",),
    "from_unixtime": ("format",),
    "to_date": (),
    "to_timestamp": (),
    "unix_timestamp": (),
}

_Compute: TypeAlias = Callable[[pa.Array], CoveringValues]
_Options: TypeAlias = Mapping[str, str]

#: The pattern of ``from_unixtime`` without a format.
_DEFAULT_PATTERN: Final = "yyyy-MM-dd HH:mm:ss"

_INT32: Final = np.iinfo(np.int32)
_PARTS: Final[Mapping[str, tuple[Callable[[pa.Array], pa.Array], tuple[int, int]]]] = {
    "year": (pc.year, (int(_INT32.min), int(_INT32.max))),
    "month": (pc.month, (1, 12)),
    "day": (pc.day, (1, 31)),
}


@dataclass(frozen=True, slots=True)
class IndexFunction:
    """A function of an index, for one type of column.

    Attributes:
        result_type: the type of the values.
        compute: computes the values of an array of the column's type. A value is null if and only
            if the column is null.
        is_ordered: whether larger values of the column have larger or equal values, so that the
            smallest and the largest value of the column suffice.
    """

    result_type: pa.DataType
    compute: _Compute
    is_ordered: bool = False


def find_function(name: str, options: _Options, kind: pa.DataType) -> IndexFunction:
    """Return a function for columns of a type.

    Args:
        name: the name of the function, as in the definition of an index.
        options: the options of the definition.
        kind: the type of the column.

    Raises:
        Unsupported: lakemark does not compute the function, or not of this type or with these
            options.
    """
    if name not in ARGUMENTS:
        message = f"lakemark does not compute the function {name!r} as Spark does"
        raise Unsupported(message)
    unknown = sorted({*options} - {*ARGUMENTS[name], EXPRESSION, *BLOOM_OPTIONS})
    if unknown:
        message = f"lakemark does not compute {name} with the option {unknown[0]!r}"
        raise Unsupported(message)
    found = _of_type(name, options, kind)
    if found is None:
        message = f"lakemark does not compute {name} of {kind} as Spark does"
        raise Unsupported(message)
    return found


class BloomSizes(NamedTuple):
    """The sizes of the bloom filters of an index.

    Attributes:
        keys_per_row: see ``BloomFilterBuilder``.
        false_positives: see ``BloomFilterBuilder``.
        max_keys: see ``BloomFilterBuilder``.
    """

    keys_per_row: int
    false_positives: float
    max_keys: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> BloomSizes:
        """Return the sizes in the options of a definition, or else Apache Hudi's defaults.

        Raises:
            Unsupported: an option is not a number in its range.
        """
        try:
            sizes = cls(
                int(options.get("numentries", KEYS_PER_ROW)),
                float(options.get("fpp", FALSE_POSITIVES)),
                int(options.get("maxentries", MAX_KEYS)),
            )
        except ValueError:
            sizes = cls(0, 0, 0)
        if sizes.keys_per_row < 1 or not 0 < sizes.false_positives < 1 or sizes.max_keys < 1:
            message = f"its bloom filters have the options {dict(options)}, which are no sizes"
            raise Unsupported(message)
        return sizes


def _of_type(name: str, options: _Options, kind: pa.DataType) -> IndexFunction | None:
    if pa.types.is_string(kind):
        return _of_texts(name, options)
    if kind in (pa.int32(), pa.int64()):
        return _of_integers(name, options, kind)
    if kind == pa.date32():
        return _of_days(name, options)
    if pa.types.is_timestamp(kind) and kind.unit in ("ms", "us") and kind.tz == "UTC":
        return _of_times(name, options)
    return None


def _of_texts(name: str, options: _Options) -> IndexFunction | None:
    trims = {"trim": text.trim, "ltrim": text.trim_left, "rtrim": text.trim_right}
    if name == IDENTITY:
        return IndexFunction(pa.string(), CoveringValues.exact, is_ordered=True)
    if name in ("upper", "lower"):
        return IndexFunction(pa.string(), {"upper": text.upper, "lower": text.lower}[name])
    if name in trims:
        characters = options.get("trimString", " ")
        if not characters:
            message = f"lakemark does not compute {name} with an empty trimString"
            raise Unsupported(message)
        return IndexFunction(pa.string(), partial(trims[name], characters=characters))
    if name == "length":
        return IndexFunction(pa.int32(), text.length)
    if name == "substring":
        position, count = (_integer(name, option, options) for option in ARGUMENTS[name])
        return IndexFunction(pa.string(), partial(text.substring, position=position, count=count))
    return None


def _of_integers(name: str, options: _Options, kind: pa.DataType) -> IndexFunction | None:
    if name == IDENTITY:
        return IndexFunction(kind, CoveringValues.exact, is_ordered=True)
    if name != "from_unixtime":
        return None
    pattern = _sorted_pattern(name, options.get("format", _DEFAULT_PATTERN))

    def compute(seconds: pa.Array) -> CoveringValues:
        return time.format_seconds(seconds.cast(pa.int64()), pattern)

    return IndexFunction(pa.string(), compute, is_ordered=True)


def _of_days(name: str, options: _Options) -> IndexFunction | None:
    if name in (IDENTITY, "to_date"):
        return IndexFunction(pa.date32(), CoveringValues.exact, is_ordered=True)
    if name in ("date_add", "date_sub"):
        return IndexFunction(pa.date32(), _days_adder(name, options), is_ordered=True)
    if name in _PARTS:
        find_part, widest = _PARTS[name]
        return IndexFunction(
            pa.int32(),
            partial(time.part_of_days, find_part=find_part, widest=widest),
            is_ordered=name == "year",
        )
    if name == "date_format":
        pattern = _pattern(name, options.get("format", ""))
        if not time.has_only_days(pattern):
            raise _unusual(name, pattern.text)
        return IndexFunction(pa.string(), partial(time.format_days, pattern=pattern))
    if name == "to_timestamp":
        return IndexFunction(time.TIMESTAMPS, time.start_of_days, is_ordered=True)
    if name == "unix_timestamp":
        return IndexFunction(pa.int64(), time.seconds_of_days, is_ordered=True)
    return None


def _of_times(name: str, options: _Options) -> IndexFunction | None:
    if name in (IDENTITY, "to_timestamp"):
        return IndexFunction(time.TIMESTAMPS, time.identity_of_times, is_ordered=True)
    if name in _PARTS:
        find_part, widest = _PARTS[name]
        return IndexFunction(
            pa.int32(),
            partial(time.part_of_times, find_part=find_part, widest=widest),
            is_ordered=name == "year",
        )
    if name == "hour":
        return IndexFunction(pa.int32(), time.hour_of_times)
    if name == "date_format":
        pattern = _sorted_pattern(name, options.get("format", ""))
        compute = partial(time.format_times, pattern=pattern)
        return IndexFunction(pa.string(), compute, is_ordered=True)
    if name == "to_date":
        return IndexFunction(pa.date32(), time.day_of_times, is_ordered=True)
    if name == "unix_timestamp":
        return IndexFunction(pa.int64(), time.seconds_of_times, is_ordered=True)
    return None


def _days_adder(name: str, options: _Options) -> _Compute:
    days = _integer(name, "days", options)
    return partial(time.add_days, count=days if name == "date_add" else -days)


def _integer(name: str, option: str, options: _Options) -> int:
    """Parse an option that Apache Hudi parses as a 32-bit integer.

    Raises:
        Unsupported: it is missing, or not an integer.
    """
    stored = options.get(option, "")
    try:
        number = int(stored)
    except ValueError:
        number = _INT32.max + 1
    if not _INT32.min <= number <= _INT32.max:
        message = f"{name} needs an integer as the option {option!r}, not {stored!r}"
        raise Unsupported(message)
    return number


def _sorted_pattern(name: str, stored: str) -> TimePattern:
    pattern = _pattern(name, stored)
    if not time.sorts_as_times(pattern):
        raise _unusual(name, stored)
    return pattern


def _pattern(name: str, stored: str) -> TimePattern:
    try:
        pattern = TimePattern.parse(stored)
    except InvalidConfig as error:
        raise _unusual(name, stored) from error
    if not stored.isascii() or any(one in stored for one in time.RESERVED):
        raise _unusual(name, stored)
    return pattern


def _unusual(name: str, pattern: str) -> Unsupported:
    message = (
        f"lakemark does not compute {name} with the format {pattern!r}; it computes formats such "
        "as yyyy-MM-dd HH:mm, whose texts sort as their times do"
    )
    return Unsupported(message)
