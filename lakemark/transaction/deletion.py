"""Deletes many files of a table in parallel tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lakemark.execution.runner import Runner
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.storage import Storage

#: Number of files that a task deletes. An object store deletes this many in one request.
_FILES_PER_TASK = 1_000


def delete_files(storage: Storage, paths: Sequence[str], runner: Runner) -> None:
    """Delete files. A task may be repeated or run late without harm.

    Args:
        storage: the storage of the table's root.
        paths: the paths of the files, relative to the root.
        runner: runs the tasks. A task in another process opens the table's location itself.
    """
    starts = range(0, len(paths), _FILES_PER_TASK)
    tasks = [tuple(paths[start : start + _FILES_PER_TASK]) for start in starts]
    runner.map(_Deletion(storage), tasks)


class _Deletion:
    """Deletes the files of a task. The object can be pickled."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __call__(self, paths: Sequence[str]) -> None:
        self._storage.delete(paths)
        # The driver can only make changes of its own process durable. Only the deletions are made
        # durable, because a file that cannot be forced to a full disk must not prevent them.
        for path in {path.rpartition("/")[0]: path for path in paths}.values():
            self._storage.make_durable(path)

    def __reduce__(self) -> tuple[Callable[[StorageLocation], _Deletion], tuple[StorageLocation]]:
        return _deletion_at, (self._storage.location,)


def _deletion_at(location: StorageLocation) -> _Deletion:
    return _Deletion(open_storage(location))
