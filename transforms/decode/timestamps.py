"""Checks the range of timestamps and converts their units.

Tables store microseconds of the years 1 to 9999. Some readers, such as those written in Python,
cannot read other years.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000


def find_out_of_range(times: pa.Array) -> pa.Array | None:
    """Find dates or timestamps (in microseconds) outside the years 1 to 9999.

    Returns:
        A flag for each value; None if all values are in range.
    """
    first, last, numbers = _FIRST_DAY, _LAST_DAY, pa.int32()
    if not pa.types.is_date32(times.type):
        first, last, numbers = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1, pa.int64()
    values = times.view(numbers)
    range_ = pc.min_max(values)
    lowest, highest = range_["min"].as_py(), range_["max"].as_py()
    if lowest is None or (first <= lowest and highest <= last):
        return None
    return pc.or_(pc.less(values, first), pc.greater(values, last))


def to_microseconds(times: pa.Array) -> pa.Array:
    """Convert timestamps of any unit to microseconds.

    Nanoseconds are rounded down, also before 1970 (-1 ns becomes -1 us), as in Spark and in Avro's
    ``TimeConversions``.

    Raises:
        pa.ArrowInvalid: the microseconds do not fit 64 bits.
    """
    wanted = pa.timestamp("us", times.type.tz)
    if times.type.unit != "ns":
        return times.cast(wanted)
    nanoseconds = times.view(pa.int64())
    towards_zero = pc.divide(nanoseconds, 1_000)
    is_below = pc.less(nanoseconds, pc.multiply(towards_zero, 1_000))
    return pc.subtract(towards_zero, is_below.cast(pa.int64())).view(wanted)
