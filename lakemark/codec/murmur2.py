"""Computes Hadoop's 32-bit MurmurHash2 over whole columns of keys.

    h = seed ^ length
    each word of four bytes, little-endian:  k = word * M;  k ^= k >>> 24;  h = h * M ^ k * M
    the last one to three bytes, if there are any:  h ^= tail;  h *= M
    h ^= h >>> 13;  h *= M;  h ^= h >>> 15

``k * M`` does not depend on the seed, so it is computed only once for all hashes of a key. This
module is 41 times as fast as a loop in Python (``python -m benchmarks.codecs``). Libraries have
other variants, which hash the bytes of the tail as unsigned. Here these bytes are signed, as in
Java: each is sign-extended to 32 bits before it is shifted and XORed.
Source: ``org.apache.hudi.common.util.hash.MurmurHash`` (after ``org.apache.hadoop.util.hash``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakemark.codec.byte_strings import ByteStrings

_M = np.uint32(0x5BD1E995)

Words = npt.NDArray[np.uint32]


class Murmur2:
    """A column of keys that is prepared for many seeds.

    Keys are sorted by length, longest first. So the keys that are long enough to have a word at
    some position come first, and each step is one operation on a slice.

    Attributes:
        order: hash ``i`` belongs to key ``order[i]``; None if the order of the keys did not change.
    """

    def __init__(self, keys: ByteStrings) -> None:
        lengths, starts = keys.lengths, keys.offsets[:-1]
        self.order: npt.NDArray[np.int64] | None = None
        if len(lengths) and (lengths != lengths[0]).any():
            self.order = np.argsort(-lengths, kind="stable")
            lengths, starts = lengths[self.order], starts[self.order]
        self._lengths = lengths.astype(np.uint32)
        self._mixed_words = _mixed_words(keys.data, starts, lengths)
        self._tail = _tail(keys.data, starts + lengths, lengths & 3)
        self._tail_factor = np.where(lengths & 3, _M, np.uint32(1)).astype(np.uint32)

    def hash(self, seeds: Words) -> Words:
        """Return the hash of each key, in the order of ``order``.

        Args:
            seeds: a seed for each key, in the same order.
        """
        hashes = seeds ^ self._lengths
        for words in self._mixed_words:
            prefix = hashes[: len(words)]
            prefix *= _M
            prefix ^= words
        hashes ^= self._tail
        hashes *= self._tail_factor
        hashes ^= hashes >> 13
        hashes *= _M
        hashes ^= hashes >> 15
        return hashes


def _mixed_words(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> list[Words]:
    """Return, for each word position, ``k * M`` of the keys that have a word at this position."""
    word_at = _little_endian_words(data)
    rising = lengths[::-1]
    mixed = []
    for position in range(int(lengths[0]) // 4 if len(lengths) else 0):
        have_it = len(lengths) - int(np.searchsorted(rising, 4 * position + 4))
        words = word_at[starts[:have_it] + 4 * position] * _M
        words ^= words >> 24
        words *= _M
        mixed.append(words)
    return mixed


def _little_endian_words(data: npt.NDArray[np.uint8]) -> Words:
    """Return the word that begins at each byte, as a view."""
    return np.ndarray((max(len(data) - 3, 0),), np.dtype("<u4"), data, strides=(1,))


def _tail(
    data: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], left: npt.NDArray[np.int64]
) -> Words:
    signed = data.view(np.int8)
    tail = np.zeros(len(ends), np.int32)
    for back in (1, 2, 3):
        rows = np.flatnonzero(left >= back)
        tail[rows] ^= signed[ends[rows] - back].astype(np.int32) << (8 * (back - 1))
    return tail.view(np.uint32)
