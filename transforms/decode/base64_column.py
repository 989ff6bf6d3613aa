"""Decodes whole columns of Base64 (RFC 4648, section 4, with padding)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PAD, _INVALID = 64, 255
_SEXTETS = np.full(256, _INVALID, np.uint8)
_SEXTETS[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64, dtype=np.uint8)
_SEXTETS[ord("=")] = _PAD


def decode_base64(texts: pa.Array) -> pa.Array:
    """Decode a string column to bytes; null stays null.

    Raises:
        ValueError: one of the values is not Base64.
    """
    filled = pc.fill_null(texts, "")
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset :][: len(filled) + 1]
    starts, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
    data = filled.buffers()[2]
    letters = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data else _NOTHING
    sextets = _SEXTETS[letters]
    pads = _count_pads(sextets, starts, ends)
    triples = _to_triples(sextets)
    keep = np.ones(len(triples), np.bool_)
    triple_ends = ends // 4 * 3
    keep[triple_ends[pads >= 1] - 1] = False
    keep[triple_ends[pads == 2] - 2] = False
    lengths = (ends - starts) // 4 * 3 - pads
    decoded = pa.Array.from_buffers(
        pa.binary(),
        len(filled),
        [None, pa.py_buffer(_offsets_of(lengths)), pa.py_buffer(triples[keep])],
    )
    return pc.if_else(texts.is_valid(), decoded, None)


_NOTHING = np.empty(0, np.uint8)


def _count_pads(
    sextets: npt.NDArray[np.uint8], starts: npt.NDArray[np.int32], ends: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    """Count the ``=`` at the end of each value.

    Raises:
        ValueError: a value has ``=`` elsewhere, or a character that is not Base64.
    """
    pads = np.zeros(len(starts), np.int32)
    filled = ends > starts
    last = np.zeros(len(starts), np.bool_)
    last[filled] = sextets[ends[filled] - 1] == _PAD
    before = np.zeros(len(starts), np.bool_)
    before[last] = sextets[np.maximum(ends[last] - 2, 0)] == _PAD
    pads[last] = 1
    pads[before] = 2
    is_base64 = (
        not ((ends - starts) % 4).any()
        and not (sextets == _INVALID).any()
        and np.count_nonzero(sextets == _PAD) == pads.sum()
    )
    if not is_base64:
        message = "a value is not Base64"
        raise ValueError(message)
    return pads


def _to_triples(sextets: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Convert four letters of six bits to three bytes; padding counts as zero bits."""
    first, second, third, fourth = (sextets & 63).reshape(-1, 4).T
    triples = np.empty((len(first), 3), np.uint8)
    triples[:, 0] = first << 2 | second >> 4
    triples[:, 1] = second << 4 | third >> 2
    triples[:, 2] = third << 6 | fourth
    return triples.ravel()


def _offsets_of(lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
