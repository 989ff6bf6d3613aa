"""Lists the files of a folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from checkpoints.files_position import FileVersion
from lakemark.storage.storage import ObjectInfo, Storage
from streamer.config.files_source import is_read

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def list_files(storage: Storage, pattern: str) -> Mapping[FileVersion, ObjectInfo]:
    """List the files at any depth whose paths match a pattern, without hidden files and folders.

    Raises:
        StorageUnavailable: the store does not answer.
    """
    return {
        version_of(found): found for found in storage.list_tree("") if is_read(found.path, pattern)
    }


def version_of(found: ObjectInfo) -> FileVersion:
    """Return the version of a file that a listing shows."""
    modified_us = (found.modified_at - _EPOCH) // timedelta(microseconds=1)
    return FileVersion(modified_us, found.path, found.size_bytes)
