"""Skips the file groups of queries by key, in a table with a bucket index.

The hash of a record key decides the bucket of the record, so the file groups of all other buckets
cannot contain it. The keys of a query are those that it names, or the key that its condition
demands: ``id = 'a'``, or an equality for each field of the record key. A condition with ``or`` or
``in`` demands no single key.

Source: ``BucketIndexSupport`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakemark.errors import InvalidConfig
from lakemark.index.bucket import BucketIndex, bucket_of, groups_by_bucket
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.file_slice import FileSlice
from lakemark.read.demanded_values import equalities


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Selects file slices by the hashes of record keys; implements ``KeyHashes``.

    Attributes:
        index: the bucket index that assigned all records to their file groups.
        generator: the settings of record keys; None if lakemark does not know how record keys are
            computed from columns, so that conditions demand no key.
        columns: the columns of the table.
    """

    index: BucketIndex
    generator: KeyGeneratorConfig | None
    columns: pa.Schema

    def select(
        self,
        slices: Sequence[FileSlice],
        condition: pc.Expression | None,
        record_keys: pa.Array | None,
    ) -> Sequence[FileSlice]:
        """See ``KeyHashes.select``."""
        wanted = self._demanded_key(condition) if record_keys is None else record_keys.drop_null()
        if wanted is None or not self._fits(slices):
            return slices
        assert self.index.partitions is None, "no commit records one bucket count"
        buckets = set(self.index.bucket_ids(wanted).tolist())
        return [one for one in slices if bucket_of(one.group.file_id) in buckets]

    def _fits(self, slices: Sequence[FileSlice]) -> bool:
        """Return whether the file groups are those of this index."""
        try:
            groups_by_bucket((one.group for one in slices), self.index.count_in)
        except InvalidConfig:  # another writer created some of them
            return False
        return True

    def _demanded_key(self, condition: pc.Expression | None) -> pa.Array | None:
        """Return the only record key of rows that meet the condition; None if it is not known."""
        if condition is None or self.generator is None or self.generator.has_lone_complex_key:
            return None
        values = equalities(condition)
        row: dict[str, pa.Array] = {}
        for name in self.generator.record_key_fields:
            value = values.get(name)
            if name not in self.columns.names or not _has_one_text(self.columns, name, value):
                return None
            row[name] = pa.array([value])
        key = KeyGenerator(self.generator).record_keys(pa.table(row)).drop_null()
        return key if len(key) else None


def _has_one_text(columns: pa.Schema, name: str, value: object) -> bool:
    """Return whether all values that equal this one have the same text in a record key.

    This holds for texts and integers. But 1.0 equals 1, and 1.50 equals 1.5.
    """
    kind = columns.field(name).type
    if pa.types.is_integer(kind):
        return type(value) is int
    return isinstance(value, str) and (pa.types.is_string(kind) or pa.types.is_large_string(kind))
