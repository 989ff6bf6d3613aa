"""Looks up statistics of columns, by file and by partition.

The records of one key are merged, oldest first. A record that is tight (exact) or deleted replaces
all older records. Any other record widens the older ones. Statistics are unknown if a stored value
cannot be converted to the column's type, or if a record with values has no bounds. Unknown
statistics have no row in the result. Source: ``mergeColumnStatsRecords`` of Apache Hudi 1.2.0,
which merges the logs before the base file and may therefore keep wider bounds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.selection import Keys, Prefixes, Selection
from lakemark.merge.key_codes import key_codes
from lakemark.metadata.column_stats.decode import decode_values
from lakemark.metadata.index_keys import (
    FILE_KEY_BYTES,
    PARTITION_ID,
    column_prefix,
    column_stats_key,
    partition_id,
    partition_path_of,
    partition_stats_key,
)
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.slice_rows import KEY, PAYLOAD
from lakemark.model.bounds import PRINTED_HIGH, PRINTED_LOW, pair_bounds
from lakemark.model.column_ranges import NO_SIZE, ColumnRanges, ColumnSize
from lakemark.model.file_slice import join
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.index_protocols import statistics_schema

_PAYLOAD = PartitionKind.COLUMN_STATS.payload
_FILE_NAME, _PARTITION_PATH = "file_name", "partition_path"
_LABEL = "label"
#: The columns of sizes in merged statistics.
_SIZES = ("size_bytes", "uncompressed_bytes")
#: The numbers of a record that are added up, as they are stored.
_TOTALS = ("nullCount", "valueCount", "totalSize", "totalUncompressedSize")


class FileRanges(NamedTuple):
    """Stored statistics of some files.

    Attributes:
        ranges: column ranges by partition path and file name. They lack the columns without known
            statistics.
        missing: names of the columns without known statistics, by partition path and file name.
    """

    ranges: dict[tuple[str, str], ColumnRanges]
    missing: dict[tuple[str, str], list[str]]


class RangesOfPartitions(NamedTuple):
    """Stored statistics of some partitions.

    Attributes:
        ranges: column ranges by partition path; a column without a record has no range.
        tight: partition path and name of the columns whose bounds are marked as exact. A column is
            omitted if a record that is not tight widens its bounds.
        recorded: partition path and name of the columns that have a record, even if their
            statistics are unknown.
    """

    ranges: dict[str, ColumnRanges]
    tight: set[tuple[str, str]]
    recorded: set[tuple[str, str]]


@dataclass(frozen=True)
class ColumnStatistics:
    """A ``lakemark.read.index_protocols.FileStatistics`` that reads ``column_stats``.

    Attributes:
        metadata: the metadata table that contains the statistics.
        partition: ``column_stats``, or the partition of an expression index.
        counts_nulls: whether the stored numbers of values include nulls, which is not the case in
            an expression index.
        keys: the columns of record keys, which have a value in each row.
    """

    metadata: MetadataTable
    partition: str = PartitionKind.COLUMN_STATS.stored_name
    counts_nulls: bool = True
    keys: frozenset[str] = frozenset({RECORD_KEY})

    def by_path(self, column: str, data_type: pa.DataType, partitions: Sequence[str]) -> pa.Table:
        """See ``FileStatistics.by_path``. Errors as for ``of_column``.

        Parquet writes no bounds of a row group if its smallest and largest text have 4 KiB or more
        together. Apache Hudi then counts the rows as nulls, and records the bounds of the other row
        groups. In a column of keys, such a null shows that the bounds do not include all keys.
        """
        rows = self._rows(_prefixes(column, partitions))
        rows = rows.append_column(_LABEL, _paths_of(rows, partitions))
        found = merge_statistics(rows, column, data_type, "path", _LABEL)
        return (
            found.filter(pc.equal(found.column("null_count"), 0)) if column in self.keys else found
        )

    def of_column(
        self, column: str, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the statistics of one column, for the files that have any.

        Args:
            column: name of the column; for a field inside a struct, the path with dots.
            data_type: current type of the column, as in ``FileStatistics.by_path``.
            partitions: paths of the partitions to search; all when None.

        Returns:
            A table with the schema ``statistics_schema("file_name", data_type)``, and one row for
            each file.

        Raises:
            SnapshotChanged: the metadata table was compacted in the meantime; open it again.
            CorruptData: bytes of the metadata table do not match the format.
            Unsupported: values are in an unknown wrapper.
        """
        return self._read(column, data_type, _prefixes(column, partitions))

    def of_files(
        self, column: str, data_type: pa.DataType, files: Iterable[tuple[str, str]]
    ) -> pa.Table:
        """Return the statistics of a column for single files; only their blocks are read.

        Each file is given by partition path and name.
        """
        keys = [column_stats_key(column, partition, name) for partition, name in files]
        return self._read(column, data_type, Keys.of_any(pa.array(keys, pa.binary())))

    def ranges(self, files: Mapping[str, Collection[str]], columns: pa.Schema) -> FileRanges:
        """Return the ranges of single files.

        Args:
            files: file names by partition path.
            columns: the columns, with their current types.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as for ``of_column``.
        """
        keys = {field.name: _file_keys(field.name, files) for field in columns}
        file_of = {key: file for one in keys.values() for key, file in one.items()}
        wanted = Keys.of_any(pa.array(list(file_of), pa.binary()))
        rows = self.metadata.history(self.metadata.parts(self.partition, wanted), _PAYLOAD)
        stored = [key.encode() for key in rows.column(KEY).to_pylist()]
        paths = [join(*file_of[key]) for key in stored]
        rows = rows.append_column(_LABEL, pa.array(paths, pa.string()))
        file_at = dict(zip(paths, (file_of[key] for key in stored), strict=True))
        effective = {stored[at] for at in np.flatnonzero(_is_effective(rows))}
        found: dict[tuple[str, str], list[_Range]] = {
            (path, name): [] for path, names in files.items() for name in names
        }
        missing: dict[tuple[str, str], list[str]] = {}
        for field in columns:
            known, unknown = _merge(
                rows, field.name, field.type, _FILE_NAME, _LABEL, self.counts_nulls
            )
            of_files = zip(
                known.column(_FILE_NAME).to_pylist(), _ranges(field.name, known), strict=True
            )
            for path, one in of_files:
                found[file_at[path]].append(one)
            for key, file in keys[field.name].items():
                if key not in effective or key in unknown:
                    missing.setdefault(file, []).append(field.name)
        return FileRanges({file: _combine(some) for file, some in found.items()}, missing)

    def _read(self, column: str, data_type: pa.DataType, selection: Selection) -> pa.Table:
        rows = self._rows(selection)
        found = _merge(rows, column, data_type, _FILE_NAME, None, self.counts_nulls)[0]
        return _without_sizes(found)

    def _rows(self, selection: Selection) -> pa.Table:
        """Return the selected records of files."""
        parts = self.metadata.parts(self.partition, selection)
        rows = self.metadata.history(parts, _PAYLOAD)
        # An expression index also has statistics of whole partitions, with shorter keys.
        return rows.filter(pc.equal(pc.binary_length(rows.column(KEY)), FILE_KEY_BYTES))


@dataclass(frozen=True)
class PartitionStatistics:
    """Reads statistics of whole partitions, which cover all versions of the partitions' rows.

    Attributes:
        metadata: the metadata table that contains the statistics.
        partition: ``partition_stats``, or the partition of an expression index.
        prefix: text in each key between the column and the partition; None if there is none.
        counts_nulls: as in ``ColumnStatistics``.
    """

    metadata: MetadataTable
    partition: str = PartitionKind.PARTITION_STATS.stored_name
    prefix: str | None = None
    counts_nulls: bool = True

    def of_column(
        self, column: str, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the statistics of one column, a row for each partition that has some.

        Arguments and errors are as for ``ColumnStatistics.of_column``.

        Returns:
            A table with the schema ``statistics_schema("partition_path", data_type)``.
        """
        parts = self.metadata.parts(self.partition, _prefixes(column, partitions, self.prefix))
        rows = self.metadata.history(parts, _PAYLOAD)
        found = _merge(rows, column, data_type, _PARTITION_PATH, None, self.counts_nulls)[0]
        return _with_partition_paths(_without_sizes(found))

    def ranges(self, partitions: Sequence[str], columns: pa.Schema) -> RangesOfPartitions:
        """Read the ranges of these partitions.

        Args:
            partitions: paths of the partitions.
            columns: the columns, with their current types.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as for ``of_column``.
        """
        keys = [partition_stats_key(name, path) for name in columns.names for path in partitions]
        rows = self._history(pa.array(keys, pa.binary()))
        found: dict[str, list[_Range]] = {path: [] for path in partitions}
        for field in columns:
            known, _ = _merge(rows, field.name, field.type, _PARTITION_PATH)
            paths = known.column(_PARTITION_PATH).to_pylist()
            for stored, one in zip(paths, _ranges(field.name, known), strict=True):
                found[partition_path_of(stored)].append(one)
        ranges = {path: _combine(some) for path, some in found.items()}
        tight, widened = _tight_columns(rows)
        return RangesOfPartitions(ranges, tight - widened, tight | widened)

    def merged_columns(self) -> set[tuple[str, str]]:
        """Return the partition path and name of columns whose bounds come from several records.

        The newest of these records is not tight, and is in a log.
        """
        widening = self._widening_keys()
        rows = self._history(widening)
        rows = rows.filter(pa.array(_is_effective(rows)))
        codes = key_codes(rows, [KEY]).codes
        payload = rows.column(PAYLOAD).combine_chunks()
        return _partitions_and_columns(payload, np.bincount(codes)[codes] > 1)

    def _widening_keys(self) -> pa.Array:
        """Return the keys of the records in logs that are not tight, or that delete their key."""
        parts = self.metadata.parts(self.partition)
        logs = [self.metadata.rows.of_logs(one, _PAYLOAD, everything) for one, everything in parts]
        rows = pa.concat_tables(logs)
        is_tight = _flags(rows.column(PAYLOAD).combine_chunks(), "isTightBound")
        return rows.column(KEY).filter(pa.array(~is_tight)).combine_chunks().cast(pa.binary())

    def _history(self, keys: pa.Array) -> pa.Table:
        parts = self.metadata.parts(self.partition, Keys.of_any(keys))
        return self.metadata.history(parts, _PAYLOAD)


def _paths_of(rows: pa.Table, partitions: Sequence[str]) -> pa.Array:
    """Return the path of the file of each record; null if the record deletes its key.

    Args:
        rows: records of files in these partitions.
        partitions: paths of the partitions.
    """
    keys = rows.column(KEY).combine_chunks()
    ids = pa.array([partition_id(path) for path in partitions], pa.string())
    found = pc.index_in(pc.utf8_slice_codeunits(keys, *PARTITION_ID), value_set=ids)
    folders = pa.array([join(path, "") for path in partitions], pa.string())
    names = _field(rows.column(PAYLOAD).combine_chunks(), "fileName")
    return pc.binary_join_element_wise(folders.take(found), names, "")


def _tight_columns(rows: pa.Table) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return the columns with a tight record, and the columns with a record that is not tight."""
    payload = rows.column(PAYLOAD).combine_chunks()
    is_effective, is_tight = _is_effective(rows), _flags(payload, "isTightBound")
    exact = _partitions_and_columns(payload, is_effective & is_tight)
    return exact, _partitions_and_columns(payload, is_effective & ~is_tight)


def _partitions_and_columns(
    payload: pa.StructArray, are_chosen: npt.NDArray[np.bool_]
) -> set[tuple[str, str]]:
    """Return the partition path and column name of the chosen statistics."""
    chosen = pa.array(are_chosen)
    names = (_field(payload, name).filter(chosen) for name in ("fileName", "columnName"))
    stored, named = (column.to_pylist() for column in names)
    return {(partition_path_of(path), name) for path, name in zip(stored, named, strict=True)}


def _file_keys(column: str, files: Mapping[str, Collection[str]]) -> dict[bytes, tuple[str, str]]:
    """Return the partition path and name of each file, by the key of its column statistics."""
    return {
        column_stats_key(column, path, name): (path, name)
        for path, names in files.items()
        for name in names
    }


class _Range(NamedTuple):
    """The range of one column in one file or partition."""

    column: str
    bounds: pa.Array
    null_count: int
    value_count: int
    size: ColumnSize


def _ranges(column: str, rows: pa.Table) -> Iterator[_Range]:
    """Yield the range of each row of merged statistics of a column."""
    low, high = (rows.column(name).combine_chunks() for name in ("min", "max"))
    counts = (rows.column(name).to_pylist() for name in ("null_count", "value_count"))
    stored = (pc.fill_null(rows.column(name), 0).to_pylist() for name in _SIZES)
    sizes = map(ColumnSize, *stored)
    for pair, nulls, values, size in zip(pair_bounds(low, high), *counts, sizes, strict=True):
        yield _Range(column, pair, nulls, values, size)


def _combine(ranges: Sequence[_Range]) -> ColumnRanges:
    """Return the ranges of distinct columns."""
    bounds = [one.bounds for one in ranges]
    return ColumnRanges(
        pa.RecordBatch.from_arrays(bounds, [one.column for one in ranges]),
        tuple(one.null_count for one in ranges),
        tuple(one.value_count for one in ranges),
        {one.column: one.size for one in ranges if one.size != NO_SIZE},
    )


def _prefixes(column: str, partitions: Sequence[str] | None, prefix: str | None = None) -> Prefixes:
    if partitions is None:
        return Prefixes([column_prefix(column, prefix)])
    return Prefixes([column_prefix(column, prefix, path) for path in partitions])


def _with_partition_paths(statistics: pa.Table) -> pa.Table:
    """Return the statistics of partitions, with the partition paths of the data table."""
    paths = [partition_path_of(name) for name in statistics.column(0).to_pylist()]
    return statistics.set_column(0, statistics.schema.field(0), pa.array(paths, pa.string()))


def merge_statistics(
    rows: pa.Table,
    column: str,
    data_type: pa.DataType,
    name_column: str,
    label: str | None = None,
) -> pa.Table:
    """Merge the records of each key into one row.

    Args:
        rows: the stored records. The records of one key are ordered oldest first. Records of other
            columns are ignored.
        column: name of the column whose statistics are merged.
        data_type: type of the column.
        name_column: name of the first column of the result.
        label: a column of ``rows`` whose value replaces the file name in the result. All keys with
            one label are merged into one row. If None, the file name is used.

    Returns:
        A table with the schema ``statistics_schema(name_column, data_type)``.
    """
    return _without_sizes(_merge(rows, column, data_type, name_column, label)[0])


def _merge(
    rows: pa.Table,
    column: str,
    data_type: pa.DataType,
    name_column: str,
    label: str | None = None,
    counts_nulls: bool = True,
) -> tuple[pa.Table, set[bytes]]:
    """Merge as ``merge_statistics`` does, and also return sizes and keys with unknown statistics.

    The sizes are in the columns ``_SIZES``.
    """
    payload = rows.column(PAYLOAD).combine_chunks()
    # Two columns whose names have the same hash share a key prefix.
    is_other = pc.fill_null(pc.not_equal(_field(payload, "columnName"), column), fill_value=False)
    rows = rows.filter(pc.invert(is_other))
    rows = rows.filter(pa.array(_is_effective(rows)))
    bounds = _Bounds.of(rows.column(PAYLOAD).combine_chunks(), data_type, counts_nulls)
    keys = key_codes(rows, [KEY]).codes
    is_unknown = np.isin(keys, keys[~bounds.is_known])
    unknown = {key.encode() for key in rows.column(KEY).filter(pa.array(is_unknown)).to_pylist()}
    known = pa.array(np.flatnonzero(~is_unknown))
    return _unite(rows.take(known), bounds.take(known), name_column, label), unknown


@dataclass(frozen=True)
class _Bounds:
    """The bounds of some records in the column's type, and whether they are known."""

    low: pa.Array
    high: pa.Array
    is_known: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, payload: pa.StructArray, data_type: pa.DataType, counts_nulls: bool) -> _Bounds:
        kinds = _field(payload, "valueType")
        low, low_known = decode_values(_field(payload, "minValue"), kinds, data_type, PRINTED_LOW)
        high, high_known = decode_values(
            _field(payload, "maxValue"), kinds, data_type, PRINTED_HIGH
        )
        is_consistent = _is_consistent(low, high, payload, counts_nulls)
        return cls(low, high, low_known & high_known & is_consistent)

    def take(self, rows: pa.Array) -> _Bounds:
        return _Bounds(self.low.take(rows), self.high.take(rows), self.is_known[np.asarray(rows)])


def _is_effective(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Return whether each record is effective.

    A record is effective if it does not delete its key, and if no newer record deletes or replaces
    it.
    """
    payload, codes = rows.column(PAYLOAD).combine_chunks(), key_codes(rows, [KEY])
    is_deleted = _flags(payload, "isDeleted") | np.asarray(payload.is_null())
    decisive = codes.last(np.flatnonzero(is_deleted | _flags(payload, "isTightBound")))
    is_later = np.arange(len(payload)) >= decisive[codes.codes]
    is_effective: npt.NDArray[np.bool_] = is_later & ~is_deleted
    return is_effective


def _unite(rows: pa.Table, bounds: _Bounds, name_column: str, label: str | None) -> pa.Table:
    """Return one row for each label, or for each key without labels: the union of its records."""
    payload = rows.column(PAYLOAD).combine_chunks()
    names = _field(payload, "fileName") if label is None else rows.column(label).combine_chunks()
    codes = key_codes(rows, [label or KEY]).codes
    groups, first, group_of = np.unique(codes, return_index=True, return_inverse=True)
    schema = _schema_with_sizes(name_column, bounds.low.type)
    if len(groups) == len(codes):  # nearly all files have one record, so nothing is combined
        counts = [_field(payload, name) for name in _TOTALS]
        columns = [names, bounds.low, bounds.high, *counts]
        return pa.Table.from_arrays(columns, schema=schema).take(pa.array(first))
    columns = [
        names.take(pa.array(first)),
        _extreme(bounds.low, group_of, "ascending"),
        _extreme(bounds.high, group_of, "descending"),
        *(_total(_field(payload, name), group_of, len(groups)) for name in _TOTALS),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _schema_with_sizes(name_column: str, data_type: pa.DataType) -> pa.Schema:
    sizes = [pa.field(name, pa.int64()) for name in _SIZES]
    return pa.schema([*statistics_schema(name_column, data_type), *sizes])


def _without_sizes(merged: pa.Table) -> pa.Table:
    return merged.drop_columns([*_SIZES])


def _is_consistent(
    low: pa.Array, high: pa.Array, payload: pa.StructArray, counts_nulls: bool
) -> npt.NDArray[np.bool_]:
    """Return whether each record has both bounds or only nulls.

    Some records have values but no bounds, because a footer may count values but lack bounds.
    """
    of_nulls = _field(payload, "nullCount") if counts_nulls else 0
    is_empty = pc.equal(of_nulls, _field(payload, "valueCount"))
    has_bounds = pc.and_(low.is_valid(), high.is_valid())
    consistent: npt.NDArray[np.bool_] = np.asarray(
        pc.or_(has_bounds, pc.fill_null(is_empty, fill_value=False))
    )
    return consistent


def _extreme(values: pa.Array, group_of: npt.NDArray[np.int64], order: str) -> pa.Array:
    """Return the first value of each group in the given order; null if the group has no value.

    NaN is the largest value.
    """
    table = pa.table({"group": pa.array(group_of), "value": values})
    keys = [("group", "ascending"), ("value", order)]
    if pa.types.is_floating(values.type):  # Arrow sorts NaN last in either order
        table = table.append_column("is_nan", pc.fill_null(pc.is_nan(values), fill_value=False))
        keys.insert(1, ("is_nan", order))
    by_value = np.asarray(pc.sort_indices(table, sort_keys=keys))
    _, first = np.unique(group_of[by_value], return_index=True)
    return values.take(pa.array(by_value[first]))


def _total(counts: pa.Array, group_of: npt.NDArray[np.int64], group_count: int) -> pa.Array:
    """Return the sum of the counts in each group; null if a count of the group is unknown."""
    totals = np.zeros(group_count, np.int64)
    np.add.at(totals, group_of, np.asarray(pc.fill_null(counts, 0)))
    is_unknown = np.zeros(group_count, np.bool_)
    is_unknown[group_of[np.asarray(counts.is_null())]] = True
    return pa.array(totals, mask=is_unknown)


def _field(payload: pa.StructArray, name: str) -> pa.Array:
    return pc.struct_field(payload, name)


def _flags(payload: pa.StructArray, name: str) -> npt.NDArray[np.bool_]:
    flags: npt.NDArray[np.bool_] = np.asarray(pc.fill_null(_field(payload, name), fill_value=False))
    return flags
