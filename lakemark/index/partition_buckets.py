"""Bucket counts of single partitions, in a table with a bucket index (Apache Hudi 1.1 and later).

A table may have another bucket count in some partitions. The counts are stored in JSON files in the
folder ``.hoodie/.bucket_index/partition_bucket_index_meta/configs``:

00000000000000.hashing_config   the counts with which the table was created
<instant>.hashing_config        the counts after the replace commit of that instant

The newest file whose replace commit has completed is effective. It contains rules, such as
``2026-11-(01|11),64;2026-1.,16``: a partition whose path contains a match of the first pattern has
64 buckets. The first rule that matches decides; a partition without a match has the default count.
The patterns are regular expressions of Java. Only those are understood that mean the same in
Python.

Source: ``PartitionBucketIndexHashingConfig``, ``PartitionBucketIndexCalculator`` and
``RegexRuleEngine`` of Apache Hudi 1.2.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakemark.errors import CorruptData, Refused, Unsupported
from lakemark.index.bucket import HASHING_FOLDER
from lakemark.index.hash_ring import FIRST_INSTANT
from lakemark.storage.storage import Storage
from lakemark.timeline.timeline import Timeline

#: The folder with the effective and the future counts.
CONFIGS_FOLDER = f"{HASHING_FOLDER}/partition_bucket_index_meta/configs"

#: The folder to which Apache Hudi moves counts that are no longer needed.
_ARCHIVE_FOLDER = f"{HASHING_FOLDER}/partition_bucket_index_meta/archive"

_SUFFIX = ".hashing_config"
_VERSION = 1

#: Patterns of these characters mean the same in Java and in Python: no groups with ``?``, no
#: possessive quantifiers, no nested character classes, and only simple escapes.
_SAFE = re.compile(
    r"(?:[\w/=:.\-^$| ]|\\[dDwW.\-/\\]|\[\^?[\w.\-/=:]+\]|\((?!\?)|\)|[*+?](?![+?])"
    r"|\{\d+(?:,\d*)?\}(?![+?]))*",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class PartitionBuckets:
    """The bucket count of each partition.

    Attributes:
        rules: patterns of partition paths, each with a bucket count; the first match decides.
        default: the bucket count of other partitions.
        instant: the instant of the replace commit that has set these counts, or ``FIRST_INSTANT``.
    """

    rules: tuple[tuple[str, int], ...]
    default: int
    instant: str

    @classmethod
    def parse(cls, content: bytes, path: str) -> PartitionBuckets:
        """Return the counts in the content of a file.

        Args:
            content: the content of the file.
            path: the path of the file, for errors.

        Raises:
            CorruptData: the content has not the form of such a file.
            Unsupported: lakemark does not understand the rules.
        """
        try:
            stored: Mapping[str, Any] = json.loads(content)
            rule, version = str(stored["rule"]), int(stored["version"])
            default, instant = int(stored["defaultBucketNumber"]), str(stored["instant"])
            rules = tuple(map(_rule, str(stored["expressions"]).split(";")))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            expected = "the bucket counts of partitions in JSON"
            raise CorruptData(path, None, expected, str(error)) from error
        if rule.lower() != "regex" or version != _VERSION:
            raise _not_understood(path, f"rules of type {rule!r} and version {version}")
        for pattern, count in (*rules, ("", default)):
            if not _SAFE.fullmatch(pattern) or not _compiles(pattern):
                raise _not_understood(path, f"the pattern {pattern!r}")
            if count < 1:
                raise CorruptData(path, None, "positive bucket counts", str(count))
        return cls(rules, default, instant)

    def count_of(self, partition_path: str) -> int:
        """Return the number of buckets of a partition."""
        for pattern, count in self.rules:
            if re.search(pattern, partition_path, re.ASCII):
                return count
        return self.default


def load_partition_buckets(storage: Storage, timeline: Timeline) -> PartitionBuckets | None:
    """Return the effective bucket counts; None if all partitions have the same count.

    Args:
        storage: the table's root.
        timeline: the table's timeline.

    Raises:
        Refused: the newest counts belong to a replace commit that was rolled back, but Apache Hudi
            would use them.
        CorruptData: the newest file is damaged.
        Unsupported: lakemark does not understand the rules.
    """
    names = (info.name for info in storage.list_folder(CONFIGS_FOLDER)[1])
    instants = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    for instant in sorted(instants, reverse=True):
        path = config_path(instant)
        if instant == FIRST_INSTANT or timeline.is_committed(instant):
            return PartitionBuckets.parse(storage.read(path), path)
        if timeline.find(instant) is None:
            message = (
                f"{path} has the bucket counts of replace commit {instant}, which was rolled back; "
                "Apache Hudi would use these counts, and other writers the earlier ones, so that "
                "some keys would have two rows; delete this file, and write again"
            )
            raise Refused(message)
    return None


def delete_partition_buckets(storage: Storage, instant: str) -> None:
    """Delete the bucket counts of a replace commit that is being undone."""
    storage.delete([config_path(instant)])


def delete_partition_buckets_before(storage: Storage, end: str) -> None:
    """Delete the bucket counts of all replace commits before a time, but not the first counts."""
    found = storage.list_folder(CONFIGS_FOLDER)[1]
    named = ((one.path, one.name.removesuffix(_SUFFIX)) for one in found)
    storage.delete([path for path, instant in named if FIRST_INSTANT < instant < end])


def config_path(instant: str) -> str:
    """Return the path of the file with the bucket counts after an instant."""
    return f"{CONFIGS_FOLDER}/{instant}{_SUFFIX}"


def is_known(path: str) -> bool:
    """Return whether a file in ``HASHING_FOLDER`` contains bucket counts of partitions."""
    folder = path.rpartition("/")[0]
    return path.endswith(_SUFFIX) and folder in (CONFIGS_FOLDER, _ARCHIVE_FOLDER)


def _rule(text: str) -> tuple[str, int]:
    pattern, count = text.strip().split(",")
    return pattern.strip(), int(count.strip())


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern, re.ASCII)
    except re.error:
        return False
    return True


def _not_understood(path: str, what: str) -> Unsupported:
    return Unsupported(
        f"{path} has {what}, by which Apache Hudi gives partitions their bucket counts "
        "(hoodie.bucket.index.partition.expressions); lakemark does not understand them; write to "
        "another path, or with Apache Hudi"
    )
