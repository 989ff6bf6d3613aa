"""The file group of a record, from an index of the table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import pyarrow as pa

from lakemark.model.file_slice import FileGroupId, FileSlice


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


def holding(
    slices: Iterable[FileSlice], locations: KeyLocations, record_keys: pa.Array
) -> list[FileSlice]:
    """The slices that contain one of the keys."""
    found = locations.lookup(record_keys)
    places = zip(
        found.column("partition_path").to_pylist(), found.column("file_id").to_pylist(), strict=True
    )
    groups = {FileGroupId(partition, file_id) for partition, file_id in places}
    return [file_slice for file_slice in slices if file_slice.group in groups]
