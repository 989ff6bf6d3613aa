"""Checks that the writers of a table use the same index, so that each key has one file group.

A table property contains no index, so each commit of lakemark records the index of its writer.
Commits of Apache Hudi record none.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakemark.config import keys
from lakemark.errors import InvalidConfig, Refused
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.operations.open_table import OpenTable
from lakemark.operations.writer_settings import WriterSettings
from lakemark.timeline.timeline import Timeline

#: What commits record about a bucket index, and its meaning.
_BUCKET_SETTINGS = {
    keys.BUCKET_COUNT: "number of buckets",
    keys.BUCKET_HASH_FIELDS: "fields that are hashed",
}


def check_same_index(settings: WriterSettings, metadata: CommitMetadata, url: str) -> None:
    """Check that another writer's index fits ours.

    Args:
        settings: the settings of our writer.
        metadata: a commit of the other writer.
        url: the location of the table.

    Raises:
        Refused: our commit could add a key that has a row in another partition.
        InvalidConfig: the other writer divides the keys into other buckets.
    """
    is_global = metadata.extra_metadata.get(keys.INDEX) == keys.GLOBAL_LOOKUP
    if is_global and settings.may_repeat_keys:
        raise repeats_keys(url)
    check_same_buckets(settings, metadata, url)


def repeats_keys(url: str) -> Refused:
    """Return the error for a writer that looks keys up only in the partitions of their changes."""
    return Refused(
        f"another writer of table {url} began to keep each record key unique in the whole table; "
        "open the table with partition_change='move', or set table.partition_change: move in the "
        "pipeline"
    )


def check_same_buckets(settings: WriterSettings, metadata: CommitMetadata, url: str) -> None:
    """Check that another writer's bucket index is ours, so that a key has one file group.

    Raises:
        InvalidConfig: the other writer divides the keys into other buckets.
    """
    theirs, ours = metadata.extra_metadata, settings.index_metadata()
    for key, meaning in _BUCKET_SETTINGS.items():
        if key in ours and theirs.get(key, ours[key]) != ours[key]:
            message = (
                f"another writer of table {url} uses {theirs[key]} as the {meaning}, but this "
                f"writer uses {ours[key]}; open the table again, or change the setting of the "
                "pipeline"
            )
            raise InvalidConfig(message)


def check_first_index(table: OpenTable, settings: WriterSettings, timeline: Timeline) -> None:
    """Check that no other writer has recorded another index since our writer opened.

    The check is needed only if no commit recorded an index when our writer opened the table. Then
    two processes that created the table at the same time may have chosen different ones.

    Args:
        table: the open table.
        settings: the settings of our writer.
        timeline: the timeline, just loaded.

    Raises:
        InvalidConfig: another writer has recorded another index.
    """
    ours = _index_text(settings.index_metadata())
    for instant in timeline.completed(*COMMITS):
        theirs = _index_text(table.store.read_commit(instant).extra_metadata)
        if theirs is not None and theirs != ours:
            message = (
                f"table {table.location.url} has {theirs}, not {ours}, because another process "
                "created it at the same time; open the table with lakemark.open"
            )
            raise InvalidConfig(message)


def _index_text(extra_metadata: Mapping[str, str]) -> str | None:
    """Return the index that a commit records; None if it records none."""
    count, name = extra_metadata.get(keys.BUCKET_COUNT), extra_metadata.get(keys.INDEX)
    if count is not None:
        return f"{count} buckets in each partition"
    if name == keys.CONSISTENT_HASHING:
        return f"consistent hashing with {extra_metadata.get(keys.FIRST_BUCKETS)} buckets at first"
    return None if name is None else "a lookup index"
