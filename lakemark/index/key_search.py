"""Finds record keys that have a live row in a file group, now or after further changes.

The key range and the Bloom filter of the base file, which are in its footer and perhaps in the
metadata table (``stored_filters``), show that some keys are not in the base file. If such a key is
in no log file either, it is excluded from the search. Rows are merged only for the remaining keys,
and only the columns that this merge needs are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.bloom import (
    BLOOM_FILTER,
    MAX_RECORD_KEY,
    MIN_RECORD_KEY,
    SIMPLE,
    TYPE_CODE,
    BloomFilter,
)
from lakemark.index.stored_filters import StoredFilters, Wanted
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.read.base_file import read_footer
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.storage.storage import Storage

#: The slice of a file group that does not exist yet.
_NEW_GROUP = FileSlice(FileGroupId("", ""), "")


@dataclass(frozen=True, slots=True)
class SearchedGroup:
    """A file group that is searched for keys.

    Attributes:
        readable: slice of the group that queries read.
        current: newest slice of the group, to which the next commit appends. It differs from
            ``readable`` only while a compaction is pending. Then it has the logs that were written
            since the compaction was scheduled.
    """

    readable: FileSlice
    current: FileSlice

    @property
    def partition_path(self) -> str:
        """The partition path of the group."""
        return self.readable.group.partition_path

    def with_logs(self, logs: Sequence[LogFile]) -> SearchedGroup:
        """Return the group with further logs, oldest first, newer than the logs that it has."""
        readable, current = (
            replace(one, logs=(*one.logs, *logs)) for one in (self.readable, self.current)
        )
        return SearchedGroup(readable, current)

    @property
    def to_rewrite(self) -> FileSlice | None:
        """The files that a pending compaction rewrites; None if no compaction is pending."""
        if self.current == self.readable:
            return None
        newer = set(self.current.logs)
        return replace(
            self.readable, logs=tuple(log for log in self.readable.logs if log not in newer)
        )


def find_live_keys(
    reader: FileGroupReader,
    group: SearchedGroup,
    record_keys: pa.Array,
    in_base: Wanted | None = None,
) -> pa.Array:
    """Return the distinct keys that have a live row in the group.

    A row is live if queries read it now, or will read it once a pending compaction completes. The
    second set of rows may be larger, because a compaction drops deletes. An older event that lost
    to such a delete then becomes a row.

    Args:
        reader: reader of the table.
        group: the file group to search.
        record_keys: keys to look for: distinct strings, not null and not empty.
        in_base: the keys that the base file may contain (``narrow_keys``); None for any of them.

    Raises:
        SnapshotChanged: a file of the group was deleted.
        CorruptData: a file is damaged.
        Unsupported: a file has a kind that lakemark does not read.
    """
    may_be_in_base = in_base or Wanted(record_keys)
    wanted = _filter_by_files(reader, group.readable, record_keys, may_be_in_base)
    return _find_live(reader, group, wanted, None) if len(wanted) else wanted


def find_keys_live_after(
    reader: FileGroupReader, group: SearchedGroup | None, changes: pa.Table
) -> pa.Array:
    """Return the distinct keys of changes that have a live row once the changes are written.

    Args:
        reader: reader of the table.
        group: the file group that is changed; None for a new group.
        changes: the changes, already folded to one per key, as the writer writes them. They have
            the columns that a merge of the keys needs, and the kind of change.

    Raises:
        SnapshotChanged: a file of the group was deleted.
        CorruptData: a file is damaged.
        Unsupported: a file has a kind that lakemark does not read.
    """
    keys = pc.unique(changes.column(RECORD_KEY))
    if group is None:
        return _collect_keys([reader.merge_keys(_NEW_GROUP, keys, changes)])
    return _find_live(reader, group, keys, changes)


def rows_after_compaction(
    reader: FileGroupReader, group: SearchedGroup, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the rows that a pending compaction will add or change in some of the columns.

    A compaction drops deletes, so a row that lost to a delete may return, and a row that won
    against a later one may lose to it. Together with the rows that queries read now, these are the
    rows of ``merge_both_states``.

    Args:
        reader: reader of the table.
        group: the file group.
        columns: the columns of the rows, among them the record key.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: as for ``find_live_keys``.
    """
    if group.to_rewrite is None or not group.current.logs:
        return
    keys = _collect_keys([reader.read_changed_keys(group.current)])
    now, later = merge_both_states(reader, group, keys, columns)
    known = _rows_of(now, columns)
    for rows in later:
        yield rows.select(list(columns)).filter(_is_changed(rows, known))


def merge_both_states(
    reader: FileGroupReader, group: SearchedGroup, record_keys: pa.Array, columns: Sequence[str]
) -> list[Iterable[pa.Table]]:
    """Return the rows of some keys now and, if one is pending, after a compaction.

    The rows of both differ where merging is not associative, and where the compaction drops a
    delete.

    Args:
        reader: reader of the table.
        group: the file group.
        record_keys: the keys.
        columns: the columns that the rows must have; they may have more.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: as for ``find_live_keys``.
    """
    stored = reader.stored_rows(group.readable, record_keys, columns)
    now = reader.merge_rows(stored, group.readable.logs, record_keys, columns)
    if group.to_rewrite is None:
        return [now]
    compacted = reader.merge_rows(stored, group.to_rewrite.logs, record_keys, columns)
    return [now, reader.merge_rows(compacted, group.current.logs, record_keys, columns)]


def narrow_keys(
    reader: FileGroupReader,
    filters: StoredFilters | None,
    slices: Sequence[FileSlice],
    keys: pa.Array,
) -> list[Wanted]:
    """Return for each slice the keys that its base file may contain, without reading its footer.

    Args:
        reader: reader of the table.
        filters: key ranges and Bloom filters in the metadata table, if they are used.
        slices: the slices; without a base file, the keys are not narrowed.
        keys: distinct strings, not null and not empty.

    Raises:
        SnapshotChanged, CorruptData, Unsupported: as for ``StoredFilters.narrow``.
    """
    bases = [one.base for one in slices if one.base is not None]
    if filters is None or reader.virtual_keys is not None:
        return [Wanted(keys)] * len(slices)
    narrowed = iter(filters.narrow(bases, keys))
    return [Wanted(keys) if one.base is None else next(narrowed) for one in slices]


def exclude_absent_keys(storage: Storage, base: BaseFile, keys: pa.Array) -> pa.Array:
    """Return the keys that a base file may contain, as its key range and Bloom filter show.

    All keys are returned if the footer has neither, or if the file is not Parquet.

    Args:
        storage: the root of a table that stores record keys in its files.
        base: the base file.
        keys: distinct strings, not null.

    Raises:
        SnapshotChanged: the file no longer exists.
        CorruptData: the file is not a Parquet file.
    """
    if base.name.extension != "parquet":
        return keys
    stored = read_footer(storage, base).metadata or {}
    footer = {name.decode(): value.decode() for name, value in stored.items()}
    keys = _filter_by_range(keys, footer.get(MIN_RECORD_KEY), footer.get(MAX_RECORD_KEY))
    if BLOOM_FILTER not in footer or not len(keys):
        return keys
    type_code = footer.get(TYPE_CODE, SIMPLE)
    bloom = BloomFilter.parse(footer[BLOOM_FILTER], type_code, base.path)
    return keys.filter(pa.array(bloom.might_contain(keys)))


def search_footer(reader: FileGroupReader, base: BaseFile, wanted: Wanted) -> pa.Array:
    """Return which of the wanted keys a base file may contain; all in a table without meta columns.

    The footer is not read if it cannot exclude more keys. Errors are as for
    ``exclude_absent_keys``.
    """
    if wanted.is_filtered or not len(wanted.keys) or reader.virtual_keys is not None:
        return wanted.keys
    return exclude_absent_keys(reader.storage, base, wanted.keys)


def _find_live(
    reader: FileGroupReader, group: SearchedGroup, keys: pa.Array, changes: pa.Table | None
) -> pa.Array:
    found = [reader.merge_keys(group.readable, keys, changes)]
    if group.to_rewrite is not None:
        base = reader.merge_keys(group.to_rewrite, keys)
        found.append(reader.merge_keys(group.current, keys, changes, base))
    return _collect_keys(found)


def _rows_of(found: Iterable[pa.Table], columns: Sequence[str]) -> pa.Table | None:
    tables = [rows.select(list(columns)) for rows in found]
    return pa.concat_tables(tables) if tables else None


def _is_changed(rows: pa.Table, known: pa.Table | None) -> pa.ChunkedArray | pa.Array:
    """Return for each row whether its record key has no known row with the same values."""
    if known is None:
        return pa.repeat(pa.scalar(value=True), rows.num_rows)
    at = pc.index_in(rows.column(RECORD_KEY), value_set=known.column(RECORD_KEY))
    is_same = pc.is_valid(at)
    for name in known.column_names:
        value, other = rows.column(name), known.column(name).take(at)
        both_null = pc.and_(pc.is_null(value), pc.is_null(other))
        is_equal = pc.fill_null(pc.equal(value, other), fill_value=False)
        is_same = pc.and_(is_same, pc.or_(is_equal, both_null))
    return pc.invert(is_same)


def _collect_keys(found: Iterable[Iterable[pa.Table]]) -> pa.Array:
    columns = [rows.column(RECORD_KEY) for tables in found for rows in tables]
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pc.unique(pa.chunked_array(chunks, pa.string()))


def _filter_by_files(
    reader: FileGroupReader, file_slice: FileSlice, keys: pa.Array, wanted: Wanted
) -> pa.Array:
    base = file_slice.base
    in_base = keys.slice(0, 0) if base is None else search_footer(reader, base, wanted)
    if not file_slice.logs or len(in_base) == len(keys):
        return in_base
    changed = [rows.column(RECORD_KEY) for rows in reader.read_changed_keys(file_slice)]
    logged = pa.chunked_array([c for column in changed for c in column.chunks], pa.string())
    either = pa.chunked_array([*logged.chunks, in_base], pa.string())
    return keys.filter(pc.is_in(keys, value_set=either.combine_chunks()))


def _filter_by_range(keys: pa.Array, low: str | None, high: str | None) -> pa.Array:
    """Return the keys that are within the bounds, and those whose order is uncertain.

    Bounds are in Java's order of strings, which is the order of the bytes only for ASCII. So no key
    is dropped if a bound is not ASCII, and a key that is not ASCII is never dropped.
    """
    if low is None or high is None or not (low.isascii() and high.isascii()):
        return keys
    is_within = pc.and_(pc.greater_equal(keys, low), pc.less_equal(keys, high))
    return keys.filter(pc.or_(is_within, pc.invert(pc.string_is_ascii(keys))))
