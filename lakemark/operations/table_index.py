"""Determines the index of a table: a bucket index, consistent hashing, or a lookup index.

No property of Apache Hudi names the index of a table. But the ids of its file groups do: the ids of
a bucket index begin with the number of the bucket, and other indexes use random UUIDs. If there is
no file group yet, the commits of lakemark name the index, and if there is no commit either, the
properties that lakemark wrote when it created the table.
One in forty UUIDs begins with eight digits, too, and almost always with a number that is larger
than any usual bucket count. A table with consistent hashing has files of hash rings
(``lakemark.index.hash_ring``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from lakemark.config.keys import (
    BUCKET_COUNT,
    CONSISTENT_HASHING,
    FIRST_BUCKETS,
    GLOBAL_LOOKUP,
    INDEX,
    LOOKUP,
)
from lakemark.config.merge_settings import merge_settings
from lakemark.config.table_properties import MergeMode
from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex, find_bucket
from lakemark.index.hash_ring import RINGS_FOLDER
from lakemark.index.partition_buckets import (
    PartitionBuckets,
    config_path,
    load_partition_buckets,
)
from lakemark.index.stored_rows import may_be_hashed
from lakemark.metadata.index_definition import is_partitioned, read_definitions
from lakemark.metadata.partition_kind import has_record_index
from lakemark.model.action import COMMITS
from lakemark.model.file_slice import FileSlice
from lakemark.operations.open_table import OpenTable
from lakemark.operations.stored_rows import stored_rows

#: Number of buckets in each partition of a new table; a pipeline has the same default.
DEFAULT_BUCKETS = 4

#: Larger numbers at the beginning of file ids are considered a part of a UUID.
_USUAL_BUCKETS = 100_000


class IndexKind(StrEnum):
    """The index of a new table.

    Attributes:
        BUCKET: the hash of a record key decides its file group.
        LOOKUP: a key may be in any file group of its partition, and each upsert looks its keys up.
            File groups have a target size, whatever the number of rows.
        CONSISTENT_HASHING: the hash of a record key decides its file group, and buckets are split
            when they become large, so that their number need not be known in advance.
    """

    BUCKET = "bucket"
    LOOKUP = "lookup"
    CONSISTENT_HASHING = "consistent_hashing"


@dataclass(frozen=True, slots=True)
class ChosenIndex:
    """The index of a new table.

    Attributes:
        kind: the kind of index.
        buckets: the number of buckets in each partition, which consistent hashing changes later;
            None for a lookup index.
    """

    kind: IndexKind = IndexKind.BUCKET
    buckets: int | None = DEFAULT_BUCKETS

    def to_properties(self) -> dict[str, str]:
        """Return the properties that record the index until the table has a commit."""
        if self.kind is IndexKind.CONSISTENT_HASHING:
            return {INDEX: CONSISTENT_HASHING, FIRST_BUCKETS: str(self.buckets)}
        return {INDEX: LOOKUP} if self.buckets is None else {BUCKET_COUNT: str(self.buckets)}

    def bucket_index(self, record_key: tuple[str, ...]) -> BucketIndex | None:
        """Return the bucket index for a record key; None if this is another kind of index."""
        if self.kind is not IndexKind.BUCKET or self.buckets is None:
            return None
        return BucketIndex(self.buckets, record_key)


def table_index(table: OpenTable, buckets: int | None) -> BucketIndex | None:
    """Return the bucket index of a table; None if it has another index.

    The keys are then placed by hash rings, or looked up in the files.

    Args:
        table: the open table.
        buckets: the number of buckets in each partition; None to use the number that a commit
            records.

    Raises:
        InvalidConfig: ``buckets`` is None and the table has a bucket index, but no commit records
            the number; or ``buckets`` differs from the recorded number, or the table has no bucket
            index; or the table has file groups of both kinds of indexes.
        HudiError: a file cannot be read.
    """
    if not has_bucket_index(table, buckets):
        if buckets is not None:
            raise not_bucketed(table, f"buckets={buckets}")
        return None
    partitions = load_partition_buckets(table.storage, table.timeline)
    if partitions is not None:
        return _index_of_partitions(table, partitions, buckets)
    recorded, url = table.bucket_count, table.location.url
    if recorded is not None and buckets not in (None, recorded):
        message = f"table {url} has {recorded} buckets in each partition, not {buckets}"
        raise InvalidConfig(message)
    count = recorded or buckets
    if count is None and table.timeline.completed(*COMMITS):
        message = (
            f"no commit of table {url} records the number of buckets; pass buckets=… with the "
            "number that the table was written with"
        )
        raise InvalidConfig(message)
    key_fields = table.properties.record_key_fields
    return BucketIndex(count or DEFAULT_BUCKETS, key_fields, table.hash_fields)


def _index_of_partitions(
    table: OpenTable, partitions: PartitionBuckets, buckets: int | None
) -> BucketIndex:
    """Return the index of a table whose partitions have different bucket counts.

    Raises:
        InvalidConfig: ``buckets`` is not the count of partitions without a rule.
    """
    if buckets not in (None, partitions.default):
        message = (
            f"partitions of table {table.location.url} have {partitions.default} buckets if no "
            f"rule of {config_path(partitions.instant)} gives them another number, not {buckets}; "
            "leave the number of buckets out"
        )
        raise InvalidConfig(message)
    key_fields = table.properties.record_key_fields
    return BucketIndex(partitions.default, key_fields, table.hash_fields, partitions)


class PartitionChange(StrEnum):
    """What a Python program does with a row whose record key exists in another partition.

    ``ALLOW`` writes the row, so that the key has two rows. ``MOVE`` moves the row of the key.
    """

    ALLOW = "allow"
    MOVE = "move"


def has_global_keys(table: OpenTable) -> bool:
    """Return whether an active commit of lakemark was written with keys of the whole table."""
    return _records_index(table, (GLOBAL_LOOKUP,))


def keeps_keys_global(table: OpenTable, rule: PartitionChange | None, *, looks_up: bool) -> bool:
    """Return whether a writer keeps record keys unique in the whole table.

    Args:
        table: the open table.
        rule: the rule that the user chose; None to continue as the table's commits record.
        looks_up: whether the table has a lookup index.

    Raises:
        InvalidConfig: the table has another index, or its commits have another rule; or its keys
            are automatic, and ``rule`` moves rows.
        Unsupported: the table's merger reads whole rows, which lakemark does not move.
    """
    url = table.location.url
    if rule is PartitionChange.MOVE and table.properties.has_automatic_keys:
        message = (
            f"table {url} has automatic record keys, so no row has the key of another one, and "
            "partition_change='move' has no meaning; leave it out"
        )
        raise InvalidConfig(message)
    if not looks_up:
        if rule is PartitionChange.MOVE:
            message = (
                f"table {url} has a bucket index, consistent hashing, or no rows yet, but "
                "partition_change='move' needs a lookup index; create a table with index='lookup', "
                "or leave it out if the partition of a key never changes"
            )
            raise InvalidConfig(message)
        return False
    recorded = has_global_keys(table)
    if recorded and rule is PartitionChange.ALLOW:
        message = (
            f"commits of table {url} keep each record key unique in the whole table ({INDEX}: "
            f"{GLOBAL_LOOKUP}), so partition_change='allow' would store keys twice; leave it out"
        )
        raise InvalidConfig(message)
    if recorded or rule is PartitionChange.MOVE:
        check_moves(table)
        return True
    return False


def check_moves(table: OpenTable) -> None:
    """Check that rows of the table can move to other partitions.

    Raises:
        Unsupported: the merger reads whole rows, or fills columns; or the keys of the record index
            are unique only within a partition.
    """
    if has_record_index(table.properties) and is_partitioned(read_definitions(table.storage)):
        raise has_partitioned_index(table)
    settings = merge_settings(table.properties)
    if settings.mode is MergeMode.CUSTOM or settings.partial_update:
        merger = "a custom merger" if settings.mode is MergeMode.CUSTOM else "partial updates"
        message = (
            f"table {table.location.url} has {merger}, with which lakemark does not move rows to "
            "other partitions (partition_change='move'); write with Apache Hudi"
        )
        raise Unsupported(message)


def has_partitioned_index(table: OpenTable) -> Unsupported:
    """Return the error of a writer with global keys, if the record index is partitioned.

    Two such writers could add a key to different partitions at the same time.
    """
    url = table.location.url
    return Unsupported(
        f"table {url} has a partitioned record index, which does not show whether another "
        "partition has a record key, so that rows do not move (partition_change='move'); drop the "
        f"index (lakemark table index drop {url} record_index --run), and create it again without "
        "partitioned"
    )


def has_bucket_index(table: OpenTable, buckets: int | None = None) -> bool:
    """Return whether a bucket index assigned the table's file groups, or none exist yet.

    Args:
        table: the open table.
        buckets: the number of buckets, if it is known.

    Raises:
        InvalidConfig: the table has file groups of both kinds of indexes.
        HudiError: a file cannot be read.
    """
    if table.properties.has_automatic_keys:
        return False  # the writers of Apache Hudi fail with a bucket index
    if table.bucket_count is not None:
        return True
    if load_partition_buckets(table.storage, table.timeline) is not None:
        return True
    if table.first_ring_count is not None:
        return False
    slices, usual = table.view().slices_for_writing(), max(buckets or 0, _USUAL_BUCKETS)
    if not slices and _records_index(table, (LOOKUP, GLOBAL_LOOKUP)):
        return False
    hashed = [one for one in slices if _is_hashed(one, usual)]
    if len(hashed) == len(slices):
        return True
    if hashed and may_be_hashed(stored_rows(table, hashed), table.properties.record_key_fields):
        other = next(one for one in slices if not _is_hashed(one, usual))
        message = (
            f"table {table.location.url} has file groups of a bucket index, such as "
            f"{hashed[0].group}, and of another index, such as {other.group}, so that some record "
            "keys may be stored twice; rewrite the table with Apache Hudi, or write to another path"
        )
        raise InvalidConfig(message)
    return False


def not_bucketed(table: OpenTable, setting: str) -> InvalidConfig:
    """Return the error of a setting that only tables with a bucket index have.

    Args:
        table: the open table, which has a lookup index or consistent hashing.
        setting: the setting, as the user wrote it.
    """
    if table.properties.has_automatic_keys:
        proof = "its automatic record keys show"
    elif table.first_ring_count is not None:
        proof = f"the files in {RINGS_FOLDER} show"
    elif slices := table.view().slices_for_writing():
        proof = f"the id of {slices[0].group} shows"
    else:
        proof = "its commits show"
    return InvalidConfig(
        f"table {table.location.url} has no fixed number of buckets, as {proof}, so {setting} has "
        "no meaning; remove it"
    )


def is_index_open(table: OpenTable) -> bool:
    """Return whether the table has no file group yet, and no commit that decides its index.

    Raises:
        HudiError: a file cannot be read.
    """
    is_decided = table.bucket_count is not None or table.first_ring_count is not None
    return not is_decided and not table.view().slices_for_writing()


def _records_index(table: OpenTable, names: Collection[str]) -> bool:
    """Return whether an active commit, or the table's creation, records one of these indexes."""
    if table.index_of_creation.get(INDEX) in names:
        return True
    commits = reversed(table.timeline.completed(*COMMITS))
    return any(table.store.read_commit(one).extra_metadata.get(INDEX) in names for one in commits)


def _is_hashed(file_slice: FileSlice, usual: int) -> bool:
    number = find_bucket(file_slice.group.file_id)
    return number is not None and number < usual
