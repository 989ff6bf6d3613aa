"""Where scenarios take place: stores on which a table is copied for almost nothing."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from table.storage import StorageLocation, open_storage
from tests.fixtures.quick_s3 import QuickS3


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
        return StorageLocation(str(self.folder / uuid4().hex))

    def copy(self, source: StorageLocation) -> StorageLocation:
        target = self.new()
        shutil.copytree(source.url, target.url, copy_function=_link)
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


def transfer(source: StorageLocation, target: StorageLocation) -> None:
    """Lay what is below one root below another, of any kind; nobody holds its locks there."""
    here, there = open_storage(source), open_storage(target)
    for info in here.list_tree(""):
        if "/.locks/" not in info.path:
            there.put(info.path, here.read(info.path))


def _link(source: str, target: str) -> None:
    # What is still being written has not got its last name, and grows in place.
    (shutil.copy2 if "#" in os.path.basename(source) else os.link)(source, target)
