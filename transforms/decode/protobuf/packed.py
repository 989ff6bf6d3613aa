"""Reads elements that are packed into one field."""

from __future__ import annotations

import numpy as np

from lakemark.codec.byte_strings import gather
from transforms.decode.decode_result import Indices
from transforms.decode.protobuf.cells import Bytes, Mask, Numbers
from transforms.decode.protobuf.field_walk import LONGEST_VARINT
from transforms.decode.protobuf.types import FIXED64, VARINT


def find_broken(data: Bytes, starts: Indices, lengths: Indices, wire_type: int) -> Mask:
    """Return which fields do not consist of whole elements.

    Args:
        data: contains the fields.
        starts: the position of the first byte of each field.
        lengths: how many bytes each field has.
        wire_type: that of an element.
    """
    is_broken: Mask
    if wire_type != VARINT:
        is_broken = lengths % (8 if wire_type == FIXED64 else 4) != 0
        return is_broken
    is_broken = np.zeros(len(lengths), np.bool_)
    filled = np.flatnonzero(lengths > 0)  # an empty field may begin where the data ends
    is_broken[filled] = data[starts[filled] + lengths[filled] - 1] >= 0x80
    whole = filled[~is_broken[filled]]
    flat = gather(data, starts[whole], lengths[whole])
    ends = np.flatnonzero(flat < 0x80)
    too_long = ends[np.diff(ends, prepend=-1) > LONGEST_VARINT]
    if len(too_long):
        owners = np.searchsorted(np.cumsum(lengths[whole]), too_long, side="right")
        is_broken[whole[owners]] = True
    return is_broken


def unpack(
    data: Bytes, starts: Indices, lengths: Indices, wire_type: int
) -> tuple[Numbers, Indices]:
    """Return the elements of all fields, and how many each field has.

    Args:
        data: contains the fields, which consist of whole elements.
        starts: the position of the first byte of each field.
        lengths: how many bytes each field has.
        wire_type: that of an element.
    """
    flat = gather(data, starts, lengths)
    if wire_type != VARINT:
        width = 8 if wire_type == FIXED64 else 4
        return flat.view(f"<u{width}").astype(np.uint64), lengths // width
    is_end = flat < 0x80
    seen = np.zeros(len(flat) + 1, np.int64)
    np.cumsum(is_end, out=seen[1:])
    counts = np.diff(seen[np.concatenate([[0], np.cumsum(lengths)])])
    if is_end.all():
        return flat.astype(np.uint64), counts
    firsts = np.concatenate([[0], np.flatnonzero(is_end)[:-1] + 1])
    within = np.arange(len(flat)) - firsts[seen[:-1]]
    digits = (flat & 0x7F).astype(np.uint64) << (7 * within).astype(np.uint64)
    return np.bitwise_or.reduceat(digits, firsts), counts
