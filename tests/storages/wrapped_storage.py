"""A storage that delegates every call, through hooks that subclasses override."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import BinaryIO, TypeVar

from lakemark.storage.storage import ObjectInfo, Storage, StorageLocation, StreamingFile

T = TypeVar("T")


class WrappedStorage:
    """Delegates calls to ``inner`` through ``_reading`` and ``_writing``; subclasses override them.

    A streaming file is one write, when it is closed. Deleting several objects is one write for
    each object, as it is on storage.
    """

    def __init__(self, inner: Storage) -> None:
        self.inner = inner
        self.supports_compare_and_swap = inner.supports_compare_and_swap
        # Requests are made one after the other, so that a test can rely on their order.
        self.is_remote = False

    def _reading(self, method: str, path: str, call: Callable[[], T]) -> T:
        return call()

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        return call()

    def _check_alive(self) -> None:
        """Called before a streaming file is written or aborted, and before ``make_durable``."""

    @property
    def location(self) -> StorageLocation:
        return self.inner.location

    def read(self, path: str) -> bytes:
        return self._reading("read", path, lambda: self.inner.read(path))

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        return self._reading("read_versioned", path, lambda: self.inner.read_versioned(path))

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self._reading("open", path, lambda: self.inner.open(path))

    def head(self, path: str) -> ObjectInfo | None:
        return self._reading("head", path, lambda: self.inner.head(path))

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        return self._reading("list_folder", folder, lambda: self.inner.list_folder(folder))

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        return self._reading("list_tree", folder, lambda: self.inner.list_tree(folder))

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        create = partial(self.inner.create, path, data, may_be_cut=may_be_cut)
        self._writing("create", path, create)

    def create_streaming(self, path: str) -> StreamingFile:
        file = self._reading("create_streaming", path, lambda: self.inner.create_streaming(path))
        close = partial(self._writing, "close", path, file.close)
        return _WrappedFile(file, close, self._check_alive)

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        put = partial(self.inner.put, path, data, may_be_cut=may_be_cut)
        self._writing("put", path, put)

    def replace(self, path: str, data: bytes, version: str) -> str:
        return self._writing("replace", path, lambda: self.inner.replace(path, data, version))

    def make_durable(self, path: str | None = None) -> None:
        self._check_alive()
        self.inner.make_durable(path)

    def publish(self, prepared: str, path: str) -> None:
        self._writing("publish", path, lambda: self.inner.publish(prepared, path))

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        return self._writing(
            "set_modified_at", path, lambda: self.inner.set_modified_at(path, moment)
        )

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._delete_one(path)

    def make_folder(self, folder: str) -> None:
        self._writing("make_folder", folder, lambda: self.inner.make_folder(folder))

    def _delete_one(self, path: str) -> None:
        self._writing("delete", path, lambda: self.inner.delete([path]))


class _WrappedFile:
    def __init__(
        self, inner: StreamingFile, close: Callable[[], int], check_alive: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._close = close
        self._check_alive = check_alive

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: bytes | memoryview, /) -> int:
        self._check_alive()
        return self._inner.write(data)

    def close(self) -> int:
        return self._inner.close() if self._inner.closed else self._close()

    def abort(self) -> None:
        self._check_alive()
        self._inner.abort()
