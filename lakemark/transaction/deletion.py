"""Deleting many files of a table, by whatever runs its tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakemark.execution.runner import Runner
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.storage import Storage

#: So many names in a task: an object store takes as many in one request.
_FILES_PER_TASK = 1_000


def delete_files(storage: Storage, paths: Sequence[str], runner: Runner) -> None:
    """Remove files; a repeated or late attempt of a task does no harm.

    Args:
        storage: the table's root.
        paths: from there.
        runner: where tasks run; another process opens the table's location itself.
    """
    starts = range(0, len(paths), _FILES_PER_TASK)
    tasks = [tuple(paths[start : start + _FILES_PER_TASK]) for start in starts]
    runner.map(_Deletion(storage), tasks)


class _Deletion:
    """Deletes the files of a task; picklable to workers."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self, paths: Sequence[str]) -> None:
        self._storage.delete(paths)
        self._storage.make_durable()  # of a worker process, which the driver cannot force

    def __reduce__(self) -> tuple[Callable[[StorageLocation], _Deletion], tuple[StorageLocation]]:
        return _deletion_at, (self._storage.location,)


def _deletion_at(location: StorageLocation) -> _Deletion:
    return _Deletion(open_storage(location))
