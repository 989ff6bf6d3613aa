"""Checks of the stores of a pipeline's tables: every right that a writer needs, and the lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lakemark.storage import StorageLocation, canonical_url, open_storage
from lakemark.storage.rights import LIST, RightsMissing, check_rights
from lakemark.storage.storage import AccessDenied
from lakemark.storage.trial_folders import TrialFolders
from lakemark.timeline.locks.open_lock import open_lock
from streamer.checks.check import Check, Finding
from streamer.config.pipeline import PipelineConfig

#: Seconds for which the check waits for a lock that no other process knows.
_LOCK_WAIT_S = 5.0

#: The names of the locks for trials, which remain where they are stored.
_TRIAL_NAMES = {
    "zookeeper": {"base_path": "/tmp", "lock_key": "lakemark_doctor"},
    "dynamodb": {"partition_key": "lakemark_doctor"},
}


def store_checks(
    path: str, location: Callable[[], StorageLocation], folders: TrialFolders
) -> Iterator[Check]:
    """Yield the checks that a store can be listed, and that everything else is allowed there.

    Args:
        path: the path or the URL of a table.
        location: returns the location of the table, with the secrets of its store.
        folders: the folders for trials.
    """
    store = store_name(path)
    yield Check(store, lambda: _check_listing(location()))
    yield Check(rights_name(path), lambda: _check_rights(location(), folders), (store,))


def store_name(path: str) -> str:
    """Return the name of the check that the store of a table can be listed."""
    return f"storage {path}"


def rights_name(path: str) -> str:
    """Return the name of the check of the rights on the store of a table."""
    return f"rights on {path}"


def lock_check(
    config: PipelineConfig, location: Callable[[], StorageLocation], folders: TrialFolders
) -> Check:
    """Return the check that the lock provider works on the table's store.

    Args:
        config: the settings of the pipeline.
        location: returns the location of the table, with the secrets of its store.
        folders: the folders for trials.
    """
    needs = (rights_name(config.table.path),)
    name = f"lock provider {config.concurrency.lock.provider}"
    return Check(name, lambda: _check_lock(config, location(), folders), needs)


def _check_listing(location: StorageLocation) -> Finding:
    try:
        folders, objects = open_storage(location).list_folder("")
    except AccessDenied as error:
        raise RightsMissing(canonical_url(location.url), {LIST: error}) from None
    entries = len(folders) + len(objects)
    return Finding("reachable" if entries else "reachable; there is nothing at this path yet")


def _check_rights(location: StorageLocation, folders: TrialFolders) -> Finding:
    with folders.open(location) as folder:
        rights = check_rights(location, folder)
    return Finding(f"{', '.join(rights)} are allowed", folder.warnings)


def _check_lock(
    config: PipelineConfig, location: StorageLocation, folders: TrialFolders
) -> Finding:
    """Acquire and release a lock for trials, so that no writer of the table is affected."""
    lock = config.concurrency.lock
    with folders.open(location) as folder:
        opened = open_lock(
            open_storage(folder.location),
            provider=lock.provider,
            expire_minutes=lock.expire_minutes,
            options={**lock.resolved(names_lock=False), **_TRIAL_NAMES.get(lock.provider, {})},
        )
        with opened.hold(_LOCK_WAIT_S) as lease:
            lease.check()
    return Finding("a lock was acquired, checked and released", folder.warnings)
