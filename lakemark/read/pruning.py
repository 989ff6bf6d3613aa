"""Skips file slices in which no row can meet a condition, by partitions and file statistics.

For each column, the statistics of all files of a slice are combined. Columns are combined
separately, because the values of one merged row may come from different files. If a merge can
create new values, statistics are not used for slices with logs.

File groups can be skipped before their slices are known. A file group is then treated as one slice
with all of its files, so its ranges contain those of each of its slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.config.partition_field import PartitionField
from lakemark.keygen.slash_separated_dates import texts_of_path
from lakemark.merge.key_codes import KeyCodes, key_codes
from lakemark.model.file_names import is_cdc_name, is_log_name, parse_file_ids
from lakemark.model.file_slice import FileSlice
from lakemark.read.index_protocols import FileStatistics
from lakemark.read.partition_pruning import partition_guarantee
from lakemark.read.range_search import SliceRanges, find_slices
from lakemark.read.row_filter import may_match, referenced_columns

Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SlicePruner:
    """Selects the file slices that may contain matching rows.

    Attributes:
        schema: the table's columns.
        partition_fields: partition columns whose values are the folders of a partition path; empty
            if the folders are not plain values of columns.
        is_url_encoded: whether special characters of a partition path are written ``%XX``.
        is_hive_style: whether folders are named ``field=value``.
        has_slash_dates: whether the path as a whole is the value of the only partition column, with
            slashes instead of dashes.
        statistics: statistics of files, if the table has any.
        merging_makes_values: whether a merged row may have a value that no file has; a custom
            merger creates one if it adds two values.
        expressions: see ``partition_guarantee``.
    """

    schema: pa.Schema
    partition_fields: tuple[str, ...] = ()
    is_url_encoded: bool = False
    is_hive_style: bool = False
    has_slash_dates: bool = False
    statistics: FileStatistics | None = None
    merging_makes_values: bool = False
    expressions: Mapping[str, PartitionField] = field(default_factory=dict)
    _read: dict[str, _Statistics] = field(default_factory=dict, init=False, repr=False)

    def select(self, slices: Sequence[FileSlice], condition: pc.Expression) -> list[FileSlice]:
        """Return the slices that may hold a row that meets the condition.

        Raises:
            SnapshotChanged: statistics were rewritten in the meantime; plan the query again.
            CorruptData: statistics are damaged.
        """
        paths = self.select_partitions({s.group.partition_path for s in slices}, condition)
        left = set(paths)
        in_partitions = [s for s in slices if s.group.partition_path in left]
        if self.statistics is None or not in_partitions:
            return in_partitions
        return _select(in_partitions, self._search(_FilesOfSlices.of(in_partitions), condition))

    def select_partitions(self, paths: Iterable[str], condition: pc.Expression) -> list[str]:
        """Return the partitions, sorted, whose path does not rule out a row that matches."""
        candidates = [(path, values) for path in sorted(paths) for values in self._values(path)]
        guarantees = [
            partition_guarantee(
                path,
                values,
                self.partition_fields,
                self.schema,
                is_url_encoded=self.is_url_encoded,
                is_hive_style=self.is_hive_style,
                expressions=self.expressions,
            )
            for path, values in candidates
        ]
        left = _select(candidates, may_match(condition, guarantees, self.schema))
        return list(dict.fromkeys(path for path, _ in left))

    def _values(self, path: str) -> list[list[str]]:
        """Return the values of the partition columns, as texts; several if any may be stored."""
        if not self.has_slash_dates:
            return [path.split("/")]
        texts, (name,) = texts_of_path(path), self.partition_fields
        is_text = name in self.schema.names and pa.types.is_string(self.schema.field(name).type)
        may_differ = is_text and name not in self.expressions
        return [[text] for text in (texts if may_differ else texts[:1])] or [[]]

    def select_file_groups(self, files: pa.Table, condition: pc.Expression) -> pa.Table:
        """Return the files of the file groups that may hold a row that meets the condition.

        Errors as for ``select``.

        Args:
            files: all files of some file groups, with the schema ``FILE_NAMES``.
            condition: the condition.
        """
        if self.statistics is None or not files.num_rows:
            return files
        groups = _file_groups(files)
        are_left = self._search(_FilesOfSlices.of_groups(files, groups), condition)
        return files.filter(pa.array(are_left[groups.codes]))

    def excluding_columns(
        self, slices: Sequence[FileSlice], condition: pc.Expression
    ) -> list[tuple[str, ...]]:
        """Return for each slice the columns whose statistics exclude a row that matches.

        Each of these columns alone excludes it. If only several columns together do, all columns of
        the condition with statistics are returned. The result is empty for a slice that may match.
        Errors as for ``select``.
        """
        if self.statistics is None or not slices:
            return [()] * len(slices)
        files = _FilesOfSlices.of(slices)
        columns = self._columns_of(condition, files)
        alone = {
            one.field.name: find_slices(condition, [one], files.count, self.schema)
            for one in columns
        }
        together = find_slices(condition, columns, files.count, self.schema)
        return [
            () if together[at] else tuple(n for n in alone if not alone[n][at]) or tuple(alone)
            for at in range(files.count)
        ]

    def _search(self, files: _FilesOfSlices, condition: pc.Expression) -> Mask:
        """Return for each slice whether it may hold a row that meets the condition."""
        columns = self._columns_of(condition, files)
        return find_slices(condition, columns, files.count, self.schema)

    def _columns_of(self, condition: pc.Expression, files: _FilesOfSlices) -> list[SliceRanges]:
        """Return the ranges of the columns that the condition reads and that have statistics."""
        names = referenced_columns(condition, self.schema)
        known = (self._of_column(self.schema.field(name), files) for name in names)
        return [one for one in known if one is not None]

    def _of_column(self, column: pa.Field, files: _FilesOfSlices) -> SliceRanges | None:
        """Return the ranges of one column in each slice; None if there are none."""
        if self.statistics is None or not _is_ordered(column.type):
            return None
        read = self._read.get(column.name)
        if read is None or not read.partitions.issuperset(files.partitions):
            known = self.statistics.by_path(column.name, column.type, files.partitions)
            self._read[column.name] = _Statistics(frozenset(files.partitions), known)
        known = self._read[column.name].of_files
        rows = pc.fill_null(pc.index_in(files.paths, value_set=known.column("path")), -1)
        ranges = SliceRanges.of(column, known, np.asarray(rows), files.slices, files.count)
        return ranges.without(files.have_logs) if self.merging_makes_values else ranges


class _Statistics(NamedTuple):
    """The statistics of one column in the files of some partitions."""

    partitions: frozenset[str]
    of_files: pa.Table


@dataclass(frozen=True, slots=True)
class _FilesOfSlices:
    """The files of some slices.

    Attributes:
        partitions: the partitions of the slices.
        paths: the paths of the files, relative to the table's root.
        slices: the slice of each file.
        count: the number of slices.
        have_logs: whether each slice has logs.
    """

    partitions: list[str]
    paths: pa.Array
    slices: Rows
    count: int
    have_logs: Mask

    @classmethod
    def of(cls, slices: Sequence[FileSlice]) -> _FilesOfSlices:
        paths = [_paths(one) for one in slices]
        return cls(
            sorted({one.group.partition_path for one in slices}),
            pa.array([path for of_slice in paths for path in of_slice], pa.string()),
            np.repeat(np.arange(len(slices)), [len(of_slice) for of_slice in paths]),
            len(slices),
            np.array([bool(one.logs) for one in slices], np.bool_),
        )

    @classmethod
    def of_groups(cls, files: pa.Table, groups: KeyCodes) -> _FilesOfSlices:
        """Treat each file group as one slice.

        Args:
            files: the files, with the schema ``FILE_NAMES``.
            groups: the file group of each file.
        """
        # Files of changes (CDC) belong to no slice, and have no statistics.
        is_read = np.asarray(pc.invert(is_cdc_name(files.column("name"))))
        folders, names, _ = files.filter(pa.array(is_read)).columns
        slashes = pc.if_else(pc.equal(folders, ""), "", "/")
        codes = groups.codes[is_read]
        logs = codes[np.asarray(is_log_name(names))]
        return cls(
            pc.unique(folders).to_pylist(),
            pc.binary_join_element_wise(folders, slashes, names, "").combine_chunks(),
            codes,
            groups.key_count,
            np.bincount(logs, minlength=groups.key_count) > 0,
        )


def _file_groups(files: pa.Table) -> KeyCodes:
    """Number the file groups of these files, which have the schema ``FILE_NAMES``."""
    ids = parse_file_ids(files.column("name"))
    named = pa.table({"partition": files.column("partition_path"), "file_id": ids})
    return key_codes(named, ["partition", "file_id"])


def _is_ordered(data_type: pa.DataType) -> bool:
    """Return whether bounds cover all values of a type; bounds of floats do not cover NaN."""
    return not (pa.types.is_nested(data_type) or pa.types.is_floating(data_type))


def _paths(file_slice: FileSlice) -> list[str]:
    base = [file_slice.base.path] if file_slice.base else []
    return base + [log.path for log in file_slice.logs]


def _select(items: Sequence[Any], mask: Sequence[bool] | Mask) -> list[Any]:
    return [item for item, is_left in zip(items, mask, strict=True) if is_left]
