"""Creates the keys of the metadata table's records about columns, partitions and files.

    column_stats      column, partition, file
    partition_stats   column, partition
    bloom_filters     partition, file

A key is the concatenation of the hashes of these names. Each hash is big-endian and written in
Base64. The hash of a column or partition is the xxHash64 of its name in UTF-8, with the seed
0xDABADABA (sign extended). The hash of a file is the MD5 of its name. In a table without
partitions, the partition is ``.``. Source: ``HashID``, ``ColumnIndexID``, ``PartitionIndexID``,
``FileIndexID`` and ``HoodieMetadataPayload`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

from xxhash import xxh64_digest

#: 0xDABADABA as a Java long, which is negative; xxhash takes the seed modulo 2**64.
_SEED = -625288518

#: The partition path of a table without partitions, as the metadata table writes it.
NON_PARTITIONED = "."

#: Length in bytes of the key of a column's statistics in one file.
FILE_KEY_BYTES = 12 + 12 + 24
#: The start and the end of the partition's hash in such a key.
PARTITION_ID = (12, 24)


def column_stats_key(column: str, partition_path: str, file_name: str) -> bytes:
    """Return the key of a column's statistics in one file."""
    return column_prefix(column, partition_path) + _file_id(file_name)


def partition_stats_key(column: str, partition_path: str, prefix: str | None = None) -> bytes:
    """Return the key of a column's statistics in one partition.

    Args:
        column: name of the column.
        partition_path: path of the partition.
        prefix: the text between them in an expression index; None in ``partition_stats``.
    """
    return column_prefix(column, prefix, partition_path)


def column_prefix(column: str, *paths: str | None) -> bytes:
    """Return the prefix of a column's keys: the hash of the column, then the hash of each path.

    Paths that are None are skipped.
    """
    named = (hash_id(stored_path(path)) for path in paths if path is not None)
    return hash_id(column) + b"".join(named)


def partition_id(partition_path: str) -> str:
    """Return the hash of a partition, as keys contain it."""
    return hash_id(stored_path(partition_path)).decode()


def bloom_filter_key(partition_path: str, file_name: str) -> bytes:
    """Return the key of a file's bloom filter."""
    return hash_id(stored_path(partition_path)) + _file_id(file_name)


def stored_path(partition_path: str) -> str:
    """Return a partition path as the metadata table writes it."""
    return partition_path or NON_PARTITIONED


def partition_path_of(stored: str) -> str:
    """Return the partition path for a path that the metadata table has written."""
    return "" if stored == NON_PARTITIONED else stored


@lru_cache(maxsize=4096)
def hash_id(text: str) -> bytes:
    """Return the hash of a column or a partition, as keys contain it."""
    return base64.b64encode(xxh64_digest(text.encode(), _SEED))


@lru_cache(maxsize=4096)
def _file_id(file_name: str) -> bytes:
    return base64.b64encode(hashlib.md5(file_name.encode(), usedforsecurity=False).digest())
