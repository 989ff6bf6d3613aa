"""Functions of texts, as Spark computes them.

Positions and lengths count code points. ``upper`` and ``lower`` of ASCII are the same everywhere.
Other letters are converted by Java, according to its release and its locale, which also decides
about the letters ``i`` and ``j`` of such a text. Source: ``UTF8String`` of Spark 3.5.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.metadata.expressions.covering_values import CoveringValues, after_all

#: The beginning of a text that is converted in the same way in each locale: ASCII without i and j.
_SAFE_BEGINNING = r"(?s)^(?P<safe>[\x00-HK-hk-\x7f]*)"


def upper(texts: pa.Array) -> CoveringValues:
    """Return the texts in upper case."""
    return _convert_case(texts, pc.ascii_upper)


def lower(texts: pa.Array) -> CoveringValues:
    """Return the texts in lower case."""
    return _convert_case(texts, pc.ascii_lower)


def _convert_case(texts: pa.Array, convert: Callable[[pa.Array], pa.Array]) -> CoveringValues:
    """Convert texts of ASCII; all other texts begin as their first letters of ASCII do."""
    converted = CoveringValues.exact(convert(texts))
    is_ascii = pc.string_is_ascii(texts)
    if pc.all(is_ascii).as_py() is not False:
        return converted
    beginnings = pc.struct_field(pc.extract_regex(texts, pattern=_SAFE_BEGINNING), "safe")
    lows = convert(beginnings)
    highs = pc.binary_join_element_wise(lows, after_all(texts), "")
    return CoveringValues(
        pc.if_else(is_ascii, converted.lows, lows), pc.if_else(is_ascii, converted.highs, highs)
    )


def length(texts: pa.Array) -> CoveringValues:
    """Return the number of code points of each text."""
    return CoveringValues.exact(pc.utf8_length(texts).cast(pa.int32()))


def substring(texts: pa.Array, position: int, count: int) -> CoveringValues:
    """Return a part of each text.

    Args:
        texts: the texts.
        position: the first code point, from 1; 0 is the same as 1. A negative position counts from
            the end, and may be before the beginning of the text.
        count: the number of code points, also of those before the beginning.
    """
    start = position - 1 if position > 0 else position
    stop = start + count
    if count <= 0 or (position == 0 and stop <= 0):
        return CoveringValues.exact(pc.utf8_slice_codeunits(texts, 0, 0))
    if position < 0 and stop >= 0:
        return CoveringValues.exact(pc.utf8_slice_codeunits(texts, start))
    return CoveringValues.exact(pc.utf8_slice_codeunits(texts, start, stop))


def trim(texts: pa.Array, characters: str) -> CoveringValues:
    """Remove these characters from both ends of each text."""
    return CoveringValues.exact(pc.utf8_trim(texts, characters))


def trim_left(texts: pa.Array, characters: str) -> CoveringValues:
    """Remove these characters from the beginning of each text."""
    return CoveringValues.exact(pc.utf8_ltrim(texts, characters))


def trim_right(texts: pa.Array, characters: str) -> CoveringValues:
    """Remove these characters from the end of each text."""
    return CoveringValues.exact(pc.utf8_rtrim(texts, characters))
