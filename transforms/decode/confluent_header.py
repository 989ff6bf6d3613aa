"""The header of Confluent's wire format: the byte 0, and the id of a schema.

The id has 4 bytes, big-endian. Avro, JSON Schema and Protocol Buffers have the same header; it is
followed by the record or, with Protocol Buffers, by the indexes of the message.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import ByteStrings, byte_ranges, byte_strings
from transforms.decode.decode_result import Indices
from transforms.reject_reason import RejectCode, RejectReason

HEADER_BYTES = 5
_MAGIC = 0

#: Why a value without a header is rejected.
NOT_FRAMED = RejectReason(
    RejectCode.INVALID_MESSAGE,
    "the value does not begin with the byte 0 and the 4 bytes of a schema id; is it in the "
    "Confluent wire format?",
)


def find_framed(values: ByteStrings, present: Indices) -> npt.NDArray[np.bool_]:
    """Return which of some values have a header."""
    is_framed: npt.NDArray[np.bool_] = values.lengths[present] >= HEADER_BYTES
    starts = values.offsets[:-1][present[is_framed]]
    is_framed[is_framed] = values.data[starts] == _MAGIC
    return is_framed


def framed_ids(values: ByteStrings, framed: Indices) -> npt.NDArray[np.uint32]:
    """Return the schema ids of values that have a header."""
    positions = values.offsets[:-1][framed][:, None] + np.arange(1, HEADER_BYTES)
    digits: npt.NDArray[np.uint32] = values.data[positions].astype(np.uint32)
    ids: npt.NDArray[np.uint32] = digits @ np.array([1 << 24, 1 << 16, 1 << 8, 1], np.uint32)
    return ids


def header_ids(values: ByteStrings) -> npt.NDArray[np.int64]:
    """Return the schema id of each value, or -1 if it has no header."""
    everything = np.arange(len(values.lengths))
    framed = everything[find_framed(values, everything)]
    found = np.full(len(everything), -1, np.int64)
    found[framed] = framed_ids(values, framed)
    return found


def without_headers(values: pa.Array) -> pa.Array:
    """Return what follows the header of each value of a ``binary`` column.

    ``pyarrow.compute.binary_slice`` fails for values that are shorter than the header.
    """
    strings = byte_strings(values)
    starts = strings.offsets[:-1] + HEADER_BYTES
    lengths = np.maximum(strings.lengths - HEADER_BYTES, 0)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    lengths[is_null] = 0
    return byte_ranges(strings.data, starts, lengths, is_null).cast(pa.binary())


def ids_of_valid(values: pa.ChunkedArray, ids: npt.NDArray[np.int64] | None) -> pa.Array | None:
    """Return schema ids as a column, which is null for a null value, or one without an id.

    Args:
        values: the values.
        ids: the id of each value, or -1; None if no value has an id.
    """
    if ids is None:
        return None
    is_known = pc.and_(pa.array(ids >= 0), values.is_valid().combine_chunks())
    return pc.if_else(is_known, pa.array(ids), None)
