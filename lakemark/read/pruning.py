"""Skips file slices in which no row can meet a condition, by partitions and file statistics.

For each column, the statistics of all files of a slice are combined. Columns are combined
separately, because the values of one merged row may come from different files. If a merge can
create new values, statistics are not used for slices with logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.file_slice import FileSlice
from lakemark.read.index_protocols import FileStatistics
from lakemark.read.partition_pruning import partition_guarantee
from lakemark.read.row_filter import may_match, referenced_columns

#: From this character on, Java and Arrow order text differently. Java computed some of the bounds.
_FIRST_SURROGATE = "\ud800"

#: Alternative expressions; each row of a slice meets at least one of them.
_Cases: TypeAlias = list[pc.Expression]
_ANYTHING: _Cases = [pc.scalar(True)]
#: Largest number of cases of a slice. Each column with both nulls and values doubles the number.
_MAX_CASES = 16


@dataclass(frozen=True)
class SlicePruner:
    """Selects the file slices that may contain matching rows.

    Attributes:
        schema: the table's columns.
        partition_fields: partition columns whose values are the folders of a partition path; empty
            if the folders are not plain values of columns.
        is_url_encoded: whether special characters of a partition path are written ``%XX``.
        is_hive_style: whether folders are named ``field=value``.
        statistics: statistics of files, if the table has any.
        merging_makes_values: whether a merged row may have a value that no file has; a custom
            merger creates one if it adds two values.
    """

    schema: pa.Schema
    partition_fields: tuple[str, ...] = ()
    is_url_encoded: bool = False
    is_hive_style: bool = False
    statistics: FileStatistics | None = None
    merging_makes_values: bool = False

    def select(self, slices: Sequence[FileSlice], condition: pc.Expression) -> list[FileSlice]:
        """Return the slices that may hold a row that meets the condition.

        Raises:
            SnapshotChanged: statistics were rewritten in the meantime; plan the query again.
            CorruptData: statistics are damaged.
        """
        in_partitions = self._in_partitions(slices, condition)
        if self.statistics is None or not in_partitions:
            return in_partitions
        cases = [[pc.scalar(True)] for _ in in_partitions]
        for name in referenced_columns(condition, self.schema):
            known = self._of_column(self.statistics, name, in_partitions)
            cases = [_combine_cases(one, more) for one, more in zip(cases, known, strict=True)]
        return _select(in_partitions, _may_hold_in_one(condition, cases, self.schema))

    def _in_partitions(
        self, slices: Sequence[FileSlice], condition: pc.Expression
    ) -> list[FileSlice]:
        paths = sorted({s.group.partition_path for s in slices})
        guarantees = [
            partition_guarantee(
                path,
                self.partition_fields,
                self.schema,
                is_url_encoded=self.is_url_encoded,
                is_hive_style=self.is_hive_style,
            )
            for path in paths
        ]
        left = set(_select(paths, may_match(condition, guarantees, self.schema)))
        return [s for s in slices if s.group.partition_path in left]

    def _of_column(
        self, statistics: FileStatistics, name: str, slices: Sequence[FileSlice]
    ) -> list[_Cases]:
        """Return the cases of one column in each slice."""
        data_type = self.schema.field(name).type
        if not _is_ordered(data_type):
            return [_ANYTHING] * len(slices)
        partitions = sorted({s.group.partition_path for s in slices})
        rows = statistics.of_column(name, data_type, partitions)
        ranges = {
            file: _Range(low, high, may_be_null=nulls != 0)
            for file, low, high, nulls, _ in zip(*_to_lists(rows).values(), strict=True)
        }
        return [
            _ANYTHING
            if self.merging_makes_values and s.logs
            else _column_cases(name, data_type, _names(s), ranges)
            for s in slices
        ]


@dataclass(frozen=True, slots=True)
class _Range:
    """Bounds of a column in a file; both are None if the file has no value."""

    low: Any
    high: Any
    may_be_null: bool


def _column_cases(
    name: str, data_type: pa.DataType, files: Sequence[str], ranges: dict[str, _Range]
) -> _Cases:
    known = [ranges[file] for file in files if file in ranges]
    if not files or len(known) < len(files) or any(_is_ordered_differently(one) for one in known):
        return _ANYTHING
    column, with_values = pc.field(name), [one for one in known if one.low is not None]
    cases = [column.is_null()] if any(one.may_be_null for one in known) else []
    if with_values:
        low = pa.scalar(min(one.low for one in with_values), data_type)
        high = pa.scalar(max(one.high for one in with_values), data_type)
        cases.append((column >= low) & (column <= high))
    return cases


def _combine_cases(some: _Cases, more: _Cases) -> _Cases:
    """Combine the cases of two columns; return only ``some`` if there would be too many."""
    if len(some) * len(more) > _MAX_CASES:
        return some
    return [one & other for one in some for other in more]


def _may_hold_in_one(
    condition: pc.Expression, cases: Sequence[_Cases], schema: pa.Schema
) -> list[bool]:
    """Return for each slice whether a row in one of its cases may meet the condition.

    Each case is a separate guarantee, because Arrow cannot use a guarantee that has an "or".
    """
    answers = may_match(condition, [case for each in cases for case in each], schema)
    ends = accumulate(map(len, cases))
    return [any(answers[end - len(each) : end]) for each, end in zip(cases, ends, strict=True)]


def _is_ordered_differently(one: _Range) -> bool:
    """Return whether Arrow and Java may order text between the bounds differently."""
    texts = [bound for bound in (one.low, one.high) if isinstance(bound, str)]
    return any(max(text, default="") >= _FIRST_SURROGATE for text in texts)


def _to_lists(rows: pa.Table) -> dict[str, list[Any]]:
    """Return the columns as lists, with times and dates as numbers.

    Python's own times and dates end in the year 9999.
    """
    arrays = [_as_numbers(c) if pa.types.is_temporal(c.type) else c for c in rows.columns]
    return {name: a.to_pylist() for name, a in zip(rows.column_names, arrays, strict=True)}


def _as_numbers(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return times.cast(pa.int32() if times.type.bit_width == 32 else pa.int64())


def _is_ordered(data_type: pa.DataType) -> bool:
    """Return whether bounds cover all values of a type; bounds of floats do not cover NaN."""
    return not (pa.types.is_nested(data_type) or pa.types.is_floating(data_type))


def _names(file_slice: FileSlice) -> list[str]:
    base = [str(file_slice.base.name)] if file_slice.base else []
    return base + [str(log.name) for log in file_slice.logs]


def _select(items: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    return [item for item, is_left in zip(items, mask, strict=True) if is_left]
