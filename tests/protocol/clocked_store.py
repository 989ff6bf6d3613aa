"""An object store in memory whose objects have modification times of a virtual clock."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import IO, BinaryIO, NamedTuple
from uuid import uuid4

from lakemark.errors import OutcomeUnknown
from lakemark.storage.spooled_file import SpooledFile
from lakemark.storage.storage import (
    AlreadyExists,
    NotFound,
    ObjectInfo,
    PreconditionFailed,
    StorageLocation,
    StreamingFile,
    check_folder,
    check_path,
)
from tests.protocol.virtual_time import VirtualTime


class _Object(NamedTuple):
    data: bytes
    version: str
    info: ObjectInfo


class ClockedStore:
    """A ``Storage`` like an object store: conditional puts, no folders, modification times.

    Each write takes a millisecond of virtual time. A copy costs almost nothing.
    """

    def __init__(self, clock: VirtualTime, objects: Mapping[str, _Object] | None = None) -> None:
        self.clock = clock
        self._objects = dict(objects or {})
        self._changes = len(self._objects)
        self._location = StorageLocation(f"memory://{uuid4().hex}/clocked")

    def copy(self, clock: VirtualTime | None = None) -> ClockedStore:
        """Copy all objects to a new store, if asked with another clock."""
        other = ClockedStore(clock or self.clock, self._objects)
        other._changes = self._changes
        return other

    @property
    def location(self) -> StorageLocation:
        return self._location

    @property
    def supports_compare_and_swap(self) -> bool:
        return True

    @property
    def is_remote(self) -> bool:
        return False

    def read(self, path: str) -> bytes:
        return self._at(path).data

    def read_versioned(self, path: str) -> tuple[bytes, str | None]:
        found = self._at(path)
        return found.data, found.version

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        return io.BytesIO(self._at(path).data)

    def head(self, path: str) -> ObjectInfo | None:
        found = self._objects.get(check_path(path))
        return found.info if found is not None else None

    def set_modified_at(self, path: str, moment: datetime) -> bool:
        return False

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        prefix = f"{check_folder(folder)}/" if folder else ""
        folders: set[str] = set()
        names: list[str] = []
        for path in self._objects:
            if not path.startswith(prefix):
                continue
            first, slash, _ = path[len(prefix) :].partition("/")
            if slash:
                folders.add(prefix + first)
            else:
                names.append(path)
        return sorted(folders), [self._objects[path].info for path in sorted(names)]

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        prefix = f"{check_folder(folder)}/" if folder else ""
        names = sorted(path for path in self._objects if path.startswith(prefix))
        return [self._objects[path].info for path in names]

    def create(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        there = self._objects.get(check_path(path))
        if there is None:
            self._write(path, data)
        elif there.data != data:
            raise _content_mismatch(path)

    def create_streaming(self, path: str) -> StreamingFile:
        check_path(path)

        def send(file: IO[bytes], size_bytes: int) -> None:
            self.create(path, file.read(size_bytes))

        return SpooledFile(send)

    def put(self, path: str, data: bytes, *, may_be_cut: bool = False) -> None:
        self._write(check_path(path), data)

    def replace(self, path: str, data: bytes, version: str) -> str:
        there = self._objects.get(check_path(path))
        if there is not None and there.data == data:
            return there.version
        if there is None or there.version != version:
            message = f"{path} no longer has version {version}"
            raise PreconditionFailed(message)
        return self._write(path, data)

    def make_durable(self, path: str | None = None) -> None:
        """An object is durable once the store has answered."""

    def publish(self, prepared: str, path: str) -> None:
        source, there = self._objects.get(check_path(prepared)), self._objects.get(path)
        if source is None and there is None:
            message = f"{prepared} is gone, {path} was not made from it"
            raise NotFound(message)
        if source is None:
            message = f"{prepared} is gone, but {path} exists: check which process published it"
            raise OutcomeUnknown(message)
        if there is None:
            self._write(check_path(path), source.data)
        elif there.data != source.data:
            raise _content_mismatch(path)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.clock.sleep(0)
            self._objects.pop(check_path(path), None)

    def make_folder(self, folder: str) -> None:
        check_folder(folder)

    def _at(self, path: str) -> _Object:
        found = self._objects.get(check_path(path))
        if found is None:
            message = f"no object at {path}"
            raise NotFound(message)
        return found

    def _write(self, path: str, data: bytes) -> str:
        self.clock.sleep(0)
        version = f"v{self._changes}"
        self._changes += 1
        moment = self.clock.moment(self.clock.now_ms())
        info = ObjectInfo(path, len(data), moment, version)
        self._objects[path] = _Object(bytes(data), version, info)
        return version


def _content_mismatch(path: str) -> AlreadyExists:
    return AlreadyExists(f"{path} already exists with different content")
