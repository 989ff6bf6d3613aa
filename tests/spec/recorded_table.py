"""A table whose every write is recorded, and a history in which every action occurs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import pyarrow as pa

from lakemark.config.table_properties import MAINTAINED_INDEXES, TableType
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import Operation
from lakemark.model.format_version import FormatVersion
from lakemark.model.instant import Instant
from lakemark.model.row_order import RowOrder
from lakemark.operations.clean import clean
from lakemark.operations.cluster import cluster_table
from lakemark.operations.compact_logs import compact_logs
from lakemark.operations.create_index import create_index
from lakemark.operations.partition_deletion import match_partitions
from lakemark.operations.savepoint import create_savepoint
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.write import RowWriter
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.clustering_plan import ClusteringPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.services.restore import restore
from lakemark.storage.storage import Storage
from lakemark.timeline.layout import LayoutV1, LayoutV2, TimelineLayout
from tests.storages.wrapped_storage import WrappedStorage
from tests.table_services import new_storage
from tests.tables import SCHEMA, Row, commit, lookup_writer, make, write_files

T = TypeVar("T")

_RUNNER = LocalRunner(1)

METADATA = ".hoodie/metadata/"


@dataclass(frozen=True, slots=True)
class Write:
    """One write to a storage.

    Attributes:
        method: the method of ``Storage``; a streaming file is written by ``close``.
        path: the path of the object.
        content: the object's content after the write; empty after a deletion.
    """

    method: str
    path: str
    content: bytes


class RecordedStorage(WrappedStorage):
    """Records every write, in order."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self.writes: list[Write] = []
        self._lock = threading.Lock()

    def _writing(self, method: str, path: str, call: Callable[[], T]) -> T:
        with self._lock:
            answer = call()
            has_content = method in ("create", "close", "put", "replace", "publish")
            content = self.inner.read(path) if has_content else b""
            self.writes.append(Write(method, path, content))
        return answer


@dataclass(frozen=True)
class History:
    """The writes of a history.

    Attributes:
        storage: the storage at its end.
        writes: all writes, in order.
        layout: the layout of the timeline.
    """

    storage: Storage
    writes: tuple[Write, ...]
    layout: TimelineLayout

    def states(self, below: str = "") -> Iterator[tuple[int, Instant, Write]]:
        """Yield each state that an instant reached, with the number of its write.

        Args:
            below: the folder of the table, ``METADATA`` for the metadata table.
        """
        folder = f"{below}{self.layout.folder}"
        for number, write in enumerate(self.writes):
            parent, _, name = write.path.rpartition("/")
            instant = self.layout.parse(name) if parent == folder else None
            if instant is not None and write.method != "delete":
                yield number, instant, write

    def number_of(self, requested_at: str, state: State, below: str = "") -> int:
        """Return the number of the write with which an instant other than a savepoint got there."""
        found = [
            number
            for number, instant, _ in self.states(below)
            if (instant.requested_at, instant.state) == (requested_at, state)
            and instant.action is not Action.SAVEPOINT
        ]
        return found[0]


def every_action(version: FormatVersion = FormatVersion.V9) -> History:
    """Return a history in which each action occurs that a merge-on-read table can have.

    The table has a lookup index, and is in memory. It is written once for each version.
    """
    return _every_action(version)


@cache
def _every_action(version: FormatVersion) -> History:
    recorded = RecordedStorage(new_storage())
    make(recorded, indexes=MAINTAINED_INDEXES[:1], version=version)
    for step in _STEPS:
        step(_started(recorded))
    layout = LayoutV1() if version.timeline_layout == 1 else LayoutV2()
    return History(recorded.inner, tuple(recorded.writes), layout)


@cache
def copy_on_write() -> History:
    """Return a history of two commits to a copy-on-write table."""
    recorded = RecordedStorage(new_storage())
    make(recorded, TableType.COPY_ON_WRITE, MAINTAINED_INDEXES[:1])
    for ts in (1, 2):
        commit(_started(recorded), [Row("a", ts, ts), Row(f"b{ts}", ts, ts, region="south")])
    return History(recorded.inner, tuple(recorded.writes), LayoutV2())


def _started(storage: Storage) -> TableWriter:
    """Open a writer, as a process does that has just started."""
    to = lookup_writer(storage)
    to.table.runner = _RUNNER
    to.recover()
    return to


def _update(to: TableWriter) -> None:
    """Commit new versions of two rows, in two partitions."""
    ts = len(to.table.timeline.instants)
    commit(to, [Row("a", ts, ts), Row("c", ts, ts, region="south")])


def _insert(to: TableWriter) -> None:
    commit(to, [Row("a", 0, 1), Row("b", 0, 1), Row("c", 0, 1, region="south")])


def _compact_logs(to: TableWriter) -> None:
    assert compact_logs(to.table, _RUNNER, min_logs=2)


def _compact(to: TableWriter) -> None:
    assert to.compact_if_due(CompactionPolicy(1), _RUNNER)


def _clean(to: TableWriter) -> None:
    assert clean(to.table, CleaningPolicy(commits=1))


def _cluster(to: TableWriter) -> None:
    assert cluster_table(to.table, ClusteringPolicy(order=RowOrder(("v",))))


def _index(to: TableWriter) -> None:
    create_index(to.table, "record_index")


def _overwrite(to: TableWriter) -> None:
    rows = pa.Table.from_pylist([{"id": "d", "region": "west", "ts": 1, "v": 1}], SCHEMA)
    RowWriter(to.table, runner=_RUNNER).overwrite(rows, Operation.INSERT_OVERWRITE)


def _delete_partition(to: TableWriter) -> None:
    chosen = match_partitions(to.table, ["west"])
    RowWriter(to.table, runner=_RUNNER).delete_partitions(chosen)


def _roll_back(to: TableWriter) -> None:
    write_files(to, [Row("z", 1, 1)])
    to.abandon()


def _savepoint(to: TableWriter) -> None:
    newest = to.table.timeline.completed(Action.DELTA_COMMIT)[-1]
    create_savepoint(to.table, newest.requested_at, "ann", "before the restore")


def _restore(to: TableWriter) -> None:
    (savepoint,) = to.table.timeline.completed(Action.SAVEPOINT)
    restore(to.table.context, savepoint.requested_at, is_merge_on_read=True)


_STEPS: tuple[Callable[[TableWriter], None], ...] = (
    _insert,
    _update,
    _update,
    _compact_logs,
    _compact,
    _update,
    _compact,
    _clean,
    _cluster,
    _index,
    _overwrite,
    _delete_partition,
    _update,
    _savepoint,
    _update,
    _roll_back,
    _restore,
)
