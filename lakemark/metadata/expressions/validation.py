"""Compares expression indexes with the values of the expressions in the data files.

Statistics that Apache Hudi wrote in some session are right if they are within the bounds that cover
all sessions (``covering_values``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from lakemark.metadata.column_stats.derive import files_of
from lakemark.metadata.difference import Difference
from lakemark.metadata.expressions.expression_index import ExpressionIndex
from lakemark.metadata.expressions.file_values import FileValues
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.model.bounds import to_storage_type
from lakemark.model.column_ranges import ColumnRanges
from lakemark.model.file_slice import FileSlice, join
from lakemark.view.file_lister import DataFile


class _Statistics(NamedTuple):
    """Statistics of a file or a partition, with comparable bounds."""

    low: object
    high: object
    null_count: int
    value_count: int

    def __str__(self) -> str:
        return ", ".join(f"{name} {value!r}" for name, value in self._asdict().items())


def expression_differences(
    metadata: MetadataTable,
    expressions: Iterable[FileValues],
    files: Sequence[DataFile],
    names: Collection[str],
    slices: Sequence[FileSlice],
) -> Iterator[Difference]:
    """Yield the records of expression indexes that are wrong or missing.

    Args:
        metadata: the metadata table.
        expressions: the expressions with an index.
        files: the files that the metadata table must describe.
        names: the names of all files on storage; the metadata table may describe them, too.
        slices: the slices that queries read.

    Raises:
        SnapshotChanged: the table was changed in the meantime; call again.
        CorruptData, Unsupported: a file or the metadata table cannot be read.
    """
    for values in expressions:
        index = ExpressionIndex.of(metadata, values.expression.partition)
        if not values.expression.has_statistics:
            yield from _filter_differences(index, values, [*files_of(slices)])
            continue
        stored = _by_name(index.of_files(values.function.result_type))
        read = {file.path for file in files_of(slices)}
        yield from _file_differences(values, stored, files, names, read)
        partitions = _by_name(index.of_partitions(values.function.result_type))
        yield from _partition_differences(values, stored, partitions, slices)


def _file_differences(
    values: FileValues,
    stored: Mapping[str, _Statistics],
    files: Sequence[DataFile],
    names: Collection[str],
    read: Collection[str],
) -> Iterator[Difference]:
    """Yield the wrong statistics, and the files in ``read`` that have values but no statistics.

    Apache Hudi creates an index without the files of older slices.
    """
    column = values.expression.partition
    for name in sorted(stored.keys() - set(names)):
        yield Difference(name, column, str(stored[name]), "no such file")
    for file in files:
        actual, found = _statistics_of(values.ranges(file)), stored.get(str(file.name))
        if found is None:
            if file.path in read and actual.null_count + actual.value_count:
                yield Difference(file.path, column, "no statistics", str(actual))
        elif not _agrees(values, file, found, actual):
            yield Difference(file.path, column, str(found), str(actual))


def _agrees(values: FileValues, file: DataFile, found: _Statistics, actual: _Statistics) -> bool:
    if found == actual:
        return True
    has_counts = found[2:] == actual[2:] and found.low is not None and actual.low is not None
    return has_counts and _encloses(actual, found) and not values.has_exact_values(file)


def _partition_differences(
    values: FileValues,
    stored: Mapping[str, _Statistics],
    partitions: Mapping[str, _Statistics],
    slices: Sequence[FileSlice],
) -> Iterator[Difference]:
    """Yield the partitions whose statistics do not enclose those of each file that queries read."""
    for one in slices:
        path = one.group.partition_path
        for file in files_of([one]):
            inner, outer = stored.get(str(file.name)), partitions.get(path)
            if inner is None or inner.low is None:
                continue
            if outer is None or outer.low is None or not _encloses(outer, inner):
                found = "no statistics" if outer is None else str(outer)
                yield Difference(join(path, ""), values.expression.partition, found, str(inner))


def _encloses(outer: _Statistics, inner: _Statistics) -> bool:
    return bool(outer.low <= inner.low and inner.high <= outer.high)  # type: ignore[operator]


def _filter_differences(
    index: ExpressionIndex, values: FileValues, files: Sequence[DataFile]
) -> Iterator[Difference]:
    """Yield the filters that lack a value of their file, and the files without a filter."""
    stored = index.bloom_filters((file.partition_path, str(file.name)) for file in files)
    for file in files:
        texts = values.distinct_texts(file)
        if texts is None or not len(texts := texts.drop_null()):
            continue
        found = stored.get((file.partition_path, str(file.name)))
        if found is None or not found.might_contain(texts).all():
            text = "no filter" if found is None else "a filter without a value"
            yield Difference(file.path, values.expression.partition, text, f"{len(texts)} values")


def _by_name(rows: pa.Table) -> dict[str, _Statistics]:
    """Return statistics by the first column, the name of the file or the path of the partition."""
    low, high = (to_storage_type(rows.column(at).combine_chunks()).to_pylist() for at in (1, 2))
    counts = (rows.column(name).to_pylist() for name in ("null_count", "value_count"))
    found = map(_Statistics._make, zip(low, high, *counts, strict=True))
    return dict(zip(rows.column(0).to_pylist(), found, strict=True))


def _statistics_of(ranges: ColumnRanges) -> _Statistics:
    low, high = to_storage_type(ranges.bounds.column(0)).to_pylist()
    return _Statistics(low, high, ranges.null_counts[0], ranges.value_counts[0])
