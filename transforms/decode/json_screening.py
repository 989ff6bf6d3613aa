"""Finds the values that may be JSON objects by their first and last bytes, before parsing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.reject_reason import RejectCode, RejectReason

Mask = npt.NDArray[np.bool_]

_OPENING, _CLOSING = ord("{"), ord("}")
_WHITESPACE = " \t\r\n"
_LEAF_VALUES = 64


@dataclass(frozen=True, slots=True)
class Screening:
    """The result of screening a column.

    Attributes:
        passed: whether each value is UTF-8, starts with ``{`` and ends with ``}``, apart from
            blanks around it.
        reasons: the reason for each value that did not pass, by index.
    """

    passed: Mask
    reasons: dict[int, RejectReason]


def screen(values: pa.Array) -> Screening:
    """Find the values of a ``binary`` column that may be JSON objects, and explain the others."""
    is_utf8 = find_utf8(values)
    passed = is_utf8 & _find_braced(values)
    reasons: dict[int, RejectReason] = {}
    for index in np.flatnonzero(~passed).tolist():
        text = _explain(values[index].as_py(), is_utf8=bool(is_utf8[index]))
        reasons[index] = RejectReason(RejectCode.INVALID_MESSAGE, text)
    return Screening(passed, reasons)


def find_utf8(values: pa.Array) -> Mask:
    """Return which values are UTF-8.

    The column is split in halves until the invalid values are found. This takes little time if only
    few values are invalid.
    """
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        if len(values) <= _LEAF_VALUES:
            return np.array([_is_utf8(value) for value in values.to_pylist()], np.bool_)
        middle = len(values) // 2
        return np.concatenate([find_utf8(values[:middle]), find_utf8(values[middle:])])
    return np.ones(len(values), np.bool_)


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _find_braced(values: pa.Array) -> Mask:
    braced = _starts_and_ends_with_braces(values)
    others = np.flatnonzero(~braced)
    if len(others):
        # Arrow can only trim UTF-8. Other values become null here, so they do not pass.
        texts = values.take(pa.array(others))
        texts = pc.if_else(pa.array(find_utf8(texts)), texts, None).cast(pa.string())
        trimmed = pc.utf8_trim(texts, _WHITESPACE).cast(pa.binary())
        braced[others] = _starts_and_ends_with_braces(trimmed)
    return braced


def _starts_and_ends_with_braces(values: pa.Array) -> Mask:
    """Return which values start with ``{`` and end with ``}``; null and empty values do not."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]
    starts, ends = offsets[:-1], offsets[1:]
    candidate: Mask = (ends - starts >= len("{}")) & values.is_valid().to_numpy(
        zero_copy_only=False
    )
    if candidate.any():
        data = np.frombuffer(values.buffers()[2], np.uint8)
        candidate[candidate] = (data[starts[candidate]] == _OPENING) & (
            data[ends[candidate] - 1] == _CLOSING
        )
    return candidate


def _explain(value: bytes | None, *, is_utf8: bool) -> str:
    if value is None:
        return "the value is null"
    if not value.strip():
        return "the value is empty"
    if not is_utf8:
        return "the value is not UTF-8"
    text = value.decode().strip(_WHITESPACE)
    return f"the value is not a JSON object: it starts with {text[:1]!r}, ends with {text[-1:]!r}"
