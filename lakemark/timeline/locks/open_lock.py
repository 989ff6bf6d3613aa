"""Opens the lock of a table with a lock provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

from lakemark.errors import InvalidConfig
from lakemark.extras import install_command
from lakemark.storage.storage import Storage
from lakemark.timeline.locks.file_system_lock import FileSystemLock
from lakemark.timeline.locks.in_process_lock import InProcessLock
from lakemark.timeline.locks.lock_provider import LockProvider
from lakemark.timeline.locks.options import check_options
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
        ZOOKEEPER: the lock is a node of a ZooKeeper server, which Apache Hudi's
            ``ZookeeperBasedLockProvider`` uses, too.
        DYNAMODB: the lock is an item of a DynamoDB table, which Apache Hudi's
            ``DynamoDBBasedLockProvider`` uses, too.
    """

    STORAGE = "storage"
    FILE_SYSTEM = "file_system"
    IN_PROCESS = "in_process"
    ZOOKEEPER = "zookeeper"
    DYNAMODB = "dynamodb"


def open_lock(
    storage: Storage,
    *,
    lease_s: float = DEFAULT_LEASE_S,
    clock: Clock | None = None,
    provider: str = LockProviderName.STORAGE,
    expire_minutes: int = 0,
    options: Mapping[str, str] | None = None,
) -> TableLock:
    """Open the lock of the table at a storage's root.

    Args:
        storage: the storage of the table's root.
        lease_s: the time in seconds after which a lease expires if it is not renewed.
        clock: the clock of the lease; by default this machine's clock.
        provider: one of ``LockProviderName``, or the name of an installed provider.
        expire_minutes: see ``FileSystemLock``.
        options: the options of the provider: see ``ZooKeeperSettings``, ``DynamoDbSettings``.

    Raises:
        InvalidConfig: the provider ``file_system`` was given for an object store, there is no such
            provider, its library is not installed, or an option is missing, unknown or wrong.
    """
    clock = clock or SystemClock()
    opened = _open_provider(storage, provider, expire_minutes, options or {}, clock)
    return TableLock(opened, lease_s, clock, partial(_withdraw_prepared, storage))


def _withdraw_prepared(storage: Storage, lease: Lease) -> None:
    """Delete the prepared content of all instants of the table and of its metadata table.

    The lease is checked after the listing, by the stored record, because another writer whose clock
    is wrong may hold the lock. If the lease is still valid then, the list cannot contain content
    that the next holder of the lock prepared.
    """
    paths = all_prepared(storage)  # model: take over
    lease.check()
    if ANNOUNCED_PROPERTIES in paths:
        withdraw_properties(storage)
    storage.delete(paths)  # model: withdraw all prepared
    lease.check_time()


def _open_provider(
    storage: Storage,
    provider: str,
    expire_minutes: int,
    options: Mapping[str, str],
    clock: Clock,
) -> LockProvider:
    url = storage.location.url
    if provider in _BY_LIBRARY:
        return _BY_LIBRARY[provider](options, url, clock)
    if provider not in tuple(LockProviderName):
        from lakemark.timeline.locks.installed_provider import load_provider

        return load_provider(provider, url, options, tuple(LockProviderName))
    check_options(provider, options)
    if provider == LockProviderName.IN_PROCESS:
        return InProcessLock(url)
    conditional = storage.supports_compare_and_swap
    if provider == LockProviderName.STORAGE:
        return ConditionalStorageLock(storage) if conditional else GenerationStorageLock(storage)
    if conditional:
        message = (
            f"lock provider {provider} works only on a local file system, but the table is at "
            f"{url}; use provider: {LockProviderName.STORAGE}, and StorageBasedLockProvider with "
            "Apache Hudi"
        )
        raise InvalidConfig(message)
    return FileSystemLock(storage, expire_minutes, clock.now_ms)


def _open_zookeeper(options: Mapping[str, str], url: str, clock: Clock) -> LockProvider:
    try:
        from lakemark.timeline.locks.zookeeper_lock import ZooKeeperLock, ZooKeeperSettings
    except ModuleNotFoundError as error:
        raise _not_installed(LockProviderName.ZOOKEEPER, error) from None
    return ZooKeeperLock(ZooKeeperSettings.of(options, url), url, clock.now_ms)


def _open_dynamodb(options: Mapping[str, str], url: str, clock: Clock) -> LockProvider:
    try:
        from lakemark.timeline.locks.dynamodb_lock import DynamoDbLock, DynamoDbSettings
    except ModuleNotFoundError as error:
        raise _not_installed(LockProviderName.DYNAMODB, error) from None
    return DynamoDbLock(DynamoDbSettings.of(options, url), url, clock.now_ms)


def _not_installed(provider: LockProviderName, error: ModuleNotFoundError) -> InvalidConfig:
    return InvalidConfig(
        f"lock provider {provider} needs the library {error.name}: {install_command(provider)}"
    )


#: The providers whose libraries are optional, so that they are imported only when they are opened.
_BY_LIBRARY: Mapping[str, Callable[[Mapping[str, str], str, Clock], LockProvider]] = {
    LockProviderName.ZOOKEEPER: _open_zookeeper,
    LockProviderName.DYNAMODB: _open_dynamodb,
}
