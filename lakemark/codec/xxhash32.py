"""Computes the 32-bit xxHash with seed 0 over whole columns of strings.

Strings of the same length are hashed together, because the steps depend only on the length. The
specification of the algorithm is "XXH32" of https://github.com/Cyan4973/xxHash. If only a few
strings have some length, the library ``xxhash`` hashes them one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh32_intdigest

from lakemark.codec.byte_strings import ByteStrings, byte_strings

_PRIMES = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_P1, _P2, _P3, _P4, _P5 = (np.uint32(prime) for prime in _PRIMES)

#: Strings of at most so many bytes are hashed at a time, so that intermediate values stay in the
#: CPU cache.
_CHUNK_BYTES = 1 << 18

#: If fewer strings of a chunk have the same length, they are hashed one by one.
_FEW = 16

#: Longer strings are hashed one by one, because a step for each word would take longer.
_LONG_BYTES = 256

Words = npt.NDArray[np.uint32]


def xxhash32(values: pa.Array | pa.ChunkedArray) -> Words:
    """Return the hash of the bytes of each string. No value may be null."""
    hashes = np.empty(len(values), np.uint32)
    for rows, chunk in byte_strings(values).chunks(_CHUNK_BYTES):
        hashes[rows] = _hash_chunk(chunk)
    return hashes


def _hash_chunk(strings: ByteStrings) -> Words:
    lengths, starts = strings.lengths, strings.offsets[:-1]
    hashes = np.empty(len(lengths), np.uint32)
    order = np.argsort(lengths, kind="stable")
    found, firsts = np.unique(lengths[order], return_index=True)
    for length, rows in zip(found.tolist(), np.split(order, firsts[1:]), strict=True):
        if len(rows) < _FEW or length > _LONG_BYTES:
            text = strings.data
            each = (text[start : start + length].tobytes() for start in starts[rows].tolist())
            hashes[rows] = np.fromiter((xxh32_intdigest(one) for one in each), np.uint32)
        else:
            hashes[rows] = _hash_equal(strings.data[starts[rows][:, None] + np.arange(length)])
    return hashes


def _hash_equal(data: npt.NDArray[np.uint8]) -> Words:
    """Return the hash of each row of a matrix of bytes."""
    count, length = data.shape
    whole = length // 4
    words = np.ascontiguousarray(data[:, : whole * 4]).view("<u4").T
    hashes, done = np.full(count, _P5), 0
    if length >= 16:
        hashes, done = _hash_stripes(words, length // 16)
    hashes += np.uint32(length)
    for word in words[done:]:
        hashes = _rotate(hashes + word * _P3, 17) * _P4
    for byte in data[:, whole * 4 :].T:
        hashes = _rotate(hashes + byte * _P5, 11) * _P1
    hashes ^= hashes >> 15
    hashes *= _P2
    hashes ^= hashes >> 13
    hashes *= _P3
    hashes ^= hashes >> 16
    return hashes


def _hash_stripes(words: Words, stripes: int) -> tuple[Words, int]:
    """Fold the stripes of four words; return the hash so far and the number of folded words."""
    first = [sum(_PRIMES[:2]), _PRIMES[1], 0, -_PRIMES[0]]
    lanes = [np.full(words.shape[1], np.uint32(start & 0xFFFFFFFF)) for start in first]
    for stripe in range(stripes):
        for lane in range(4):
            mixed = lanes[lane] + words[4 * stripe + lane] * _P2
            lanes[lane] = _rotate(mixed, 13) * _P1
    rotated = (_rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    total = np.zeros(words.shape[1], np.uint32)
    for one in rotated:
        total += one
    return total, 4 * stripes


def _rotate(words: Words, by: int) -> Words:
    return (words << np.uint32(by)) | (words >> np.uint32(32 - by))
