"""A storage whose listings show an old state, as behind a cache or a replica."""

from __future__ import annotations

from collections.abc import Callable

from lakemark.storage import Storage
from lakemark.storage.storage import ObjectInfo
from tests.storages.wrapped_storage import WrappedStorage


class StaleListings(WrappedStorage):
    """Lists the objects that existed when it was created; reads return the current objects.

    Attributes:
        is_stale: returns whether the listing of a folder is stale; by default, of every folder.
        shown: how many stale listings differed from the current ones.
    """

    def __init__(
        self, inner: Storage, is_stale: Callable[[str], bool] = lambda folder: True
    ) -> None:
        super().__init__(inner)
        self.is_stale = is_stale
        self.shown = 0
        self._seen = inner.list_tree("")

    def list_folder(self, folder: str) -> tuple[list[str], list[ObjectInfo]]:
        now = super().list_folder(folder)
        if not self.is_stale(folder):
            return now
        start = f"{folder}/" if folder else ""
        below = [info for info in self._seen if info.path.startswith(start)]
        inner = {info.path[len(start) :].partition("/")[::2] for info in below}
        folders = sorted({start + name for name, rest in inner if rest})
        objects = [info for info in below if "/" not in info.path[len(start) :]]
        self._count((folders, objects) != now)
        return folders, objects

    def list_tree(self, folder: str) -> list[ObjectInfo]:
        now = super().list_tree(folder)
        if not self.is_stale(folder):
            return now
        start = f"{folder}/" if folder else ""
        below = [info for info in self._seen if info.path.startswith(start)]
        self._count(below != now)
        return below

    def _count(self, differs: bool) -> None:
        self.shown += differs
