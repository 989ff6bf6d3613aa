"""The indexes that a query of an open table uses to skip files.

The modules of the indexes are imported only when a query needs them, because the import takes
longer than a query of a small table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lakemark.config import keys
from lakemark.config.key_generators import find_implemented
from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig
from lakemark.metadata.index_definition import is_partitioned
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.meta_columns import RECORD_KEY
from lakemark.operations.cached_snapshot import CachedSnapshot
from lakemark.operations.recorded_facts import RecordedFacts
from lakemark.read.index_protocols import FileStatistics, GroupIndex, KeySearch, SliceSearch
from lakemark.read.path_columns import PathColumns
from lakemark.read.renamed_columns import LATEST_SCHEMA
from lakemark.read.scan_planner import may_change_in_compaction, may_make_values
from lakemark.storage import Storage

if TYPE_CHECKING:
    from lakemark.keygen.key_generator import KeyGeneratorConfig
    from lakemark.read.demanded_values import DemandedValues


@dataclass(frozen=True, slots=True)
class QueryIndexes:
    """The indexes of one table, each opened when a query asks for it.

    Attributes:
        storage: the storage of the table's root.
        snapshot: the cached properties, timeline and metadata table.
        facts: what the commits record.
    """

    storage: Storage
    snapshot: CachedSnapshot
    facts: RecordedFacts

    def statistics(self) -> FileStatistics | None:
        """Return the statistics of the columns in each file; None if the table has none."""
        from lakemark.metadata.column_stats.lookup import ColumnStatistics

        metadata = self.snapshot.metadata_with(PartitionKind.COLUMN_STATS)
        if metadata is None:
            return None
        fields = self._properties.record_key_fields
        return ColumnStatistics(metadata, keys=frozenset({RECORD_KEY, *fields}))

    def key_hashes(self) -> KeySearch | None:
        """Return the hashes of record keys; None if the newest commit records no bucket count.

        Only commits of lakemark record it. Another writer may have another bucket count.
        """
        newest = self.facts.newest_metadata()
        if newest is None or keys.BUCKET_COUNT not in newest.extra_metadata:
            return None
        from lakemark.index.bucket import BucketIndex
        from lakemark.index.hashed_keys import HashedKeys

        count, properties = int(newest.extra_metadata[keys.BUCKET_COUNT]), self._properties
        key_fields, hash_fields = properties.record_key_fields, self.facts.hash_fields
        return HashedKeys(BucketIndex(count, key_fields, hash_fields))

    def key_settings(self) -> KeyGeneratorConfig | None:
        """Return the settings of record keys; None if columns do not certainly determine the keys.

        They do not if lakemark lacks the key generator, if a custom merger may change a column, or
        if the values of a column come from folder names. With schema on read, a column may have had
        another type when its keys were written.
        """
        properties, newest = self._properties, self.facts.newest_metadata()
        path_columns = PathColumns.of(properties)
        if newest is None or newest.extra_metadata.get(LATEST_SCHEMA):
            return None
        if may_make_values(properties) or find_implemented(properties.key_generator) is None:
            return None
        if path_columns and set(path_columns.names).intersection(properties.record_key_fields):
            return None
        from lakemark.keygen.key_generator import KeyGeneratorConfig

        try:
            return KeyGeneratorConfig.of(properties, self.storage.location.url)
        except InvalidConfig:  # its fields do not fit the key generator
            return None

    def groups_of_keys(self, record_keys: pa.Array) -> GroupIndex | None:
        """Return the file groups of record keys, by the record index; None if the table has none.

        The metadata table is opened after the listing, so that both have the same timeline.
        """
        metadata = self.snapshot.metadata_with(PartitionKind.RECORD_INDEX)
        if metadata is None:
            return None
        from lakemark.index.indexed_groups import IndexedGroups, groups_of_keys

        find_groups = partial(groups_of_keys, metadata, record_keys)
        return IndexedGroups(self.storage, self._properties.is_merge_on_read, find_groups)

    def key_filters(self) -> KeySearch:
        """Return the key ranges and bloom filters, in the metadata table or in the files."""
        from lakemark.index.key_filters import KeyFilters

        return KeyFilters.of(self.storage, self.snapshot.metadata_with)

    def groups_of_values(self, values: DemandedValues, schema: pa.Schema) -> GroupIndex | None:
        """Return the file groups of demanded values, by secondary indexes.

        The result is None if no index has the values, or if a compaction, which does not update
        the indexes, may have changed some of them.
        """
        kind = PartitionKind.SECONDARY_INDEX
        if not self._has_index(kind):
            return None
        if may_change_in_compaction(self._properties):
            return None
        metadata = self.snapshot.metadata_with(kind)
        if metadata is None or not metadata.usable_partitions(PartitionKind.RECORD_INDEX):
            return None
        if is_partitioned(metadata.definitions):
            return None  # the writers of Apache Hudi may not have updated the secondary index
        from lakemark.index.indexed_groups import IndexedGroups, groups_of_values, texts_of
        from lakemark.metadata.secondary_columns import readable_columns

        usable = metadata.usable_partitions(kind)
        columns = readable_columns(usable, metadata.definitions, schema)
        texts = {
            column.partition: texts_of(values[column.name], schema.field(column.name).type)
            for column in columns
            if column.name in values
        }
        known = {partition: some for partition, some in texts.items() if some is not None}
        if not known:
            return None
        find_groups = partial(groups_of_values, metadata, known)
        return IndexedGroups(self.storage, self._properties.is_merge_on_read, find_groups)

    def filters_of_values(self, values: DemandedValues, schema: pa.Schema) -> SliceSearch | None:
        """Return the bloom filters that decide about demanded values; None if there are none."""
        kind = PartitionKind.EXPRESSION_INDEX
        if not self._has_index(kind):
            return None
        if may_make_values(self._properties):
            return None
        metadata = self.snapshot.metadata_with(kind)
        if metadata is None:
            return None
        from lakemark.index.value_filters import filters_of_values

        usable = frozenset(metadata.usable_partitions(kind))
        return filters_of_values(metadata, usable, values, schema, self.storage.location.url)

    def _has_index(self, kind: PartitionKind) -> bool:
        """Return whether the table has an index of this kind, before its metadata table is read."""
        indexes = self._properties.metadata_indexes
        return any(name.startswith(kind.stored_name) for name in indexes)

    @property
    def _properties(self) -> TableProperties:
        return self.snapshot.properties
