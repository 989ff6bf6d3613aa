"""Skips the file groups of queries by value, in a table with a secondary index.

The secondary index has the record keys of each value of a column, and the record index has the file
group of each record key. So a query that demands values of the column, such as ``note = 'a'``,
reads only the file groups of these keys.

Source: ``SecondaryIndexSupport`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakemark.index.bucket import may_have_bucket_index
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.record_index import RecordIndex
from lakemark.metadata.secondary_index import SecondaryIndex
from lakemark.model.file_slice import FileGroupId, FileSlice
from lakemark.storage.storage import Storage

#: If more record keys have the values, no slice is skipped: reading the slices is then cheaper than
#: locating the keys.
_MAX_LOCATED_KEYS = 100_000


@dataclass(frozen=True)
class IndexedValues:
    """Selects the file slices that may contain some values; implements ``ValueLocations``.

    Attributes:
        storage: the table's root.
        metadata: the metadata table, which has a record index.
        texts: for each partition with a secondary index, the texts of the demanded values. None is
            a null.
        is_merge_on_read: whether the table is merge-on-read.
    """

    storage: Storage
    metadata: MetadataTable
    texts: Mapping[str, frozenset[str | None]]
    is_merge_on_read: bool

    def select(self, slices: Sequence[FileSlice]) -> Sequence[FileSlice]:
        """See ``ValueLocations.select``.

        In a merge-on-read table with a bucket index, the record index of Apache Hudi 1.2.0 lacks
        keys, so no slice is skipped.
        """
        file_ids = (one.group.file_id for one in slices)
        if self.is_merge_on_read and may_have_bucket_index(self.storage, file_ids):
            return slices
        groups = self._groups
        return slices if groups is None else [one for one in slices if one.group in groups]

    @cached_property
    def _groups(self) -> frozenset[FileGroupId] | None:
        """The file groups with the values; None if the values are too common."""
        found = [
            self._locate(SecondaryIndex(self.metadata, partition), texts)
            for partition, texts in self.texts.items()
        ]
        known = [groups for groups in found if groups is not None]
        return frozenset.intersection(*known) if known else None

    def _locate(
        self, index: SecondaryIndex, texts: Iterable[str | None]
    ) -> frozenset[FileGroupId] | None:
        record_keys = index.lookup(texts).column("record_key").combine_chunks()
        if len(record_keys) > _MAX_LOCATED_KEYS:
            return None
        located = RecordIndex(self.metadata).lookup(record_keys)
        paths, file_ids = (
            located.column(name).to_pylist() for name in ("partition_path", "file_id")
        )
        return frozenset(map(FileGroupId, paths, file_ids))


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
