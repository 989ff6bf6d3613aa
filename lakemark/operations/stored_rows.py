"""Samples stored rows of an open table, and finds repeated record keys."""

from __future__ import annotations

from collections.abc import Sequence

from lakemark.config.merge_settings import merge_settings
from lakemark.index.partition_buckets import load_partition_buckets
from lakemark.index.repeated_keys import RepeatedKeys, find_repeated_keys
from lakemark.index.stored_rows import StoredRows, sample_rows
from lakemark.merge.record_merger import commit_time_merger
from lakemark.model.file_slice import FileSlice
from lakemark.model.meta_columns import RECORD_KEY, with_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.read.virtual_keys import VirtualKeys


def stored_rows(table: OpenTable, slices: Sequence[FileSlice] | None = None) -> list[StoredRows]:
    """Return a few rows of a few file groups, as their writers stored them.

    The list is empty for an empty table. In a table without meta columns, the record key of a row
    is computed as readers compute it, and the partition path is that of the file group.

    Args:
        table: the open table.
        slices: the slices of the file groups to choose from; None for all file groups.

    Raises:
        Unsupported: rows lack the fields of their key or partition path.
        HudiError: a file cannot be read.
    """
    schema = table.schema
    if schema is None:
        return []
    view = table.view()
    # These rows are not merged, so the choice of the merger does not matter.
    reader = FileGroupReader(
        table.storage,
        with_meta_columns(schema),
        commit_time_merger(),
        view.visible_instants,
        merge_settings(table.properties).delete_marker,
        virtual_keys=VirtualKeys.of(table.properties),
    )
    among = view.latest_slices() if slices is None else slices
    return sample_rows(reader, among, table.properties, table.location.url)


def repeated_keys(table: OpenTable) -> RepeatedKeys:
    """Find the record keys that exist in more than one partition. This reads all record keys.

    Raises:
        SnapshotChanged: another writer changed the table meanwhile; call again.
        InvalidConfig, CorruptData, Unsupported: the table cannot be read.
    """
    table.refresh()
    count = table.bucket_count
    if load_partition_buckets(table.storage, table.timeline) is not None:
        count = None  # a key may have different buckets in two partitions
    if table.properties.populates_meta_columns:
        scan = table.scan(columns=[RECORD_KEY] if table.schema else None)
        return find_repeated_keys(scan, count)
    record_keys = VirtualKeys.of(table.properties)
    return find_repeated_keys(table.scan(), count, record_keys)
