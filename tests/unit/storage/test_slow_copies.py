"""Publication waits for a copy if the store, like Azure, may answer before it has copied."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

from obstore.store import MemoryStore

from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.object_storage import ObjectStorage, StoreAbilities
from lakemark.storage.storage import ObjectInfo


class CopiesInBackground(ObjectStorage):
    """A storage that reports a copy as empty in its first two answers."""

    looks = 0

    def head(self, path: str) -> ObjectInfo | None:
        info = super().head(path)
        if info is None or path != "made":
            return info
        self.looks += 1
        return replace(info, size_bytes=0) if self.looks < 3 else info


def opened(abilities: StoreAbilities) -> CopiesInBackground:
    location = StorageLocation(f"memory://{uuid4().hex}")
    return CopiesInBackground(location, MemoryStore(), "", abilities, open_storage)


def test_publication_ends_once_the_copy_is_made() -> None:
    storage = opened(StoreAbilities(copies_in_background=True))
    storage.put("prepared", b"content")
    storage.publish("prepared", "made")
    assert storage.looks == 3
    assert storage.read("made") == b"content"
    storage.publish("prepared", "made")


def test_the_copy_of_an_empty_object_is_made_although_it_is_empty() -> None:
    storage = opened(StoreAbilities(copies_in_background=True))
    storage.put("prepared", b"")
    storage.publish("prepared", "made")
    assert storage.looks == 1
    assert storage.read("made") == b""


def test_other_stores_are_not_asked_whether_the_copy_is_made() -> None:
    storage = opened(StoreAbilities())
    storage.put("prepared", b"content")
    storage.publish("prepared", "made")
    assert storage.looks == 0
