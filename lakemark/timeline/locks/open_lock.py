"""Opens the lock of a table with a lock provider."""

from __future__ import annotations

from enum import StrEnum
from functools import partial

from lakemark.errors import InvalidConfig
from lakemark.storage.storage import Storage
from lakemark.timeline.locks.file_system_lock import FileSystemLock
from lakemark.timeline.locks.in_process_lock import InProcessLock
from lakemark.timeline.locks.lock_provider import LockProvider
from lakemark.timeline.locks.storage_lock import ConditionalStorageLock, GenerationStorageLock
from lakemark.timeline.locks.table_lock import (
    DEFAULT_LEASE_S,
    Clock,
    Lease,
    SystemClock,
    TableLock,
)
from lakemark.timeline.prepared import ANNOUNCED_PROPERTIES, all_prepared, withdraw_properties


class LockProviderName(StrEnum):
    """The lock providers. All writers of a table must use the same provider.

    Attributes:
        STORAGE: the lock is a file on the table's storage. On a store with compare-and-swap, Apache
            Hudi's ``StorageBasedLockProvider`` uses the same file. On a local disk, the lock
            excludes only lakemark's writers.
        FILE_SYSTEM: the lock is a file on a local disk. Apache Hudi's
            ``FileSystemBasedLockProvider`` uses the same file.
        IN_PROCESS: the lock is in the memory of this process.
    """

    STORAGE = "storage"
    FILE_SYSTEM = "file_system"
    IN_PROCESS = "in_process"


def open_lock(
    storage: Storage,
    *,
    lease_s: float = DEFAULT_LEASE_S,
    clock: Clock | None = None,
    provider: LockProviderName = LockProviderName.STORAGE,
    expire_minutes: int = 0,
) -> TableLock:
    """Open the lock of the table at a storage's root.

    Args:
        storage: the storage of the table's root.
        lease_s: the time in seconds after which a lease expires if it is not renewed.
        clock: the clock of the lease; by default this machine's clock.
        provider: the lock provider.
        expire_minutes: see ``FileSystemLock``.

    Raises:
        InvalidConfig: the provider ``file_system`` was given for an object store.
    """
    clock = clock or SystemClock()
    opened = _open_provider(storage, provider, expire_minutes, clock)
    return TableLock(opened, lease_s, clock, partial(_withdraw_prepared, storage))


def _withdraw_prepared(storage: Storage, lease: Lease) -> None:
    """Delete the prepared content of all instants of the table and of its metadata table.

    The lease is checked after the listing. If the lease is still valid then, the list cannot
    contain content that the next holder of the lock prepared.
    """
    paths = all_prepared(storage)  # model: take over
    lease.check_time()
    if ANNOUNCED_PROPERTIES in paths:
        withdraw_properties(storage)
    storage.delete(paths)  # model: withdraw all prepared
    lease.check_time()


def _open_provider(
    storage: Storage, provider: LockProviderName, expire_minutes: int, clock: Clock
) -> LockProvider:
    conditional = storage.supports_compare_and_swap
    if provider is LockProviderName.IN_PROCESS:
        return InProcessLock(storage.location.url)
    if provider is LockProviderName.STORAGE:
        return ConditionalStorageLock(storage) if conditional else GenerationStorageLock(storage)
    if conditional:
        message = (
            f"lock provider {provider} works only on a local file system, but the table is at "
            f"{storage.location.url}; use provider: {LockProviderName.STORAGE}, and "
            "StorageBasedLockProvider with Apache Hudi"
        )
        raise InvalidConfig(message)
    return FileSystemLock(storage, expire_minutes, clock.now_ms)
