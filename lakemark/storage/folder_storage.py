"""Presents a folder of a storage as a storage, for the metadata table inside a table.

All calls are forwarded to the outer storage, so a wrapper of the outer storage sees them, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import BinaryIO

from lakemark.storage.storage import (
    ObjectInfo,
    Storage,
    StorageLocation,
    StreamingFile,
    check_folder,
)


class FolderStorage:
    """The objects below one folder; see ``Storage`` for the methods."""

    def __init__(self, outer: Storage, folder: str) -> None:
        self._outer, self._folder = outer, check_folder(folder)

    @property
    def location(self) -> StorageLocation:
        """The location that opens the same folder in another process."""
        return self._outer.location.child(self._folder)

    @property
    def supports_compare_and_swap(self) -> bool:
        """Whether the store supports ``replace``."""
        return self._outer.supports_compare_and_swap

    @property
    def is_remote(self) -> bool:
        """Whether the store is remote."""
        return self._outer.is_remote

    def read(self, path: str) -> bytes:
        """See ``Storage.read``."""
        return self._outer.read(self._in_outer(path))

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        """See ``Storage.read_versioned``."""
        return self._outer.read_versioned(self._in_outer(path))

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """See ``Storage.open``."""
        return self._outer.open(self._in_outer(path))

    def head(self, path: str) -> ObjectInfo | None:
        """See ``Storage.head``."""
        info = self._outer.head(self._in_outer(path))
        return info and self._own(info)

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        """See ``Storage.list_folder``."""
        folders, objects = self._outer.list_folder(self._in_outer(folder))
        return [self._own_path(path) for path in folders], [self._own(info) for info in objects]

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        """See ``Storage.list_tree``."""
        return [self._own(info) for info in self._outer.list_tree(self._in_outer(folder))]

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """See ``Storage.create``."""
        self._outer.create(self._in_outer(path), data, may_be_cut=may_be_cut)

    def create_streaming(self, path: str) -> StreamingFile:
        """See ``Storage.create_streaming``."""
        return self._outer.create_streaming(self._in_outer(path))

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        """See ``Storage.put``."""
        self._outer.put(self._in_outer(path), data, may_be_cut=may_be_cut)

    def replace(self, path: str, data: bytes, version: str) -> str:
        """See ``Storage.replace``."""
        return self._outer.replace(self._in_outer(path), data, version)

    def make_durable(self, path: str | None = None) -> None:
        """See ``Storage.make_durable``; without a path, objects outside the folder are included."""
        self._outer.make_durable(None if path is None else self._in_outer(path))

    def publish(self, prepared: str, path: str) -> None:
        """See ``Storage.publish``."""
        self._outer.publish(self._in_outer(prepared), self._in_outer(path))

    def delete(self, paths: Iterable[str]) -> None:
        """See ``Storage.delete``."""
        self._outer.delete([self._in_outer(path) for path in paths])

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        """See ``Storage.set_modified_at``."""
        return self._outer.set_modified_at(self._in_outer(path), moment)

    def make_folder(self, folder: str) -> None:
        """See ``Storage.make_folder``."""
        self._outer.make_folder(self._in_outer(folder))

    def _in_outer(self, path: str) -> str:
        return f"{self._folder}/{path}" if path else self._folder

    def _own_path(self, path: str) -> str:
        return path.removeprefix(f"{self._folder}/")

    def _own(self, info: ObjectInfo) -> ObjectInfo:
        # ``dataclasses.replace`` takes three times as long, and a folder may list many objects.
        path = self._own_path(info.path)
        return ObjectInfo(path, info.size_bytes, info.modified_at, info.etag)
