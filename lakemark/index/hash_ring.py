"""The buckets of consistent hashing: ranges of hashes, which a resize splits and merges.

hash     xxHash32(values of the hash fields, joined without separator; seed 0) & 0x7FFFFFFF
bucket   the first one whose largest hash is at least the hash; otherwise the first of all
file id  <prefix of the bucket>-0; one file group per bucket

Each partition has buckets of its own. They are stored in JSON files in the folder
``.hoodie/.bucket_index/consistent_hashing_metadata/<partition path>``:

00000000000000.hashing_meta   the first buckets, which the first writer of the partition creates
<instant>.hashing_meta        the buckets after the clustering of that instant
<instant>.commit              an empty file: the clustering has completed

Source: ``HoodieConsistentHashingMetadata``, ``ConsistentBucketIdentifier`` and
``ConsistentBucketIndexUtils`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh32_intdigest

from lakemark.codec.xxhash32 import xxhash32
from lakemark.errors import CorruptData, InvalidConfig
from lakemark.index.bucket import HASHING_FOLDER, hashed_values, rows_with_fields

#: The folder with the hash rings of all partitions.
RINGS_FOLDER = f"{HASHING_FOLDER}/consistent_hashing_metadata"

#: The instant in the name of the file with the first buckets of a partition.
FIRST_INSTANT = "00000000000000"

#: The ends of file names: a ring, and the marker of a completed clustering.
RING_SUFFIX, COMPLETED_SUFFIX = ".hashing_meta", ".commit"

#: The largest hash. A ring of hashes continues with 0 after it.
LARGEST_HASH = 0x7FFFFFFF

#: A partition can begin with any number of buckets up to this one, and with some larger numbers.
_MOST_FIRST = 46_340
_FILE_VERSION = 0

Hashes: TypeAlias = npt.NDArray[np.int64]


class NodeTag(StrEnum):
    """The meaning of a stored bucket (``ConsistentHashingNode.NodeTag``).

    Attributes:
        NORMAL: a bucket of a ring.
        REPLACE: a bucket that a resize adds, or the new file group of a bucket.
        DELETE: a bucket whose hashes a resize adds to the next bucket.
    """

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True)
class HashRing:
    """The buckets of one partition.

    Attributes:
        partition_path: the partition.
        instant: the requested time of the clustering that made these buckets, or ``FIRST_INSTANT``.
        largest_hashes: the largest hash of each bucket, in ascending order. A hash that is larger
            than all of them belongs to the first bucket.
        file_id_prefixes: the file id of each bucket, without its last part ``-0``.
        first_count: the number of buckets that the partition had at first.
        resizes: the number of clusterings that have split or merged buckets.
    """

    partition_path: str
    instant: str
    largest_hashes: tuple[int, ...]
    file_id_prefixes: tuple[str, ...]
    first_count: int
    resizes: int = 0

    @classmethod
    def first(cls, partition_path: str, count: int) -> HashRing:
        """Return the first buckets of a partition. Every writer computes the same buckets.

        Args:
            partition_path: the partition.
            count: the number of buckets.

        Raises:
            InvalidConfig: the count is not positive, or so large that a bucket would have no hash.
        """
        width = (LARGEST_HASH + count - 1) // max(count, 1)
        if count < 1 or width * (count - 1) >= LARGEST_HASH:
            message = f"{count} buckets are not possible; choose a number from 1 to {_MOST_FIRST}"
            raise InvalidConfig(message)
        ends = [min(width * number, LARGEST_HASH) for number in range(1, count + 1)]
        starts = [0, *ends[:-1]]
        prefixes = [_first_prefix(partition_path, *one) for one in zip(starts, ends, strict=True)]
        return cls(partition_path, FIRST_INSTANT, tuple(ends), tuple(prefixes), count)

    @classmethod
    def parse(cls, content: bytes, path: str) -> HashRing:
        """Return the buckets in the content of a file.

        Args:
            content: the content of the file.
            path: path of the file, for errors.

        Raises:
            CorruptData: the content has not the form of such a file, or no buckets.
        """
        try:
            stored: dict[str, Any] = json.loads(content)
            nodes = sorted((int(n["value"]), str(n["fileIdPrefix"])) for n in stored["nodes"])
            ring = cls(
                str(stored["partitionPath"]),
                str(stored["instant"]),
                tuple(value for value, _ in nodes),
                tuple(prefix for _, prefix in nodes),
                int(stored["numBuckets"]),
                int(stored["seqNo"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptData(
                path, None, "the buckets of a partition in JSON", str(error)
            ) from error
        ring._check(path)
        return ring

    def to_json(self) -> bytes:
        """Return the content of the file, as Apache Hudi writes it.

        Apache Hudi would not find the file groups of nodes without a tag in a bulk insert.
        """
        buckets = zip(self.largest_hashes, self.file_id_prefixes, strict=True)
        stored = {
            "version": _FILE_VERSION,
            "partitionPath": self.partition_path,
            "instant": self.instant,
            "numBuckets": self.first_count,
            "seqNo": self.resizes,
        }
        head = json.dumps(stored, indent=2, separators=(",", " : "), ensure_ascii=False)
        nodes = nodes_to_json(((*bucket, NodeTag.NORMAL) for bucket in buckets), indent="  ")
        return f'{head[:-2]},\n  "nodes" : {nodes}\n}}'.encode()

    @property
    def file_ids(self) -> tuple[str, ...]:
        """The file id of each bucket."""
        return tuple(f"{prefix}-0" for prefix in self.file_id_prefixes)

    def buckets_of(self, hashes: Hashes) -> npt.NDArray[np.int32]:
        """Return the position of each hash's bucket in ``file_ids``."""
        positions = np.searchsorted(np.array(self.largest_hashes, np.int64), hashes)
        return (positions % len(self.largest_hashes)).astype(np.int32)

    def buckets_of_keys(
        self, record_keys: pa.Array | pa.ChunkedArray, key_fields: Sequence[str]
    ) -> npt.NDArray[np.int32]:
        """Return the position of each record key's bucket in ``file_ids``.

        Args:
            record_keys: the record keys.
            key_fields: the fields of the record key, which are all hashed.
        """
        return self.buckets_of(hashes_of_keys(record_keys, key_fields))

    def _check(self, path: str) -> None:
        expected = f"distinct hashes from 0 to {LARGEST_HASH}, at least one"
        values = self.largest_hashes
        if not values or values[0] < 0 or values[-1] > LARGEST_HASH:
            raise CorruptData(path, None, expected, f"{len(values)} buckets: {values[:1]} …")
        if len({*values}) < len(values) or len({*self.file_id_prefixes}) < len(values):
            raise CorruptData(path, None, "distinct hashes and file ids of buckets", "equal ones")


def nodes_to_json(nodes: Iterable[tuple[int, str | None, NodeTag]], indent: str = "") -> str:
    """Return buckets as Apache Hudi writes them into rings and into the plans of resizes.

    Args:
        nodes: largest hash, prefix of the file id, and tag of each bucket.
        indent: the spaces before each line except the first.
    """
    texts = (
        f'{{\n{indent}  "value" : {value},\n{indent}  "fileIdPrefix" : {json.dumps(prefix)},\n'
        f'{indent}  "tag" : "{tag}"\n{indent}}}'
        for value, prefix, tag in nodes
    )
    return f"[ {', '.join(texts)} ]"


def hashes_of_keys(record_keys: pa.Array | pa.ChunkedArray, key_fields: Sequence[str]) -> Hashes:
    """Return the hash of each record key.

    A key without a comma or without a colon is one value, so whole columns of such keys are hashed.
    Other keys are parsed one by one.

    Args:
        record_keys: the record keys, none of which is null.
        key_fields: the fields of the record key, which are all hashed.
    """
    hashes = xxhash32(record_keys).astype(np.int64) & LARGEST_HASH
    rows = rows_with_fields(record_keys)
    if len(rows):
        keys = record_keys.take(pa.array(rows)).to_pylist()
        hashes[rows] = hashes_of(list(hashed_values(key, key_fields)) or [key] for key in keys)
    return hashes


def hashes_of(values: Iterable[Sequence[str | None]]) -> Hashes:
    """Return the hash of each key.

    Args:
        values: for each key, the values of its hash fields. Java joins a null as ``null``.
    """
    texts = ("".join("null" if v is None else v for v in one) for one in values)
    hashes = (xxh32_intdigest(text.encode("utf-8", "surrogatepass")) for text in texts)
    return np.fromiter(hashes, np.int64) & LARGEST_HASH


def ring_path(partition_path: str, instant: str) -> str:
    """Return the path of the file with the buckets of a partition after an instant."""
    return f"{rings_folder(partition_path)}/{instant}{RING_SUFFIX}"


def rings_folder(partition_path: str) -> str:
    """Return the folder with the files of one partition."""
    return f"{RINGS_FOLDER}/{partition_path}" if partition_path else RINGS_FOLDER


def _first_prefix(partition_path: str, start: int, end: int) -> str:
    """Return Java's ``UUID.nameUUIDFromBytes`` of a range of hashes and the partition."""
    digest = hashlib.md5(
        struct.pack(">qq", start, end) + partition_path.encode(), usedforsecurity=False
    ).digest()
    return str(uuid.UUID(bytes=digest, version=3))
