"""Which file slices a condition rules out, by their partitions and by statistics of their files.

A slice is judged column by column, over all of its files together: of a row that was merged each
value comes from one of them, but not all values need to come from the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from table.model.file_slice import FileSlice
from table.read.file_statistics import FileStatistics
from table.read.partition_pruning import guarantee_of
from table.read.row_filter import columns_of, may_hold

#: Text from here on is not ordered in Java, which made some of the bounds, as it is in Arrow.
_FIRST_SURROGATE = "\ud800"


@dataclass(frozen=True)
class Pruning:
    """Rules file slices out.

    Attributes:
        schema: the table's columns.
        partition_fields: the columns whose values are the folders of a partition path; empty where
            they are not.
        is_url_encoded: whether special characters of a partition path are written ``%XX``.
        statistics: of files, if there are any.
    """

    schema: pa.Schema
    partition_fields: tuple[str, ...] = ()
    is_url_encoded: bool = False
    statistics: FileStatistics | None = None

    def left(self, slices: Sequence[FileSlice], condition: pc.Expression) -> list[FileSlice]:
        """The slices that may hold a row that meets the condition.

        Raises:
            SnapshotChanged: statistics were rewritten meanwhile; plan the query again.
            CorruptData: statistics are damaged.
        """
        in_partitions = self._in_partitions(slices, condition)
        if self.statistics is None or not in_partitions:
            return in_partitions
        guarantees = [pc.scalar(True)] * len(in_partitions)
        for name in columns_of(condition, self.schema):
            known = self._of_column(self.statistics, name, in_partitions)
            guarantees = [one & more for one, more in zip(guarantees, known, strict=True)]
        return _chosen(in_partitions, may_hold(condition, guarantees, self.schema))

    def _in_partitions(
        self, slices: Sequence[FileSlice], condition: pc.Expression
    ) -> list[FileSlice]:
        paths = sorted({s.group.partition_path for s in slices})
        guarantees = [
            guarantee_of(
                path, self.partition_fields, self.schema, is_url_encoded=self.is_url_encoded
            )
            for path in paths
        ]
        left = set(_chosen(paths, may_hold(condition, guarantees, self.schema)))
        return [s for s in slices if s.group.partition_path in left]

    def _of_column(
        self, statistics: FileStatistics, name: str, slices: Sequence[FileSlice]
    ) -> list[pc.Expression]:
        """What is known of one column in each slice."""
        data_type = self.schema.field(name).type
        if not _is_ordered(data_type):
            return [pc.scalar(True)] * len(slices)
        partitions = sorted({s.group.partition_path for s in slices})
        rows = statistics.of_column(name, data_type, partitions)
        ranges = {
            file: _Range(low, high, may_be_null=nulls != 0)
            for file, low, high, nulls, _ in zip(*rows.to_pydict().values(), strict=True)
        }
        return [_slice_guarantee(name, data_type, _names(s), ranges) for s in slices]


@dataclass(frozen=True, slots=True)
class _Range:
    """Bounds of a column in a file; both None when it holds no value."""

    low: Any
    high: Any
    may_be_null: bool


def _slice_guarantee(
    name: str, data_type: pa.DataType, files: Sequence[str], ranges: dict[str, _Range]
) -> pc.Expression:
    known = [ranges[file] for file in files if file in ranges]
    if len(known) < len(files) or any(_is_odd(one) for one in known):
        return pc.scalar(True)
    column, with_values = pc.field(name), [one for one in known if one.low is not None]
    may_be = [column.is_null()] if any(one.may_be_null for one in known) else []
    if with_values:
        low = pa.scalar(min(one.low for one in with_values), data_type)
        high = pa.scalar(max(one.high for one in with_values), data_type)
        may_be.append((column >= low) & (column <= high))
    return reduce(lambda one, other: one | other, may_be, pc.scalar(not files))


def _is_odd(one: _Range) -> bool:
    """Whether Arrow may order what lies between the bounds in another way."""
    texts = [bound for bound in (one.low, one.high) if isinstance(bound, str)]
    return any(max(text, default="") >= _FIRST_SURROGATE for text in texts)


def _is_ordered(data_type: pa.DataType) -> bool:
    """Whether bounds tell everything: of floats they leave NaN out."""
    return not (pa.types.is_nested(data_type) or pa.types.is_floating(data_type))


def _names(file_slice: FileSlice) -> list[str]:
    base = [str(file_slice.base.name)] if file_slice.base else []
    return base + [str(log.name) for log in file_slice.logs]


def _chosen(items: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    return [item for item, is_left in zip(items, mask, strict=True) if is_left]
