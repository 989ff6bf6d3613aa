"""Computes Java's hash codes of strings and of lists of strings, over whole columns.

``String.hashCode`` starts with 0 and computes ``h = 31 * h + unit`` for each UTF-16 unit.
``List.hashCode`` starts with 1 and computes ``h = 31 * h + hash`` for each element. Both use 32
bits, and overflow is ignored.

31 is odd, so it has an inverse modulo 2**32. Let ``S`` be the running sum of ``unit[i] * 31**-i``.
Then the hash of the units from ``a`` to ``b`` is ``(S[b] - S[a]) * 31**(b - 1)``, which needs only
two passes over the bytes. This module is 22 times as fast as a loop in Python
(``python -m benchmarks.codecs``). No library has this hash.

Source: the bucket index (``BucketIdentifier``) and ``HoodieTableMetadataUtil`` of Apache Hudi.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakemark.codec.byte_strings import ByteStrings, byte_strings
from lakemark.errors import InvalidRecords

#: Number of bytes hashed at a time, so that the intermediate values stay in the CPU cache.
_CHUNK_BYTES = 1 << 16
_INVERSE_OF_31 = pow(31, -1, 1 << 32)


def string_hash(values: pa.Array) -> npt.NDArray[np.int32]:
    """Return ``String.hashCode`` of each value; 0 for null and for the empty string.

    Raises:
        InvalidRecords: a value is not UTF-8.
    """
    strings = byte_strings(values)
    hashes = np.empty(len(values), np.uint32)
    for rows, chunk in strings.chunks(_CHUNK_BYTES):
        units, offsets = _utf16(chunk)
        hashes[rows] = _fold(units, offsets)
    if values.null_count:
        hashes[np.asarray(values.is_null())] = 0
    return hashes.view(np.int32)


def byte_hash(values: pa.Array) -> npt.NDArray[np.int32]:
    """Return the hash of each value over its bytes instead of its UTF-16 units; 0 for null.

    For ASCII text, ``string_hash`` returns the same hash. The bytes need not be UTF-8.
    """
    hashes = np.empty(len(values), np.uint32)
    for rows, chunk in byte_strings(values).chunks(_CHUNK_BYTES):
        hashes[rows] = _fold(chunk.data, chunk.offsets)
    if values.null_count:
        hashes[np.asarray(values.is_null())] = 0
    return hashes.view(np.int32)


def list_hash(columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
    """Return ``List.hashCode`` of each row: a list of one value per column, in which null is 0."""
    assert columns, "a list of no fields has no rows"
    hashes = np.ones(len(columns[0]), np.uint32)
    for column in columns:
        hashes = hashes * np.uint32(31) + string_hash(column).view(np.uint32)
    return hashes.view(np.int32)


def _fold(
    units: npt.NDArray[np.unsignedinteger], offsets: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint32]:
    """Return the hash of the units from each offset to the next one; the hash of no units is 0."""
    length = len(units)
    powers = _CHUNK_BYTES if length <= _CHUNK_BYTES else 1 << length.bit_length()
    falling, rising = _powers(_INVERSE_OF_31, powers), _powers(31, powers)
    sums = np.zeros(length + 1, np.uint32)
    np.cumsum(units * falling[:length], dtype=np.uint32, out=sums[1:])
    runs: npt.NDArray[np.uint32] = sums[offsets[1:]] - sums[offsets[:-1]]
    return runs * rising[np.maximum(offsets[1:] - 1, 0)]


@lru_cache(maxsize=4)
def _powers(base: int, count: int) -> npt.NDArray[np.uint32]:
    powers = np.full(count, base, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)


def _utf16(
    strings: ByteStrings,
) -> tuple[npt.NDArray[np.unsignedinteger], npt.NDArray[np.int64]]:
    """Return the UTF-16 units of all strings in one array, and the offset of each string in it."""
    data = strings.data
    if not len(data) or data.max() < 0x80:
        return data, strings.offsets
    try:
        text = data.tobytes().decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        message = f"a string is not UTF-8: {error.reason}; repair or reject that record"
        raise InvalidRecords(message) from error
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), np.uint16)
    return units, _units_before(data)[strings.offsets]


def _units_before(utf8: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return the number of UTF-16 units before each byte.

    A character that has four bytes in UTF-8 has two units, any other character one.
    """
    begun = np.zeros(len(utf8) + 1, np.int64)
    np.cumsum((utf8 & 0xC0) != 0x80, out=begun[1:])
    begun[1:] += np.cumsum(utf8 >= 0xF0)
    return begun
