"""Statistics of columns, by file and by partition.

Records of one key are folded from the older to the newer: one that is tight (exact) or deleted
makes what came before worthless, any other widens it. Where a value cannot be read as one of the
column's type, or there are values without bounds, nothing is known, and there is no row. Source:
``mergeColumnStatsRecords`` of Apache Hudi 1.2.0, which folds the logs before the base file and may
so keep wider bounds than these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.hfile.selection import Keys, Prefixes, Selection
from lakemark.merge.key_codes import key_codes
from lakemark.metadata.column_stats.typed_values import as_type
from lakemark.metadata.index_keys import (
    FILE_KEY_BYTES,
    column_prefix,
    column_stats_key,
    partition_path_of,
    partition_stats_key,
)
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.metadata.slice_rows import KEY, PAYLOAD
from lakemark.model.bounds import PRINTED_HIGH, PRINTED_LOW
from lakemark.model.column_ranges import ColumnRanges
from lakemark.read.index_protocols import statistics_schema

_PAYLOAD = PartitionKind.COLUMN_STATS.payload
_FILE_NAME, _PARTITION_PATH = "file_name", "partition_path"
_LABEL = "label"


class FilesTold(NamedTuple):
    """What statistics tell of some files.

    Attributes:
        ranges: of those files of each partition that are told of, together.
        untold: columns of which they tell nothing, by partition path and file name.
    """

    ranges: dict[str, ColumnRanges]
    untold: dict[tuple[str, str], list[str]]


@dataclass(frozen=True)
class ColumnStatistics:
    """A ``lakemark.read.index_protocols.FileStatistics`` over the partition ``column_stats``.

    Attributes:
        metadata: holds the statistics.
        partition: ``column_stats``, or that of an expression index.
    """

    metadata: MetadataTable
    partition: str = PartitionKind.COLUMN_STATS.stored_name

    def of_column(
        self, column: str, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """As the protocol says.

        Raises:
            SnapshotChanged: the metadata table was compacted meanwhile: open it again.
            CorruptData: its bytes disagree with the format.
            Unsupported: values in a wrapper that is not known.
        """
        return self._read(column, data_type, _prefixes(column, partitions))

    def of_files(
        self, column: str, data_type: pa.DataType, files: Iterable[tuple[str, str]]
    ) -> pa.Table:
        """The same of single files, each a partition path and a name; reads only their blocks."""
        keys = [column_stats_key(column, partition, name) for partition, name in files]
        return self._read(column, data_type, Keys.of_any(pa.array(keys, pa.binary())))

    def ranges(self, files: Mapping[str, Collection[str]], columns: pa.Schema) -> FilesTold:
        """What the files of each partition hold together.

        Args:
            files: names by partition path.
            columns: with the types that they have now.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as ``of_column``.
        """
        keys = {field.name: _file_keys(field.name, files) for field in columns}
        place_of = {key: place for one in keys.values() for key, place in one.items()}
        wanted = Keys.of_any(pa.array(list(place_of), pa.binary()))
        rows = self.metadata.history(self.metadata.parts(self.partition, wanted), _PAYLOAD)
        stored = [key.encode() for key in rows.column(KEY).to_pylist()]
        paths = pa.array([place_of[key][0] for key in stored], pa.string())
        rows = rows.append_column(_LABEL, paths)
        standing = {stored[at] for at in np.flatnonzero(_stands(rows))}
        found: dict[str, list[ColumnRanges]] = {path: [] for path in files}
        untold: dict[tuple[str, str], list[str]] = {}
        for field in columns:
            known, unknown = _folded(rows, field.name, field.type, _PARTITION_PATH, _LABEL)
            for at, path in enumerate(known.column(_PARTITION_PATH).to_pylist()):
                found[path].append(_range(field.name, known.slice(at, 1)))
            for key, place in keys[field.name].items():
                if key not in standing or key in unknown:
                    untold.setdefault(place, []).append(field.name)
        return FilesTold({p: ColumnRanges.united(parts) for p, parts in found.items()}, untold)

    def _read(self, column: str, data_type: pa.DataType, selection: Selection) -> pa.Table:
        parts = self.metadata.parts(self.partition, selection)
        rows = self.metadata.history(parts, _PAYLOAD)
        # Beside them an expression index keeps statistics of whole partitions, under shorter keys.
        rows = rows.filter(pc.equal(pc.binary_length(rows.column(KEY)), FILE_KEY_BYTES))
        return folded(rows, column, data_type, _FILE_NAME)


@dataclass(frozen=True)
class PartitionStatistics:
    """Statistics of whole partitions, of all versions of their rows.

    Attributes:
        metadata: holds the statistics.
        partition: ``partition_stats``, or that of an expression index.
        prefix: what stands before the partition in a key.
    """

    metadata: MetadataTable
    partition: str = PartitionKind.PARTITION_STATS.stored_name
    prefix: str | None = None

    def of_column(
        self, column: str, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """Statistics of one column, a row for each partition of which there are any.

        Arguments and errors as for ``ColumnStatistics.of_column``.

        Returns:
            ``statistics_schema("partition_path", data_type)``.
        """
        parts = self.metadata.parts(self.partition, _prefixes(column, partitions, self.prefix))
        found = folded(self.metadata.history(parts, _PAYLOAD), column, data_type, _PARTITION_PATH)
        return _with_partition_paths(found)

    def ranges(self, partitions: Sequence[str], columns: pa.Schema) -> dict[str, ColumnRanges]:
        """What is known of these partitions; of a column without a record nothing is.

        Args:
            partitions: their paths.
            columns: with the types that they have now.

        Raises:
            SnapshotChanged, CorruptData, Unsupported: as ``of_column``.
        """
        rows = self._rows(partitions, columns)
        found: dict[str, list[ColumnRanges]] = {path: [] for path in partitions}
        for field in columns:
            known = folded(rows, field.name, field.type, _PARTITION_PATH)
            for at, stored in enumerate(known.column(_PARTITION_PATH).to_pylist()):
                found[partition_path_of(stored)].append(_range(field.name, known.slice(at, 1)))
        return {path: ColumnRanges.united(parts) for path, parts in found.items()}

    def tight(self, partitions: Sequence[str], columns: pa.Schema) -> set[tuple[str, str]]:
        """Partitions and columns whose bounds claim to be exact; arguments as ``ranges``."""
        rows = self._rows(partitions, columns)
        payload = rows.column(PAYLOAD).combine_chunks()
        claims = pa.array(_stands(rows) & _flags(payload, "isTightBound"))
        names = (_field(payload, name).filter(claims) for name in ("fileName", "columnName"))
        stored, named = (column.to_pylist() for column in names)
        return {(partition_path_of(path), name) for path, name in zip(stored, named, strict=True)}

    def _rows(self, partitions: Sequence[str], columns: pa.Schema) -> pa.Table:
        keys = [partition_stats_key(name, path) for name in columns.names for path in partitions]
        wanted = Keys.of_any(pa.array(keys, pa.binary()))
        return self.metadata.history(self.metadata.parts(self.partition, wanted), _PAYLOAD)


def _file_keys(column: str, files: Mapping[str, Collection[str]]) -> dict[bytes, tuple[str, str]]:
    """The keys of a column's statistics in these files; partition path and name of each."""
    return {
        column_stats_key(column, path, name): (path, name)
        for path, names in files.items()
        for name in names
    }


def _range(name: str, row: pa.Table) -> ColumnRanges:
    """The range of one column."""
    bounds = pa.chunked_array([*row.column("min").chunks, *row.column("max").chunks])
    counts = (row.column("null_count")[0].as_py(), row.column("value_count")[0].as_py())
    told = ColumnRanges.of(pa.table({name: bounds}), [name])
    return replace(told, null_counts=counts[:1], value_counts=counts[1:])


def _prefixes(column: str, partitions: Sequence[str] | None, prefix: str | None = None) -> Prefixes:
    if partitions is None:
        return Prefixes([column_prefix(column, prefix)])
    return Prefixes([column_prefix(column, prefix, path) for path in partitions])


def _with_partition_paths(statistics: pa.Table) -> pa.Table:
    """Statistics of partitions with their paths as everyone but the metadata table writes them."""
    paths = [partition_path_of(name) for name in statistics.column(0).to_pylist()]
    return statistics.set_column(0, statistics.schema.field(0), pa.array(paths, pa.string()))


def folded(
    rows: pa.Table, column: str, data_type: pa.DataType, of_what: str, label: str | None = None
) -> pa.Table:
    """The statistics that a history of records amounts to.

    Args:
        rows: of one key the older before the newer; other columns than ``column`` are left out.
        column: whose statistics they are.
        data_type: its type.
        of_what: name of the first column of the result.
        label: a column of ``rows`` that says what each is of; keys of one label are united. None
            for what the records themselves say.

    Returns:
        ``statistics_schema(of_what, data_type)``.
    """
    return _folded(rows, column, data_type, of_what, label)[0]


def _folded(
    rows: pa.Table, column: str, data_type: pa.DataType, of_what: str, label: str | None = None
) -> tuple[pa.Table, set[bytes]]:
    """The same, and the keys whose records say nothing."""
    payload = rows.column(PAYLOAD).combine_chunks()
    # Of two columns whose names have one hash the records lie side by side.
    is_other = pc.fill_null(pc.not_equal(_field(payload, "columnName"), column), fill_value=False)
    rows = rows.filter(pc.invert(is_other))
    rows = rows.filter(pa.array(_stands(rows)))
    bounds = _Bounds.of(rows.column(PAYLOAD).combine_chunks(), data_type)
    keys = key_codes(rows, [KEY]).codes
    is_unknown = np.isin(keys, keys[~bounds.is_known])
    unknown = {key.encode() for key in rows.column(KEY).filter(pa.array(is_unknown)).to_pylist()}
    told = pa.array(np.flatnonzero(~is_unknown))
    return _united(rows.take(told), bounds.take(told), of_what, label), unknown


@dataclass(frozen=True)
class _Bounds:
    """The bounds in some records, in the column's type, and which of them say something."""

    low: pa.Array
    high: pa.Array
    is_known: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, payload: pa.StructArray, data_type: pa.DataType) -> _Bounds:
        kinds = _field(payload, "valueType")
        low, low_known = as_type(_field(payload, "minValue"), kinds, data_type, PRINTED_LOW)
        high, high_known = as_type(_field(payload, "maxValue"), kinds, data_type, PRINTED_HIGH)
        return cls(low, high, low_known & high_known & _is_consistent(low, high, payload))

    def take(self, places: pa.Array) -> _Bounds:
        return _Bounds(
            self.low.take(places), self.high.take(places), self.is_known[np.asarray(places)]
        )


def _stands(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether a record still says something."""
    payload, codes = rows.column(PAYLOAD).combine_chunks(), key_codes(rows, [KEY])
    is_deleted = _flags(payload, "isDeleted") | np.asarray(payload.is_null())
    decisive = codes.last(np.flatnonzero(is_deleted | _flags(payload, "isTightBound")))
    is_later = np.arange(len(payload)) >= decisive[codes.codes]
    stands: npt.NDArray[np.bool_] = is_later & ~is_deleted
    return stands


def _united(rows: pa.Table, bounds: _Bounds, of_what: str, label: str | None) -> pa.Table:
    """One row for each label, or key: the union of its records."""
    payload = rows.column(PAYLOAD).combine_chunks()
    names = _field(payload, "fileName") if label is None else rows.column(label).combine_chunks()
    codes = key_codes(rows, [label or KEY]).codes
    groups, first, group_of = np.unique(codes, return_index=True, return_inverse=True)
    columns = [
        names.take(pa.array(first)),
        _extreme(bounds.low, group_of, "ascending"),
        _extreme(bounds.high, group_of, "descending"),
        _total(_field(payload, "nullCount"), group_of, len(groups)),
        _total(_field(payload, "valueCount"), group_of, len(groups)),
    ]
    return pa.Table.from_arrays(columns, schema=statistics_schema(of_what, bounds.low.type))


def _is_consistent(low: pa.Array, high: pa.Array, payload: pa.StructArray) -> npt.NDArray[np.bool_]:
    """Whether there are bounds, or no values; a footer may count values and give no bounds."""
    is_empty = pc.equal(_field(payload, "nullCount"), _field(payload, "valueCount"))
    has_bounds = pc.and_(low.is_valid(), high.is_valid())
    consistent: npt.NDArray[np.bool_] = np.asarray(
        pc.or_(has_bounds, pc.fill_null(is_empty, fill_value=False))
    )
    return consistent


def _extreme(values: pa.Array, group_of: npt.NDArray[np.int64], order: str) -> pa.Array:
    """The first value of each group in that order, a NaN above all; null when it has none."""
    table = pa.table({"group": pa.array(group_of), "value": values})
    keys = [("group", "ascending"), ("value", order)]
    if pa.types.is_floating(values.type):  # which Arrow puts behind all others in any order
        table = table.append_column("is_nan", pc.fill_null(pc.is_nan(values), fill_value=False))
        keys.insert(1, ("is_nan", order))
    by_value = np.asarray(pc.sort_indices(table, sort_keys=keys))
    _, first = np.unique(group_of[by_value], return_index=True)
    return values.take(pa.array(by_value[first]))


def _total(counts: pa.Array, group_of: npt.NDArray[np.int64], group_count: int) -> pa.Array:
    """The sum of each group; null when a count in it is not known."""
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
