"""Protocols of the indexes that a scan planner uses before it opens files.

``lakemark.metadata`` implements these protocols. Every index is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.model.file_slice import FileGroupId, FileSlice


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


class KeyLocations(Protocol):
    """Locates the file groups of records in the table's latest state."""

    def lookup(self, record_keys: pa.Array) -> pa.Table:
        """Return the locations of those keys that the table contains, in no particular order.

        Args:
            record_keys: strings, in any order; nulls match nothing.

        Returns:
            A table with the columns ``record_key``, ``partition_path`` and ``file_id``, and
            possibly others.
        """
        ...


class KeyHashes(Protocol):
    """Selects the file slices that may contain record keys, by the hashes of the keys."""

    def select(
        self,
        slices: Sequence[FileSlice],
        condition: pc.Expression | None,
        record_keys: pa.Array | None,
    ) -> Sequence[FileSlice]:
        """Return the slices that may contain a row of the query.

        Args:
            slices: the latest slices of some file groups.
            condition: the condition on the rows, if there is one.
            record_keys: the keys of the rows, as text; None for any key.
        """
        ...


class ValueLocations(Protocol):
    """Selects the file slices that may contain the values that a query demands."""

    def select(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """Return the slices, among the latest ones, that may contain a row with such a value.

        Raises:
            SnapshotChanged: an index was changed in the meantime; plan the query again.
            CorruptData: an index is damaged.
        """
        ...


def find_slices(
    slices: Iterable[FileSlice], locations: KeyLocations, record_keys: pa.Array
) -> list[FileSlice]:
    """Return the slices that contain one of the keys."""
    found = locations.lookup(record_keys)
    paths, file_ids = (found.column(name).to_pylist() for name in ("partition_path", "file_id"))
    groups = {FileGroupId(path, file_id) for path, file_id in zip(paths, file_ids, strict=True)}
    return [file_slice for file_slice in slices if file_slice.group in groups]
