"""Measures a table with a long history, and tables of many files.

``life``: thousands of small commits to one table, with all services at their defaults. The costs of
opening the table, a commit and a query are compared with those of a second, young table of fifty
commits. Both tables are measured in turn, so that other work of the machine slows both.
``wide``: commits to a few file groups of tables that have more and more of them.

``python -m benchmarks.long_life [--commits N] [--files N,…] [--only GROUP,…] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import orders, tables
from benchmarks.engines import add_report_options, work_folder
from benchmarks.long_life_figures import (
    Checkpoint,
    Holding,
    Meter,
    Window,
    as_lines,
    memory_bytes,
    report,
)
from benchmarks.orders import Numbers
from benchmarks.peers.read_contract import Sums
from benchmarks.tables import Delta, Layout, Mask
from lakemark.execution.runner import LocalRunner
from lakemark.operations.open_table import OpenTable
from lakemark.services.archival_plan import ArchivalPolicy
from lakemark.services.cleaning_plan import CleaningPolicy
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from streamer.services import ServicePolicies, TableServices
from tests.storages import CountingStorage

#: How many commits the young table has that a table is compared with at every checkpoint.
_YOUNG_COMMITS = 50
#: Each commit has one row in so many, so that as many consecutive commits contain all rows.
_TURNS = 10
_CHECKPOINTS = (50, 500, 1_000, 2_000, 3_000)
_SERVICES = ServicePolicies(CompactionPolicy(), CleaningPolicy(), ArchivalPolicy())

#: Partitions of a wide table, and rows of each file: enough that hardly any bucket is empty.
_WIDE_PARTITIONS, _ROWS_OF_FILE = 10, 12
_WIDE_FILES = "200,1000,10000"
_WIDE_COMMITS, _WIDE_QUERIES = 40, 5
_TOUCHED_ROWS = 4


def main() -> None:
    arguments = parse_arguments()
    with work_folder(arguments.keep) as folder:
        reports = {group: GROUPS[group](arguments, folder) for group in arguments.only}
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(reports, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=_CHECKPOINTS[-1], help="commits of one life")
    parser.add_argument("--rows", type=int, default=100, help="rows in each commit")
    parser.add_argument("--window", type=int, default=50, help="commits measured at a checkpoint")
    parser.add_argument(
        "--files", type=_sizes, default=_WIDE_FILES, help="files of each wide table"
    )
    add_report_options(parser, GROUPS)
    return parser.parse_args()


def _sizes(text: str) -> list[int]:
    """Parse numbers of files, which are divided among the partitions."""
    sizes = [int(part) for part in text.split(",")]
    if any(size <= 0 or size % _WIDE_PARTITIONS for size in sizes):
        message = f"{text!r}: each number of files must be a multiple of {_WIDE_PARTITIONS}"
        raise argparse.ArgumentTypeError(message)
    return sizes


class Subject:
    """The measured table, which one long-running process has open.

    Args:
        path: the path of the table.
        layout: the layout of the table.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.layout = layout
        self._path = path
        self._storage = CountingStorage(open_storage(StorageLocation(str(path))))
        self._meter = Meter(self._storage)
        self._writer = tables.writer_of(self._open(), layout)
        self._writer.recover()
        services = TableServices([self._writer], _SERVICES, LocalRunner(), lambda event: None)
        self._services = services

    def commit(self, delta: Delta, window: Window) -> None:
        """Commit rows, and run the services that are due after it."""
        changed = [(bucket, list(rows)) for bucket, rows in tables.changes(self.layout, delta)]
        changed = [(bucket, rows) for bucket, rows in changed if sum(map(len, rows))]
        _, cost = self._meter.measure(lambda: tables.commit(self._writer, changed))
        window.note("commit", cost)
        _, cost = self._meter.measure(self._services.run)
        window.note("services", cost)

    def query(self, window: Window, where: pc.Expression | None = None) -> pa.Table:
        """Open the table again, and read its latest rows."""
        table, cost = self._meter.measure(self._opened)
        window.note("open", cost)
        rows, cost = self._meter.measure(lambda: table.scan(where=where).to_reader().read_all())
        window.note("query", cost)
        return rows

    def at(self, commits: int, window: Window, young: Window) -> Checkpoint:
        """Return the costs and sizes of the table now; ``young`` are costs of the young table."""
        hoodie = self._path / ".hoodie"
        holdings = {
            ".hoodie": Holding.of(hoodie, without=["metadata"]),
            ".hoodie/metadata": Holding.of(hoodie / "metadata"),
            "data": Holding.of(self._path, without=[".hoodie"]),
        }
        steps, compared = window.figures(), young.figures()
        return Checkpoint(commits, steps, compared, holdings, memory_bytes())

    def _open(self) -> OpenTable:
        return OpenTable(self._storage, read_properties(self._storage))

    def _opened(self) -> OpenTable:
        """Open the table, and read what its first query needs, whatever its condition is."""
        table = self._open()
        assert table.snapshot.partial_views() is not None
        return table


def live(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Make many small commits to one table, and measure it in turn with a young one."""
    layout = Layout(arguments.rows * _TURNS, partitions=4, buckets=2)
    old = _Life(folder / "old", layout)
    checkpoints: list[Checkpoint] = []
    for end in [*(c for c in _CHECKPOINTS if c < arguments.commits), arguments.commits]:
        old.go_on_until(end - arguments.window)
        young = _Life(folder / f"young{end}", layout)
        young.go_on_until(_YOUNG_COMMITS)
        window, young_window = Window(), Window()
        for _ in range(arguments.window):
            old.measure(window)
            young.measure(young_window)
        checkpoints.append(old.subject.at(end, window, young_window))
        print("\n".join(as_lines(checkpoints[-1])), flush=True)
    names = ("commits", "rows", "window")
    return report(checkpoints, {name: getattr(arguments, name) for name in names})


class _Life:
    """A table that gets small commits; every tenth of them writes the same row again."""

    def __init__(self, path: Path, layout: Layout) -> None:
        tables.create(path, layout, metadata_table=True)
        self.subject = Subject(path, layout)
        self._layout = layout
        self._deltas: list[Delta] = []
        self._commits = 0

    def go_on_until(self, commits: int) -> None:
        """Commit until the table has so many commits."""
        while self._commits < commits:
            self._commit(Window())

    def measure(self, window: Window) -> None:
        """Measure one more commit, and a query."""
        self._commit(window)
        check(self.subject.query(window), tables.expected(self._layout, tuple(self._deltas)))

    def _commit(self, window: Window) -> None:
        self._commits += 1
        delta = Delta(self._commits, tables.one_in(_TURNS, self._commits % _TURNS))
        self._deltas = [*self._deltas, delta][-_TURNS:]
        self.subject.commit(delta, window)


def widen(arguments: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Measure commits to a few file groups of tables that have more and more of them."""
    first = Window()
    checkpoints: list[Checkpoint] = []
    for files in arguments.files:
        window = Window()
        subject = _wide(folder / f"wide{files}", files, window)
        if not checkpoints:
            first = window
        print(f"{files:,} files", flush=True)
        checkpoints.append(subject.at(_WIDE_COMMITS, window, first))
        print("\n".join(as_lines(checkpoints[-1])), flush=True)
    return report(checkpoints, {"partitions": _WIDE_PARTITIONS, "files": arguments.files})


def _wide(path: Path, files: int, window: Window) -> Subject:
    layout = Layout(files * _ROWS_OF_FILE, _WIDE_PARTITIONS, files // _WIDE_PARTITIONS)
    tables.create(path, layout, metadata_table=True)
    subject = Subject(path, layout)
    for number in range(1, _WIDE_COMMITS + 1):
        subject.commit(Delta(number, first_rows), window)
    expected = tables.expected(layout, (Delta(_WIDE_COMMITS, first_rows),), first_rows)
    for _ in range(_WIDE_QUERIES):
        where = pc.field(orders.SEQUENCE) < _TOUCHED_ROWS
        check(subject.query(window, where), expected)
    return subject


def first_rows(numbers: Numbers) -> Mask:
    """Choose a few rows, each of another file group."""
    mask: Mask = numbers < _TOUCHED_ROWS
    return mask


def check(rows: pa.Table, expected: Sums) -> None:
    """Compare the sums of a query with those of the written rows.

    Raises:
        RuntimeError: the sums differ.
    """
    found = tables.sums(rows.to_batches())
    if found != expected:
        message = f"the table holds {found}, it was to be {expected}"
        raise RuntimeError(message)


GROUPS: dict[str, Callable[[argparse.Namespace, Path], dict[str, object]]] = {
    "life": live,
    "wide": widen,
}


if __name__ == "__main__":
    main()
