"""Finds the file slices whose column ranges may contain a row that meets a condition.

Arrow decides for one file slice at a time, which is slow for many. So the slices are sorted by the
smallest value of a column and divided into blocks, and these into smaller blocks. A block has the
ranges of all of its slices together. If no row in these ranges meets the condition, none of its
slices is examined. The answer for a single slice does not depend on the blocks.

Ranges are compared as integers: each bound is replaced by its rank among all bounds of the column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.read.row_filter import may_match

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]

#: Alternative expressions; each row of a slice meets at least one of them.
Cases: TypeAlias = list[pc.Expression]

#: Each block is divided into so many blocks.
_FANOUT = 32
#: Largest number of cases of a slice. Each column with both nulls and values doubles the number.
_MAX_CASES = 16
#: From U+D800 on, Java and Arrow order text differently, and Java computed some of the bounds. No
#: text has characters from U+D800 to U+DFFF.
_ORDERED_DIFFERENTLY = "[\\x{E000}-\\x{10FFFF}]"
_BEYOND_ALL = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class SliceRanges:
    """The range of one column in each of some file slices, or in each of some blocks of them.

    Attributes:
        field: the column.
        bounds: the distinct bounds in ascending order.
        low: rank in ``bounds`` of the smallest value; ``_BEYOND_ALL`` if there is no value.
        high: rank of the largest value; -1 if there is no value.
        may_be_null: whether a value may be null.
        is_known: whether the range is known.
    """

    field: pa.Field
    bounds: pa.Array
    low: Rows
    high: Rows
    may_be_null: Mask
    is_known: Mask

    @classmethod
    def of(
        cls, field: pa.Field, files: pa.Table, rows: Rows, slices: Rows, count: int
    ) -> SliceRanges:
        """Combine the ranges of the files of each slice.

        Args:
            field: the column.
            files: statistics of files, as ``FileStatistics`` returns them.
            rows: the row in ``files`` of each file of a slice; -1 if it has no statistics.
            slices: the slice of each of these files.
            count: the number of slices. The range of a slice without files is unknown.
        """
        ranks = _ranks(files.column("min"), files.column("max"))
        is_usable = np.append(ranks.are_ordered, False)[rows]
        known, owner = rows[is_usable], slices[is_usable]
        low, high = np.full(count, _BEYOND_ALL), np.full(count, -1)
        has_value = ranks.low[known] >= 0
        np.minimum.at(low, owner[has_value], ranks.low[known[has_value]])
        np.maximum.at(high, owner, ranks.high[known])
        nulls = np.asarray(pc.fill_null(files.column("null_count"), 1)) != 0
        may_be_null = np.bincount(owner, nulls[known], count) > 0
        is_known = np.bincount(owner, minlength=count) == np.bincount(slices, minlength=count)
        is_known &= np.bincount(slices, minlength=count) > 0
        return cls(field, ranks.bounds, low, high, may_be_null, is_known)

    def without(self, are_unknown: Mask) -> SliceRanges:
        """Return the ranges, but those of these slices are unknown."""
        known = self.is_known & ~are_unknown
        return SliceRanges(self.field, self.bounds, self.low, self.high, self.may_be_null, known)

    def take(self, order: Rows) -> SliceRanges:
        """Return the ranges of these slices, in this order."""
        return SliceRanges(
            self.field,
            self.bounds,
            self.low[order],
            self.high[order],
            self.may_be_null[order],
            self.is_known[order],
        )

    def in_blocks(self, starts: Rows, ends: Rows) -> SliceRanges:
        """Return the ranges of these blocks of consecutive slices, which are in order."""
        edges = np.stack([starts, ends], axis=1).ravel()
        edges = edges[:-1] if edges[-1] == len(self.low) else edges
        return SliceRanges(
            self.field,
            self.bounds,
            np.minimum.reduceat(self.low, edges)[::2],
            np.maximum.reduceat(self.high, edges)[::2],
            np.logical_or.reduceat(self.may_be_null, edges)[::2],
            np.logical_and.reduceat(self.is_known, edges)[::2],
        )

    def cases(self) -> Iterator[Cases]:
        """Yield the cases of each slice or block."""
        column, low, high = pc.field(self.field.name), self.low.tolist(), self.high.tolist()
        for at, is_known in enumerate(self.is_known.tolist()):
            if not is_known:
                yield [pc.scalar(True)]
                continue
            found = [column.is_null()] if self.may_be_null[at] else []
            if low[at] == high[at]:
                found.append(column == self.bounds[low[at]])
            elif high[at] >= 0:
                found.append((column >= self.bounds[low[at]]) & (column <= self.bounds[high[at]]))
            yield found


@dataclass(frozen=True, slots=True)
class _Ranks:
    """The bounds of files as integers; -1 for a missing bound.

    ``are_ordered`` is false for a file whose bounds Arrow and Java may order differently.
    """

    bounds: pa.Array
    low: Rows
    high: Rows
    are_ordered: Mask


def _ranks(low: pa.ChunkedArray, high: pa.ChunkedArray) -> _Ranks:
    both = pa.chunked_array([*low.chunks, *high.chunks], low.type).combine_chunks()
    distinct = pc.unique(both).drop_null()
    bounds = distinct.take(pc.array_sort_indices(distinct))
    ranks = np.asarray(pc.fill_null(pc.index_in(both, value_set=bounds), -1)).astype(np.int64)
    first, last = np.split(ranks, 2)
    odd = np.append(_are_odd_texts(bounds), False)
    return _Ranks(bounds, first, last, ~(odd[first] | odd[last]))


def _are_odd_texts(bounds: pa.Array) -> Mask:
    if not pa.types.is_string(bounds.type):
        return np.zeros(len(bounds), np.bool_)
    found: Mask = np.asarray(pc.match_substring_regex(bounds, _ORDERED_DIFFERENTLY))
    return found


def find_slices(
    condition: pc.Expression, columns: Sequence[SliceRanges], count: int, schema: pa.Schema
) -> Mask:
    """Return for each slice whether it may contain a row that meets the condition.

    Args:
        condition: the condition.
        columns: the ranges of the columns that the condition reads.
        count: the number of slices.
        schema: the columns of the table.
    """
    order = _order(columns, count)
    sorted_columns = [column.take(order) for column in columns]
    width = _width_of_root(count)
    starts = np.arange(0, count, width)
    while len(starts):
        ends = np.minimum(starts + width, count)
        blocks = [column.in_blocks(starts, ends) for column in sorted_columns]
        starts = starts[_may_contain(condition, blocks, len(starts), schema)]
        if width == 1:
            break
        width //= _FANOUT
        starts = (starts[:, None] + np.arange(_FANOUT) * width).ravel()
        starts = starts[starts < count]
    found = np.zeros(count, np.bool_)
    found[order[starts]] = True
    return found


def _order(columns: Sequence[SliceRanges], count: int) -> Rows:
    """Sort slices by the first column; slices whose range is unknown are last."""
    if not columns:
        return np.arange(count)
    return np.lexsort([columns[0].high, columns[0].low, ~columns[0].is_known])


def _width_of_root(count: int) -> int:
    """Return the number of slices in each of the largest blocks."""
    width = 1
    while width * _FANOUT * _FANOUT < count:
        width *= _FANOUT
    return width


def _may_contain(
    condition: pc.Expression, columns: Sequence[SliceRanges], count: int, schema: pa.Schema
) -> Mask:
    """Return for each slice or block whether a row in one of its cases may meet the condition.

    Each case is a separate guarantee, because Arrow cannot use a guarantee that has an "or".
    """
    cases: list[Cases] = [[pc.scalar(True)] for _ in range(count)]
    for column in columns:
        cases = [_combine(one, more) for one, more in zip(cases, column.cases(), strict=True)]
    answers = may_match(condition, [case for each in cases for case in each], schema)
    ends = accumulate(map(len, cases))
    found = [any(answers[end - len(each) : end]) for each, end in zip(cases, ends, strict=True)]
    return np.array(found, np.bool_)


def _combine(some: Cases, more: Cases) -> Cases:
    """Combine the cases of two columns; return only ``some`` if there would be too many."""
    if len(some) * len(more) > _MAX_CASES:
        return some
    return [one & other for one in some for other in more]
