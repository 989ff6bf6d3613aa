"""Counts the requests to an object store that wait for each other.

Every request to the store takes a fixed time, as over a network. So a step takes about as long as
its longest chain of requests that were made one after the other. The table is in the memory of this
process, so the store itself takes no time.

``python -m benchmarks.round_trips [--latency-ms N] [--commits N] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import NamedTuple

import pyarrow.compute as pc
from obstore.store import MemoryStore

from benchmarks import orders, tables
from benchmarks.tables import Delta, Layout
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.storage.object_storage import ObjectStorage, StoreAbilities
from lakemark.storage.properties_file import read_properties

_LAYOUT = Layout(800, partitions=4, buckets=2)
_REPEATS = 3
_LIKE_S3 = StoreAbilities(copies_conditionally=False)


class Request(NamedTuple):
    """One request: its path, and when it began and ended."""

    path: str
    began_s: float
    ended_s: float


class DistantStorage(ObjectStorage):
    """Objects in memory; each request takes a fixed time, and is recorded.

    Args:
        latency_s: the duration of each request.
    """

    def __init__(self, latency_s: float) -> None:
        location = StorageLocation("memory://round-trips/orders")
        super().__init__(location, MemoryStore(), "orders", _LIKE_S3, open_storage)
        self._latency_s, self._lock = 0.0, Lock()
        self.latency_s = latency_s
        self.requests: list[Request] = []

    def copy_from(self, folder: Path) -> None:
        """Store the files of a folder, without delay."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(str(path.relative_to(folder)), path.read_bytes())
        self._latency_s = self.latency_s

    @contextmanager
    def _request(self, path: str) -> Iterator[None]:
        began_s = time.perf_counter()
        time.sleep(self._latency_s)
        try:
            with super()._request(path):
                yield
        finally:
            with self._lock:
                self.requests.append(Request(path, began_s, time.perf_counter()))


@dataclass(frozen=True, slots=True)
class Trips:
    """The requests of one step.

    Attributes:
        requests: the number of requests.
        sequential: the largest number of them of which each began after the one before had ended.
        wall_s: how long the step took.
    """

    requests: int
    sequential: int
    wall_s: float

    @classmethod
    def of(cls, requests: Sequence[Request], wall_s: float) -> Trips:
        """Count the requests of a step."""
        sequential, free_at_s = 0, 0.0
        for request in sorted(requests, key=lambda one: one.ended_s):
            if request.began_s >= free_at_s:
                sequential, free_at_s = sequential + 1, request.ended_s
        return cls(len(requests), sequential, wall_s)


def measure(storage: DistantStorage, step: Callable[[], object]) -> Trips:
    """Run a step, and count its requests."""
    storage.requests.clear()
    began_s = time.perf_counter()
    step()
    return Trips.of(storage.requests, time.perf_counter() - began_s)


def create_table(latency_s: float) -> DistantStorage:
    """Return a store with a new table."""
    storage = DistantStorage(latency_s)
    with TemporaryDirectory() as folder:
        tables.create(Path(folder) / "orders", _LAYOUT, metadata_table=True)
        storage.copy_from(Path(folder) / "orders")
    return storage


def steps(storage: DistantStorage, commits: int) -> Iterator[tuple[str, Trips]]:
    """Yield the name and the requests of each step; every step but the first several times."""
    writer = tables.writer_of(OpenTable(storage, read_properties(storage)), _LAYOUT)
    yield "start of a writer", measure(storage, writer.recover)
    for number in range(commits):
        _commit(writer, number)
    for number in range(commits, commits + _REPEATS):
        yield "commit", measure(storage, partial(_commit, writer, number))
        yield "open", measure(storage, partial(_opened, storage))
        for name, condition in _CONDITIONS.items():
            table = _opened(storage)
            yield name, measure(storage, partial(_read, table, condition))


def _opened(storage: Storage) -> OpenTable:
    table = OpenTable(storage, read_properties(storage))
    assert table.snapshot.partial_views() is not None
    return table


def _read(table: OpenTable, condition: pc.Expression | None) -> None:
    table.scan(where=condition).to_reader().read_all()


def _commit(writer: TableWriter, number: int) -> None:
    """Update one row in four, so that every file group is written."""
    delta = Delta(number + 1, tables.one_in(4, number % 4))
    tables.commit(writer, tables.changes(_LAYOUT, delta))


_CONDITIONS = {
    "query of one partition": pc.field(orders.PARTITION) == orders.partition_path(1),
    "query by a range of a column": pc.field(orders.SEQUENCE) < 4,
    "query of all rows": None,
}


def main() -> None:
    arguments = _parse_arguments()
    storage = create_table(arguments.latency_ms / 1000)
    found: dict[str, list[Trips]] = {}
    for name, trips in steps(storage, arguments.commits):
        found.setdefault(name, []).append(trips)
    middle = {name: _median(of_step) for name, of_step in found.items()}
    print(f"{'':32}{'requests':>10}{'sequential':>12}{'wall':>10}")
    for name, trips in middle.items():
        print(f"{name:32}{trips.requests:>10}{trips.sequential:>12}{trips.wall_s:>8.2f} s")
    if arguments.json is not None:
        report = {name: asdict(trips) for name, trips in middle.items()}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def _median(trips: Sequence[Trips]) -> Trips:
    return sorted(trips, key=lambda one: one.sequential)[len(trips) // 2]


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=40.0, help="duration of a request")
    parser.add_argument("--commits", type=int, default=7, help="commits before the measured ones")
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    main()
