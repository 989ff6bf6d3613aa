from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path

from lakemark.execution.runner import LocalRunner, Result, Task
from lakemark.storage import StorageLocation, open_storage
from lakemark.transaction.deletion import delete_files


class OtherProcess(LocalRunner):
    """Pickles the function of the tasks, as a runner on Spark's workers does."""

    def __init__(self) -> None:
        super().__init__(2)
        self.sizes: list[int] = []

    def map(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        self.sizes = [len(task) for task in tasks if isinstance(task, Sequence)]
        there: Callable[[Task], Result] = pickle.loads(pickle.dumps(function))
        return super().map(there, tasks)


def test_thousands_of_files_are_deleted_in_several_tasks(tmp_path: Path) -> None:
    storage = open_storage(StorageLocation(str(tmp_path)))
    for name in ("first", "last", "kept"):
        storage.put(f"p/{name}", b"x")
    gone = (f"p/gone{number}" for number in range(2_000))
    runner = OtherProcess()
    delete_files(storage, ["p/first", *gone, "p/last"], runner)
    assert runner.sizes == [1_000, 1_000, 2]
    assert [info.name for info in storage.list_tree("p")] == ["kept"]
    delete_files(storage, [], runner)
    assert runner.sizes == []
