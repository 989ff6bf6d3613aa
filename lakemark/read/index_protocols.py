"""Indexes that a scan planner uses before it opens files, as protocols.

``lakemark.metadata`` implements them. Every index is optional.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from lakemark.model.file_slice import FileGroupId, FileSlice


def statistics_schema(of_what: str, data_type: pa.DataType) -> pa.Schema:
    """Return the columns of the statistics of one column of the table.

    Args:
        of_what: the first column, which names the file or partition of the statistics.
        data_type: the column's type.
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
    """Statistics by file, from a source that may not have all of them.

    A file without a row has no statistics. ``min`` and ``max`` are bounds, not necessarily values
    that occur; both are null if the file has no value. An unknown count is null.
    """

    def of_column(
        self, column: str, data_type: pa.DataType, partitions: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the statistics of one column, for the files that have any.

        Args:
            column: its name; for a field inside a struct the path with dots.
            data_type: its current type. Statistics of values of an older type are included if the
                change of type keeps their order.
            partitions: paths of the partitions to search; all when None.

        Returns:
            ``statistics_schema("file_name", data_type)``, a row for each file.
        """
        ...


class KeyLocations(Protocol):
    """Locates the file groups of records in the table's latest state."""

    def lookup(self, record_keys: pa.Array) -> pa.Table:
        """Locations of those keys that the table contains, in no order.

        Args:
            record_keys: strings, in any order; nulls match nothing.

        Returns:
            Columns ``record_key``, ``partition_path`` and ``file_id``, and possibly others.
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
