"""Skips the file groups of queries that an index of the metadata table does not name.

The record index has the file group of each record key. So a query for record keys, such as ``id in
('a', 'b')``, reads only the file groups of these keys. A partitioned record index is searched in
each partition of the query. A secondary index has the record keys of
each value of a column. So a query that demands values of the column, such as ``note = 'a'``, reads
only the file groups of their record keys.

Source: ``RecordLevelIndexSupport`` and ``SecondaryIndexSupport`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.index.bucket import HASHING_FOLDER, may_be_buckets
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.secondary_index import SecondaryIndex
from lakemark.model.file_names import parse_file_ids
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.storage.storage import Storage

#: If more record keys have the values, no slice is skipped: reading the slices is then cheaper than
#: locating the keys.
_MAX_LOCATED_KEYS = 100_000

#: Separates a partition path from a file id; neither contains this character.
_SEPARATOR = "\0"


@dataclass(frozen=True)
class IndexedGroups:
    """Selects the file groups that an index names; implements ``GroupIndex``.

    In a merge-on-read table with a bucket index, the record index of Apache Hudi 1.2.0 lacks keys,
    new keys included, because it does not index keys that are written to logs. So no file group of
    such a table is skipped.

    Attributes:
        storage: the table's root.
        is_merge_on_read: whether the table is merge-on-read.
        find_groups: returns the file groups with the keys or values in some partitions, and perhaps
            those in other partitions; None if they are too many or unknown.
    """

    storage: Storage
    is_merge_on_read: bool
    find_groups: Callable[[frozenset[str]], frozenset[FileGroupId] | None]
    _found: dict[frozenset[str], frozenset[FileGroupId] | None] = field(
        default_factory=dict, init=False, repr=False
    )

    def select(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """See ``GroupIndex.select``."""
        if self._may_lack_keys(one.group.file_id for one in slices):
            return slices
        groups = self._groups_in(one.group.partition_path for one in slices)
        return slices if groups is None else [one for one in slices if one.group in groups]

    def select_files(self, files: pa.Table) -> pa.Table:
        """See ``GroupIndex.select_files``."""
        file_ids = parse_file_ids(files.column("name"))
        if self._may_lack_keys(pc.unique(file_ids).to_pylist()):
            return files
        paths = files.column("partition_path")
        groups = self._groups_in(pc.unique(paths).to_pylist())
        if groups is None:
            return files
        found = [f"{one.partition_path}{_SEPARATOR}{one.file_id}" for one in groups]
        names = pc.binary_join_element_wise(paths, file_ids, _SEPARATOR)
        return files.filter(pc.is_in(names, value_set=pa.array(found, pa.string())))

    def _may_lack_keys(self, file_ids: Iterable[str]) -> bool:
        return self.is_merge_on_read and (may_be_buckets(file_ids) or self._has_bucket_files)

    @cached_property
    def _has_bucket_files(self) -> bool:
        """Whether the table has files of a bucket index with more than one bucket count."""
        return bool(self.storage.list_tree(HASHING_FOLDER))

    def _groups_in(self, paths: Iterable[str]) -> frozenset[FileGroupId] | None:
        """Return the file groups in some partitions; groups of more partitions are kept."""
        wanted = frozenset(paths)
        known = next((one for one in self._found if wanted <= one), None)
        if known is None:
            known = wanted
            self._found[wanted] = self.find_groups(wanted)
        return self._found[known]


def groups_of_keys(
    metadata: MetadataTable, record_keys: pa.Array, partition_paths: Collection[str]
) -> frozenset[FileGroupId] | None:
    """Return the file groups in which the record index locates these keys.

    The result is None if a partitioned index has no file groups for one of the partitions. The
    index was then damaged, or dropped since the table was opened.

    Args:
        metadata: the metadata table, which has a record index.
        record_keys: the keys.
        partition_paths: the partitions to search, which have rows. A record index of the whole
            table is searched for all partitions at once.

    Raises:
        SnapshotChanged: the index was changed in the meantime; plan the query again.
        CorruptData: the index is damaged.
    """
    index = RecordIndex(metadata)
    if index.is_partitioned and not index.series.keys() >= set(partition_paths):
        return None
    located = index.lookup(record_keys, partition_paths)
    paths, file_ids = (located.column(name).to_pylist() for name in ("partition_path", "file_id"))
    return frozenset(map(FileGroupId, paths, file_ids))


def groups_of_values(
    metadata: MetadataTable,
    texts: Mapping[str, frozenset[str | None]],
    partition_paths: Collection[str],
) -> frozenset[FileGroupId] | None:
    """Return the file groups with some values of each column; None if the values are too common.

    Args:
        metadata: the metadata table, which has a record index of the whole table.
        texts: for each partition with a secondary index, the texts of the demanded values. None is
            a null.
        partition_paths: as for ``groups_of_keys``.

    Raises:
        SnapshotChanged, CorruptData: as for ``groups_of_keys``.
    """
    found = [
        _groups_of(metadata, partition, some, partition_paths) for partition, some in texts.items()
    ]
    known = [groups for groups in found if groups is not None]
    return frozenset.intersection(*known) if known else None


def _groups_of(
    metadata: MetadataTable,
    partition: str,
    texts: Iterable[str | None],
    partition_paths: Collection[str],
) -> frozenset[FileGroupId] | None:
    found = SecondaryIndex(metadata, partition).lookup(texts)
    record_keys = found.column("record_key").combine_chunks()
    if len(record_keys) > _MAX_LOCATED_KEYS:
        return None
    return groups_of_keys(metadata, record_keys, partition_paths)


def texts_of(values: Collection[object], kind: pa.DataType) -> frozenset[str | None] | None:
    """Return the texts of values in a secondary index; None if a value has no unambiguous text.

    Args:
        values: values that a condition demands.
        kind: type of the column, for which ``has_unambiguous_text`` is true.
    """
    wanted: type = int if pa.types.is_integer(kind) else str
    known = [value for value in values if value is None or type(value) is wanted]
    if len(known) < len(values):
        return None
    return frozenset(None if value is None else str(value) for value in known)
