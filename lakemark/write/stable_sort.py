"""Finds the order of rows by some of their columns.

Nulls come first, texts and binaries are compared by their bytes, and rows with the same values keep
their order. numpy sorts numbers several times as fast as Arrow sorts texts, and numbers that are
partly sorted even faster. So texts are sorted by the number that eight of their bytes form: those
after the bytes with which all of the texts begin. Only texts with the same number are compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import ByteStrings, byte_strings

#: Positions of rows.
Positions = npt.NDArray[np.int64]

_Words = npt.NDArray[np.uint64]

_WORD_BYTES = 8

#: The bits of a word that belong to a text of which 0, 1, … or 8 bytes remain.
_MASKS = np.array([(1 << 64) - (1 << 8 * (_WORD_BYTES - n)) for n in range(9)], np.uint64)


def sorted_positions(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Positions:
    """Return the positions of all rows in the order of the columns, the first one first.

    Args:
        columns: at least one column of integers, decimals, texts or binaries.
    """
    *others, last = columns
    order = _positions(last)
    for values in reversed(others):  # each sort is stable, so the first column is sorted last
        order = order[_positions(values.take(pa.array(order)))]
    return order


def _positions(values: pa.Array | pa.ChunkedArray) -> Positions:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not values.null_count:
        return _positions_of_valid(values)
    is_valid = values.is_valid().to_numpy(zero_copy_only=False)
    valid = np.flatnonzero(is_valid)[_positions_of_valid(values.drop_null())]
    return np.concatenate([np.flatnonzero(~is_valid), valid])


def _positions_of_valid(values: pa.Array) -> Positions:
    if pa.types.is_integer(values.type):
        return np.argsort(values.to_numpy(), kind="stable")
    if len(values) and (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return _positions_of_texts(values)
    order: Positions = pc.array_sort_indices(values).to_numpy().astype(np.int64)
    return order


def _positions_of_texts(values: pa.Array) -> Positions:
    lengths = byte_strings(values).lengths
    words, end = _distinguishing_words(byte_strings(values), lengths)
    order = np.argsort(words, kind="stable")
    words, lengths = words[order], lengths[order]
    has_same_word = words[1:] == words[:-1]
    # Two texts with the same word are equal if they end with it, or before it at the same length.
    may_differ = has_same_word & ((lengths[1:] != lengths[:-1]) | (lengths[1:] > end))
    if may_differ.any():
        groups = np.append(0, np.cumsum(~has_same_word))
        _sort_within_groups(values, order, groups, groups[1:][may_differ])
    return order


def _sort_within_groups(
    values: pa.Array, order: Positions, groups: Positions, unsorted: Positions
) -> None:
    """Sort the texts within some groups of texts that have the same word; change ``order``.

    Args:
        values: the texts.
        order: their order by their words.
        groups: the number of the group of each text in ``order``, ascending from 0.
        unsorted: the numbers of the groups to sort.
    """
    is_unsorted = np.zeros(int(groups[-1]) + 1, np.bool_)
    is_unsorted[unsorted] = True
    places = np.flatnonzero(is_unsorted[groups])
    rows = order[places]
    by_text = pc.array_sort_indices(values.take(pa.array(rows))).to_numpy()
    by_group = np.argsort(groups[places][by_text], kind="stable")
    order[places] = rows[by_text[by_group]]


def _distinguishing_words(texts: ByteStrings, lengths: npt.NDArray[np.int64]) -> tuple[_Words, int]:
    """Return a word of each text, and the position in each text at which the word ends.

    The words begin at the first byte that not all texts have in common.
    """
    first, last = texts.offsets[[0, -1]]
    padded = np.append(texts.data[first:last], np.zeros(_WORD_BYTES, np.uint8))
    word_at = np.ndarray((last - first + 1,), np.dtype(">u8"), padded, strides=(1,))
    starts, shortest, skipped = texts.offsets[:-1] - first, int(lengths.min()), 0
    while True:
        words = word_at[starts + skipped].astype(np.uint64)
        words &= _MASKS[np.clip(lengths - skipped, 0, _WORD_BYTES)]
        differing = int(words.min()) ^ int(words.max())
        shared = min(_WORD_BYTES - -(-differing.bit_length() // 8), shortest - skipped)
        if not shared:
            return words, skipped + _WORD_BYTES
        skipped += shared
