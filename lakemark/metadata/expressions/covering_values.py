"""Values between which the value of an expression certainly is.

Most functions have one value. But some values of Spark depend on the session of a query: the hour
of a timestamp depends on its time zone, and upper-case letters outside ASCII on the release and the
locale of Java. The definition of an index records neither. So for such a value, lakemark computes
bounds that are valid in all sessions. No session then skips a file that contains the value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The greatest code point, which is no character, although a text may contain it.
_LAST_CODE_POINT = "\U0010ffff"
#: Follows every text: no text begins with so many of them.
_AFTER_ALL_TEXTS = _LAST_CODE_POINT * 8

#: The first and the last day of the years -99999 to 99999.
_DAYS = np.array([-37_243_000, 35_804_000])
_DAY_US = 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class CoveringValues:
    """For each row, bounds of the value of an expression.

    Attributes:
        lows: lower bounds; null if and only if the value is null.
        highs: upper bounds, with the same nulls.
    """

    lows: pa.Array
    highs: pa.Array

    @classmethod
    def exact(cls, values: pa.Array) -> CoveringValues:
        """Return the bounds of values that do not depend on a session."""
        return cls(values, values)

    @property
    def is_exact(self) -> bool:
        """Whether each value is known."""
        return self.lows is self.highs or bool(self.lows.equals(self.highs))

    def where(self, is_known: pa.Array, low: object, high: object) -> CoveringValues:
        """Return these bounds for rows that are known, and other bounds for the other rows.

        Args:
            is_known: whether each row has these bounds; null for a row whose value is null.
            low: the lower bound of the other rows.
            high: the upper bound of the other rows.
        """
        if pc.all(is_known).as_py() is not False:
            return self
        kind = self.lows.type
        nothing = pa.scalar(None, kind)
        return CoveringValues(
            *(
                pc.if_else(pc.is_valid(is_known), pc.if_else(is_known, known, other), nothing)
                for known, other in (
                    (self.lows, pa.scalar(low, kind)),
                    (self.highs, pa.scalar(high, kind)),
                )
            )
        )


def after_all(texts: pa.Array) -> str:
    """Return a text that follows each part of some texts, in any case of its letters."""
    most = pc.max(pc.count_substring(texts, _LAST_CODE_POINT)).as_py() or 0
    return _AFTER_ALL_TEXTS + _LAST_CODE_POINT * most


def widest_bounds(kind: pa.DataType) -> pa.Array:
    """Return two values of a type between which all values are.

    Days and timestamps have those of the years -99999 to 99999: at wider ones, queries of Apache
    Hudi fail.

    Args:
        kind: the type of the values of an index function; timestamps have microseconds.
    """
    if pa.types.is_string(kind):
        return pa.array(["", _AFTER_ALL_TEXTS], kind)
    if pa.types.is_date(kind):
        return pa.array(_DAYS, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(_DAYS * _DAY_US, pa.int64()).view(kind)
    storage = np.int32 if kind == pa.int32() else np.int64
    limits = np.iinfo(storage)
    return pa.array([limits.min, limits.max], pa.from_numpy_dtype(storage)).view(kind)
