"""Turns the fields of ``google.protobuf.Timestamp`` and ``Duration`` into columns.

Both become microseconds, rounded down. Source: the comments of ``google/protobuf/timestamp.proto``
and ``duration.proto``, which define the ranges.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Mask = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.signedinteger]

#: 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z, in seconds since 1970.
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
_LONGEST_SECONDS = 315_576_000_000
_LAST_NANO = 999_999_999


def timestamp_column(seconds: pa.Array, nanos: pa.Array) -> tuple[pa.Array, Mask]:
    """Return timestamps, and which of them are valid."""
    whole, part = seconds.to_numpy(), nanos.to_numpy().astype(np.int64)
    is_valid = (whole >= _FIRST_SECOND) & (whole <= _LAST_SECOND)
    is_valid &= (part >= 0) & (part <= _LAST_NANO)
    return pa.array(_to_micros(whole, part, is_valid)).view(pa.timestamp("us", "UTC")), is_valid


def duration_column(seconds: pa.Array, nanos: pa.Array) -> tuple[pa.Array, Mask]:
    """Return durations in microseconds, and which of them are valid."""
    whole, part = seconds.to_numpy(), nanos.to_numpy().astype(np.int64)
    # Without 64 bits, the absolute value of the smallest number of 32 bits would be negative.
    is_valid = (np.abs(part) <= _LAST_NANO) & (np.sign(whole) * np.sign(part) >= 0)
    is_valid &= (whole >= -_LONGEST_SECONDS) & (whole <= _LONGEST_SECONDS)
    return pa.array(_to_micros(whole, part, is_valid)), is_valid


def _to_micros(seconds: Integers, nanos: Integers, is_valid: Mask) -> npt.NDArray[np.int64]:
    micros: npt.NDArray[np.int64] = seconds * 1_000_000 + nanos // 1_000
    return np.where(is_valid, micros, 0)
