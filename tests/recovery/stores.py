"""The stores on which scenarios run; copying a table there costs almost nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast
from uuid import uuid4

from obstore.store import S3Store

from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.object_storage import ObjectStorage, StoreAbilities
from tests.fixtures.quick_s3 import QuickS3

if TYPE_CHECKING:
    from obstore.store import S3Config


class ScenarioStore(Protocol):
    """A store for the tables of scenarios."""

    def new(self) -> StorageLocation:
        """Create an empty root."""
        ...

    def copy(self, source: StorageLocation) -> StorageLocation:
        """Copy everything below a root to a new root."""
        ...

    def drop(self, root: StorageLocation) -> None:
        """Delete everything below a root that is no longer needed."""
        ...


@dataclass(frozen=True)
class OnDisk:
    """A ``ScenarioStore``. Copies link the files, because a change creates a new file."""

    folder: Path

    def new(self) -> StorageLocation:
        root = self.folder / uuid4().hex
        root.mkdir()
        return StorageLocation(str(root))

    def copy(self, source: StorageLocation) -> StorageLocation:
        target = self.new()
        shutil.copytree(source.url, target.url, copy_function=_link, dirs_exist_ok=True)
        return target

    def drop(self, root: StorageLocation) -> None:
        shutil.rmtree(root.url)


@dataclass(frozen=True)
class OnS3:
    """A ``ScenarioStore`` on an S3 server."""

    server: QuickS3

    def new(self) -> StorageLocation:
        return self.server.location()

    def copy(self, source: StorageLocation) -> StorageLocation:
        target = self.new()
        self.server.copy(source, target)
        return target

    def drop(self, root: StorageLocation) -> None:
        self.server.drop(root)


def storage_at(root: StorageLocation) -> Storage:
    """Like ``open_storage``, but with one client for all of S3, because creating one is slow."""
    scheme, _, rest = root.url.rpartition("://")
    if scheme != "s3":
        return open_storage(root)
    bucket, _, prefix = rest.partition("/")
    client = _client(bucket, tuple(root.options.items()))
    abilities = StoreAbilities(copies_conditionally=False)
    return ObjectStorage(root, client, prefix, abilities, open_storage)


@cache
def _client(bucket: str, options: tuple[tuple[str, str], ...]) -> S3Store:
    config = cast("S3Config", dict(options))
    return S3Store(bucket, config=config, client_options={"allow_http": True})


def transfer(source: StorageLocation, target: StorageLocation) -> None:
    """Copy everything but locks from one root to another, which may be on another store."""
    here, there = storage_at(source), storage_at(target)
    for info in here.list_tree(""):
        if "/.locks/" not in info.path:
            there.put(info.path, here.read(info.path))


def _link(source: str, target: str) -> None:
    # Temporary files grow in place, and modification times of a timeline of version 6 are set in
    # place, so that these files are copied.
    folder, name = os.path.split(source)
    changes_in_place = "#" in name or os.path.basename(folder) == ".hoodie"
    (shutil.copy2 if changes_in_place else os.link)(source, target)
