"""Protocols of the indexes that a scan planner uses before it opens files.

``lakemark.metadata`` implements these protocols. Every index is optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from lakemark.model.file_slice import FileSlice


def statistics_schema(of_what: str, data_type: pa.DataType) -> pa.Schema:
    """Return the schema of statistics about one column of a table.

    Args:
        of_what: name of the first column, which contains the name of the file or partition.
        data_type: type of the table's column.
    """
    return pa.schema(
        [
            pa.field(of_what, pa.string(), nullable=False),
            pa.field("min", data_type),
            pa.field("max", data_type),
            pa.field("null_count", pa.int64()),
            pa.field("value_count", pa.int64()),
        ]
    )


class FileStatistics(Protocol):
    """Column statistics by file; a file may lack statistics.

    Such a file has no row in the result. ``min`` and ``max`` are bounds, not necessarily values
    that occur; both are null if the file has no value. An unknown count is null.
    """

    def by_path(self, column: str, data_type: pa.DataType, partitions: Sequence[str]) -> pa.Table:
        """Return the statistics of one column, for the files that have any.

        Args:
            column: name of the column; for a field inside a struct, the path with dots.
            data_type: current type of the column. Statistics of values of an older type are
                included if the change of type keeps the order of the values.
            partitions: paths of the partitions to search.

        Returns:
            A table with the schema ``statistics_schema("path", data_type)``, and one row for each
            file. Paths are relative to the table's root, because files of two partitions may have
            the same name.
        """
        ...


class GroupIndex(Protocol):
    """An index that names the file groups with some record keys or values, in the latest state."""

    def select(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Return the slices, among the latest ones, that may contain such a key or value.

        Raises:
            SnapshotChanged: the index was changed in the meantime; plan the query again.
            CorruptData: the index is damaged.
        """
        ...

    def select_files(self, files: pa.Table) -> pa.Table:
        """Return the files of the file groups that may contain such a key or value.

        Errors as for ``select``.

        Args:
            files: all files of some file groups, with the schema ``FILE_NAMES``.
        """
        ...


class KeySearch(Protocol):
    """Selects the file slices that may contain record keys."""

    def select(self, slices: Sequence[FileSlice], record_keys: pa.Array) -> Sequence[FileSlice]:
        """Return the slices that may contain a row with one of the keys.

        Args:
            slices: some file slices.
            record_keys: the keys, as text, none of which is null.

        Raises:
            SnapshotChanged: a file or an index was changed in the meantime; plan the query again.
            CorruptData: a file or an index is damaged.
        """
        ...


class SliceSearch(Protocol):
    """Selects the file slices that may contain the values of a query."""

    def select(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Return the slices that may contain a row with the values.

        Raises:
            SnapshotChanged: an index was changed in the meantime; plan the query again.
            CorruptData: an index is damaged.
        """
        ...
