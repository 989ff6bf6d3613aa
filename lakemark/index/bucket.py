"""The bucket index: the hash of a record key decides the file group of the record.

bucket   (List.hashCode(values of the hash fields) & 0x7FFFFFFF) % bucket_count
file id  <bucket, eight digits>-<rest of a UUID>-0; one file group per partition and bucket.
         Non-blocking writers use a fixed rest, so that they create the same file group

The values of the hash fields are parsed from the record key, as in Hudi. A key without a ``,`` or
without a ``:`` is one value. Any other key is split as ``f1:v1,f2:v2``. The table's properties do
not contain the bucket count, so all writers must be configured with the same count.

Source: ``BucketIdentifier``, ``KeyGenUtils.extractRecordKeysByFields`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakemark.codec.byte_strings import byte_strings
from lakemark.codec.java_hash import list_hash
from lakemark.errors import InvalidConfig
from lakemark.keygen.key_generator import EMPTY_PART, NULL_PART
from lakemark.model.file_slice import FileGroupId

#: Bucket numbers in file ids have eight digits, so a partition has at most this many buckets.
_MAX_BUCKET_COUNT = 100_000_000

#: The folder with the files of bucket indexes that have more than one bucket count.
HASHING_FOLDER = ".hoodie/.bucket_index"

_SHARED_FILE_ID = re.compile(r"[0-9]{8}-0000-0000-0000-[0-9]{12}-0")

_NAMESPACE = uuid.UUID("6a4c5ef7-92a9-5b0f-8f6c-1d1f4f0f3b52")


class PartitionCounts(Protocol):
    """The bucket counts of a table whose partitions have different counts."""

    def count_of(self, partition_path: str) -> int:
        """Return the number of buckets of a partition."""
        ...


@dataclass(frozen=True, slots=True)
class BucketIndex:
    """Maps record keys to buckets.

    Attributes:
        bucket_count: number of buckets, and so the largest number of file groups, per partition.
        key_fields: fields of the record key, in the order of the key.
        hash_fields: fields of the key that are hashed; if empty, all fields are hashed.
        partitions: the bucket counts of partitions; None if all have ``bucket_count`` buckets.
    """

    bucket_count: int
    key_fields: tuple[str, ...]
    hash_fields: tuple[str, ...] = ()
    partitions: PartitionCounts | None = None

    def __post_init__(self) -> None:
        if not 0 < self.bucket_count <= _MAX_BUCKET_COUNT:
            message = f"bucket count {self.bucket_count} is not between 1 and {_MAX_BUCKET_COUNT}"
            raise InvalidConfig(message)
        unknown = set(self.hash_fields) - set(self.key_fields)
        if unknown:
            message = f"hash fields {sorted(unknown)} are not among {list(self.key_fields)}"
            raise InvalidConfig(message)

    def bucket_ids(
        self,
        record_keys: pa.Array | pa.ChunkedArray,
        partition_paths: pa.Array | pa.ChunkedArray | None = None,
    ) -> npt.NDArray[np.int32]:
        """Return the bucket of each record key.

        Args:
            record_keys: the record keys, none of which is null.
            partition_paths: the partition path of each key; needed if partitions have different
                bucket counts.
        """
        if self.partitions is None:
            return self.hashes(record_keys) % np.int32(self.bucket_count)
        assert partition_paths is not None, "partitions have different bucket counts"
        encoded = partition_paths.dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.unify_dictionaries().combine_chunks()
        counts = np.array([self.count_in(p) for p in encoded.dictionary.to_pylist()], np.int32)
        of_rows: npt.NDArray[np.int32] = counts[np.asarray(encoded.indices)]
        return self.hashes(record_keys) % of_rows

    def count_in(self, partition_path: str) -> int:
        """Return the number of buckets of a partition."""
        if self.partitions is None:
            return self.bucket_count
        return self.partitions.count_of(partition_path)

    def in_partition(self, partition_path: str) -> BucketIndex:
        """Return the index of one partition, which has one bucket count."""
        return replace(self, bucket_count=self.count_in(partition_path), partitions=None)

    def hashes(self, record_keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int32]:
        """Return the hash of each record key, which is not negative."""
        chunks = record_keys.chunks if isinstance(record_keys, pa.ChunkedArray) else [record_keys]
        hashes = [self._hashes(chunk) for chunk in chunks]
        return np.concatenate([np.empty(0, np.int32), *hashes]) & np.int32(0x7FFFFFFF)

    def _hashes(self, keys: pa.Array) -> npt.NDArray[np.int32]:
        """Return ``List.hashCode`` of the hash fields of each key.

        Whole columns are hashed first. Then the keys that this method cannot split are parsed and
        hashed one by one.
        """
        if len(self.key_fields) == 1:
            hashes = list_hash([keys])
            irregular_rows = rows_with_fields(keys)
        else:
            parts = pc.extract_regex(keys, self._plain_key)
            hashes = list_hash([_part(parts, i) for i in self._hashed_positions])
            irregular_rows = np.flatnonzero(parts.is_null())
        if len(irregular_rows):
            hashes = hashes.copy()
            hashes[irregular_rows] = self._parsed_hashes(keys.take(irregular_rows).to_pylist())
        return hashes

    def _parsed_hashes(self, keys: list[str]) -> npt.NDArray[np.int32]:
        """Return ``List.hashCode`` of keys that must be parsed one by one."""
        fields = self.hash_fields or self.key_fields
        values = [list(hashed_values(key, fields)) or [key] for key in keys]
        counts = np.array([len(v) for v in values])
        hashes = np.empty(len(keys), np.int32)
        for count in np.unique(counts):
            rows = np.flatnonzero(counts == count)
            columns = zip(*(values[row] for row in rows), strict=True)
            hashes[rows] = list_hash([pa.array(column, pa.string()) for column in columns])
        return hashes

    @property
    def _plain_key(self) -> str:
        """A regular expression for keys without commas in their values, which are unambiguous."""
        parts = (f"{re.escape(name)}:(?P<v{i}>[^,]*)" for i, name in enumerate(self.key_fields))
        return f"^{','.join(parts)}$"

    @property
    def _hashed_positions(self) -> list[int]:
        hashed = self.hash_fields or self.key_fields
        return [i for i, name in enumerate(self.key_fields) if name in hashed]


def rows_with_fields(record_keys: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.intp]:
    """Return the rows of keys with a comma and a colon, which ``hashed_values`` must parse.

    Args:
        record_keys: the record keys, none of which is null.
    """
    keys = byte_strings(record_keys)
    # In nearly all tables, no key has a comma. A search of the bytes of all keys takes a thirtieth
    # of the time of a search in each key.
    if not (keys.data[keys.offsets[0] : keys.offsets[-1]] == ord(",")).any():
        return np.empty(0, np.intp)
    have_both = pc.and_(pc.match_substring(record_keys, ","), pc.match_substring(record_keys, ":"))
    return np.flatnonzero(have_both)


def hashed_values(key: str, fields: Sequence[str]) -> Iterator[str | None]:
    """Yield the values of ``fields`` in one record key, parsed as in Hudi.

    A key without a comma or without a colon is one value. In other keys, a value extends to the
    last comma before the colon of the next field. So values may contain commas or colons, but not
    every mixture of both. If none of the fields is in the key, nothing is yielded.
    """
    if "," not in key or ":" not in key:
        yield key
        return
    start = 0
    while start < len(key):
        name_end = key.index(":", start)
        value_end = _end_of_value(key, name_end)
        if key[start:name_end] in fields:
            value = key[name_end + 1 : value_end]
            yield None if value == NULL_PART else "" if value == EMPTY_PART else value
        start = value_end + 1


def file_id(bucket: int, partition_path: str, instant: str, table_name: str) -> str:
    """Return the file id of a new file group. Repeated attempts at one write use the same id."""
    assert 0 <= bucket < _MAX_BUCKET_COUNT, bucket
    name = "\0".join([table_name, partition_path, instant, str(bucket)])
    return f"{bucket:08d}{str(uuid.uuid5(_NAMESPACE, name))[8:]}-0"


def shared_file_id(bucket: int, number: int = 0) -> str:
    """Return the file id that all non-blocking writers choose for the file group of a bucket.

    Source: ``BucketIdentifier.newBucketFileIdForNBCC`` of Apache Hudi 1.2.0, whose number is 0.

    Args:
        bucket: number of the bucket.
        number: how many file groups of the bucket with such a file id were replaced.
    """
    assert 0 <= bucket < _MAX_BUCKET_COUNT, bucket
    return f"{bucket:08d}-0000-0000-0000-{number:012d}-0"


def is_shared_file_id(file_id: str) -> bool:
    """Return whether ``shared_file_id`` returns this file id for some bucket and number."""
    return _SHARED_FILE_ID.fullmatch(file_id) is not None


def bucket_of(file_id: str) -> int:
    """Return the bucket number in a file id.

    Raises:
        InvalidConfig: there is no bucket number, so another index created the file group.
    """
    found = find_bucket(file_id)
    if found is not None:
        return found
    message = (
        f"file id {file_id!r} does not begin with a bucket number: the table was written with "
        "another index, which the bucket index cannot continue"
    )
    raise InvalidConfig(message)


def may_be_buckets(file_ids: Iterable[str]) -> bool:
    """Return whether a bucket index without hash rings may have created these file groups.

    The ids of very few file groups may all begin with digits by chance.
    """
    buckets = [find_bucket(file_id) is not None for file_id in file_ids]
    return bool(buckets) and all(buckets)


def find_bucket(file_id: str) -> int | None:
    """Return the bucket number in a file id; None if another index created the file group.

    One in forty UUIDs begins with eight decimal digits, which this function mistakes for a bucket.
    """
    prefix = file_id[:8]
    is_number = len(prefix) == 8 and prefix.isascii() and prefix.isdecimal()
    return int(prefix) if is_number else None


def bucket_or_file_id(file_id: str) -> int | str:
    """Return the bucket of a file group, or the file id if another index created the group.

    If two groups of another index in one partition begin with the same digits (``find_bucket``),
    conflict checks treat them as one group, and may report a conflict that does not exist.
    """
    bucket = find_bucket(file_id)
    return file_id if bucket is None else bucket


def groups_by_bucket(
    groups: Iterable[FileGroupId], count_in: Callable[[str], int]
) -> dict[tuple[str, int], FileGroupId]:
    """Return the existing file groups by partition path and bucket.

    Args:
        groups: the file groups.
        count_in: returns the number of buckets of a partition.

    Raises:
        InvalidConfig: the table has another index or bucket count. This shows if a file id has no
            bucket number, if the number is not less than the count, or if two file groups of a
            partition have the same bucket.
    """
    found: dict[tuple[str, int], FileGroupId] = {}
    for group in groups:
        slot = (group.partition_path, bucket_of(group.file_id))
        other = found.setdefault(slot, group)
        bucket_count = count_in(group.partition_path)
        if slot[1] >= bucket_count or other != group:
            reason = (
                f"beyond {bucket_count} buckets" if other == group else f"in the bucket of {other}"
            )
            message = f"file group {group} is {reason}; use the bucket count of the table"
            raise InvalidConfig(message)
    return found


def _end_of_value(key: str, name_end: int) -> int:
    """Return the end of the value after the colon at ``name_end``: a comma, or the key's end."""
    next_colon = key.find(":", name_end + 1)
    while next_colon >= 0:
        comma = key.rfind(",", name_end, next_colon)
        if comma >= 0:
            return comma
        next_colon = key.find(":", next_colon + 1)
    return len(key)


def _part(parts: pa.StructArray, position: int) -> pa.Array:
    values = pc.struct_field(parts, [f"v{position}"])
    values = pc.if_else(pc.equal(values, EMPTY_PART), "", values)
    return pc.if_else(pc.equal(values, NULL_PART), None, values)
