"""Storage of a table's files: a protocol, and an implementation for each kind of store."""

from lakemark.storage.open_storage import canonical_url, open_storage
from lakemark.storage.storage import Storage, StorageLocation

__all__ = ["Storage", "StorageLocation", "canonical_url", "open_storage"]
