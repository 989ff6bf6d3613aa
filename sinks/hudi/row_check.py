"""Whether the rows of a table are where a pipeline would put them, under the keys it would make.

``lakemark.index.stored_rows`` does the work. It is done at every start, even if all commits of the
timeline are ours: commits of other writers may have been archived since. It reads a few rows of at
most eight file groups, so it takes the same time for a table of any size.
"""

from __future__ import annotations

from lakemark.errors import InvalidConfig, Unsupported
from lakemark.index.bucket import BucketIndex
from lakemark.index.stored_rows import StoredRows, check_rows, detect_key_generator, fits_index
from lakemark.keygen.key_generator import KeyGenerator
from lakemark.table import Table

#: Files of bucket indexes that have more than one bucket count.
_HASHING_FOLDER = ".hoodie/.bucket_index"


def check_stored_rows(table: Table, index: BucketIndex) -> KeyGenerator:
    """Pass if the table was written with these keys, partition paths and buckets.

    Returns:
        The key generator that continues the table.

    Raises:
        Unsupported: the table has a key generator that is not implemented here, or its rows do not
            hold the fields of their key.
        InvalidConfig: the rows have other keys, partition paths or buckets, or keys of two
            encodings; or another index made their file groups.
        HudiError: a file cannot be read.
    """
    sample, place = table.stored_rows(), table.location.url
    generator = detect_key_generator(table.properties, sample, place)
    _check_count(table, sample, index)
    check_rows(sample, generator, index, place)
    return generator


def check_hashing(table: Table) -> None:
    """Pass if all partitions have one bucket count, which never changes.

    Raises:
        Unsupported: Apache Hudi stored other counts (partition-level buckets), or ranges of hashes
            (consistent hashing); source: ``HoodieTableMetaClient.getBucketIndexMetaPath``.
    """
    stored = next(iter(table.storage.list_tree(_HASHING_FOLDER)), None)
    if stored is not None:
        message = (
            f"table {table.location.url} has a bucket index whose buckets differ by partition or "
            f"change over time, as {stored.path} shows (hoodie.bucket.index.partition.expressions, "
            "or the engine CONSISTENT_HASHING); it is not written here; write to another path, or "
            "with Apache Hudi"
        )
        raise Unsupported(message)


def _check_count(table: Table, sample: list[StoredRows], index: BucketIndex) -> None:
    """Commits of ours record the bucket count, which a few rows may not disclose."""
    count = table.bucket_count
    if count is None or count == index.bucket_count:
        return
    recorded = BucketIndex(count, index.key_fields, index.hash_fields)
    if fits_index(sample, recorded):
        message = (
            f"table {table.location.url} has {count} buckets in a partition, which does not fit "
            f"the {index.bucket_count} buckets of the pipeline; set table.buckets to {count}"
        )
        raise InvalidConfig(message)
