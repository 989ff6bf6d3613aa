"""Dates and times that every reader can name: those of the years 1 to 9999."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY_US = 86_400_000_000


def outside_calendar(times: pa.Array) -> pa.Array | None:
    """Which dates or timestamps (in microseconds) lie outside; None when all lie within."""
    first, last, numbers = _FIRST_DAY, _LAST_DAY, pa.int32()
    if not pa.types.is_date32(times.type):
        first, last, numbers = _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1, pa.int64()
    values = times.view(numbers)
    range_ = pc.min_max(values)
    lowest, highest = range_["min"].as_py(), range_["max"].as_py()
    if lowest is None or (first <= lowest and highest <= last):
        return None
    return pc.or_(pc.less(values, first), pc.greater(values, last))
