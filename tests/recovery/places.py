"""Where scenarios take place: stores on which a table is copied for almost nothing."""

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


class Place(Protocol):
    """A kind of store."""

    def new(self) -> StorageLocation:
        """A root below which nothing lies yet."""
        ...

    def copy(self, source: StorageLocation) -> StorageLocation:
        """Everything below a root, below a new one."""
        ...

    def drop(self, root: StorageLocation) -> None:
        """Remove what is below a root that nobody looks at again."""
        ...


@dataclass(frozen=True)
class OnDisk:
    """See ``Place``. Files are linked, since whoever changes one puts a new one in its place."""

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
    """See ``Place``."""

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
    """As ``open_storage``; all of S3 through one client, which takes ten requests' time to make."""
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
    """Lay what is below one root below another, of any kind; nobody holds its locks there."""
    here, there = storage_at(source), storage_at(target)
    for info in here.list_tree(""):
        if "/.locks/" not in info.path:
            there.put(info.path, here.read(info.path))


def _link(source: str, target: str) -> None:
    # What is still being written has not got its last name, and grows in place; and of a timeline
    # of version 6 the times are set in place.
    folder, name = os.path.split(source)
    changes_in_place = "#" in name or os.path.basename(folder) == ".hoodie"
    (shutil.copy2 if changes_in_place else os.link)(source, target)
