"""Places to keep a table's files: one contract, and what keeps it on each kind of store."""

from lakemark.storage.open_storage import open_storage, place_of
from lakemark.storage.storage import Storage, StorageLocation

__all__ = ["Storage", "StorageLocation", "open_storage", "place_of"]
