"""Where Apache Hudi stores record keys: buckets, hash rings, shards of indexes, keys of indexes.

This module runs in the process of Apache Hudi, and calls its classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict


class KeyPlaces(TypedDict):
    """The places of some record keys, in their order.

    Attributes:
        buckets: the bucket of each key.
        ring: the first hash ring of the partition, as Apache Hudi stores it.
        ring_buckets: the prefix of the file id of each key in this ring.
        shards: the number of the file group of each key in a record index.
        index_keys: the key of each record key in a secondary index, of which it is also the value.
    """

    buckets: list[int]
    ring: str
    ring_buckets: list[str]
    shards: list[int]
    index_keys: list[str]


def place_keys(
    jvm: Any, record_keys: Sequence[str], fields: Sequence[str], partition_path: str, count: int
) -> KeyPlaces:
    """Return where Apache Hudi stores record keys.

    Args:
        jvm: the JVM of Apache Hudi.
        record_keys: the keys.
        fields: the fields of the record key, which are all hashed.
        partition_path: the partition of the keys.
        count: the number of buckets, and of the file groups of an index.
    """
    hudi = jvm.org.apache.hudi
    bucket_of = hudi.index.bucket.BucketIdentifier.getBucketId
    ring = hudi.common.model.HoodieConsistentHashingMetadata(partition_path, count)
    ring_of = hudi.index.bucket.ConsistentBucketIdentifier(ring)
    listed = jvm.java.util.ArrayList()
    for name in fields:
        listed.add(name)
    new_key, metadata = hudi.common.model.HoodieKey, hudi.metadata
    shard_of = metadata.HoodieTableMetadataUtil.mapRecordKeyToFileGroupIndex
    index_key_of = metadata.SecondaryIndexKeyUtils.constructSecondaryIndexKey
    return {
        "buckets": [bucket_of(key, ",".join(fields), count) for key in record_keys],
        "ring": bytes(ring.toBytes()).decode(),
        "ring_buckets": [
            ring_of.getBucket(new_key(key, partition_path), listed).getFileIdPrefix()
            for key in record_keys
        ],
        "shards": [shard_of(key, count) for key in record_keys],
        "index_keys": [index_key_of(key, key) for key in record_keys],
    }
