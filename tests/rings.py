"""Helpers for tests of tables with consistent hashing."""

from __future__ import annotations

from dataclasses import replace

from lakemark.index.ring_files import load_ring
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write_context import avro_schema_text, write_context
from lakemark.services.resize_plan import ResizePolicy
from lakemark.storage import Storage
from lakemark.timeline.locks.table_lock import TableLock
from lakemark.transaction.multi_writer import MultiWriter
from tests.tables import SCHEMA, writer

#: The number of buckets that a partition has at first.
FIRST_BUCKETS = 2

#: Splits every bucket into two, and merges all buckets of a partition down to ``FIRST_BUCKETS``.
SPLIT_ALL = ResizePolicy(split_above_bytes=1, merge_below_bytes=0, max_parts=2)
MERGE_ALL = ResizePolicy(split_above_bytes=1 << 40, merge_below_bytes=1 << 30)


def ring_writer(
    storage: Storage,
    *,
    lock: TableLock | None = None,
    multi_writer: MultiWriter | None = None,
) -> TableWriter:
    """Open a writer of a table with consistent hashing."""
    to = writer(storage, lock=lock, multi_writer=multi_writer)
    to.settings = replace(to.settings, index=None, first_ring_count=FIRST_BUCKETS)
    return to


def assert_in_buckets(table: OpenTable) -> None:
    """Check that each live row is in the file group that the newest ring gives, and nowhere else.

    Also check that every file group is a bucket of a ring, and that no key occurs twice.
    """
    text = avro_schema_text(table, SCHEMA)
    reader = write_context(table, "0", SCHEMA, text).reader
    seen: set[tuple[str, str]] = set()
    for one in table.view().latest_slices():
        path, file_id = one.group.partition_path, one.group.file_id
        ring = load_ring(table.storage, path, table.timeline)
        assert ring is not None, path
        assert file_id in ring.file_ids, one.group
        for rows in reader.read(one, [RECORD_KEY]):
            found = ring.buckets_of_keys(rows.column(RECORD_KEY), ("id",)).tolist()
            assert {ring.file_ids[number] for number in found} == {file_id}
            named = {(path, key) for key in rows.column(RECORD_KEY).to_pylist()}
            assert seen.isdisjoint(named), "a key occurs twice"
            seen |= named
