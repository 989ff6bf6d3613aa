"""Finds the partitions of an open table whose lifetime has ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.file_slice import join
from lakemark.operations.open_table import OpenTable
from lakemark.operations.partition_deletion import ChoosePartitions
from lakemark.services.partition_lifetime import (
    ExpireBy,
    PartitionLifetime,
    expired_partitions,
    last_commits,
    last_emptied,
    last_logged,
)
from lakemark.storage.parallel_requests import request_all
from lakemark.storage.storage import NotFound
from lakemark.view.file_lister import PARTITION_METAFILE
from lakemark.view.file_system_view import FileSystemView

_CREATED_BY = re.compile(r"^commitTime=(\d+)\s*$", re.MULTILINE)


def find_expired(
    table: OpenTable,
    lifetime: PartitionLifetime,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> ChoosePartitions:
    """Return a function that finds the partitions whose lifetime has ended.

    A partition whose creation time is not known does not expire by creation.

    Args:
        table: the open table.
        lifetime: how long the rows of a partition are kept.
        now: returns the current time.

    Raises:
        InvalidConfig: the table is not partitioned.
    """
    if not (table.properties.partition_fields or table.properties.partition_expressions):
        message = f"table {table.location.url} is not partitioned, so that no partition expires"
        raise InvalidConfig(message)

    def choose(view: FileSystemView) -> list[str]:
        if lifetime.by is ExpireBy.COMMIT:
            began = _last_commits(table, view)
        else:
            began = _creations(table, view)
        return expired_partitions(began, lifetime, now(), table.store.clock)

    return choose


def _last_commits(table: OpenTable, view: FileSystemView) -> Mapping[str, str]:
    found = last_commits(view)
    if not table.version.logs_name_their_slice:
        return found
    logged = last_logged(view, _commits(table, view))
    return {path: max(time, logged.get(path, "")) for path, time in found.items()}


def _creations(table: OpenTable, view: FileSystemView) -> Mapping[str, str]:
    paths = sorted({one.group.partition_path for one in view.latest_slices()})
    created = request_all(table.storage, lambda path: _read_creation(table, path), paths)
    emptied = last_emptied(_commits(table, view))
    return {
        path: max(time, emptied.get(path, ""))
        for path, time in zip(paths, created, strict=True)
        if time is not None
    }


def _read_creation(table: OpenTable, path: str) -> str | None:
    """Return the commit in the metafile of a partition; None if the metafile does not show it.

    Source: ``HoodiePartitionMetadata.readPartitionCreatedCommitTime``.
    """
    try:
        text = table.storage.read(join(path, PARTITION_METAFILE)).decode("utf-8", "replace")
    except NotFound:
        return None  # the metafile is a Parquet or ORC file
    found = _CREATED_BY.search(text)
    return found[1] if found else None


def _commits(table: OpenTable, view: FileSystemView) -> dict[str, CommitMetadata]:
    instants = view.timeline.completed(*COMMITS)
    read = table.store.read_commits(instants)
    return {i.requested_at: metadata for i, metadata in zip(instants, read, strict=True)}
