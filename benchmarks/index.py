"""Measures writes to tables whose index must be searched, beside Apache Hudi.

``bulk_insert``: each engine creates tables from the same rows. ``simple``, ``bloom`` and
``record_index``: Apache Hudi creates a merge-on-read table by a bulk insert. Then each engine
upserts the same rows into copies of it: half of them change scattered rows, the others are new. The
table of ``record_index`` is also queried for one key. ``lookup``: each engine queries one key of a
table that lakemark wrote, with a record index.

Each engine runs alone, in its own process, with two threads and the same heap. The first run
includes the start of Python's modules, or the compilation of Java's code; the steady time is the
median of the others. Afterwards each engine sums up the rows of its last table, which must be the
expected sums.

``python -m benchmarks.index [--rows N] [--changes N] [--only GROUP,…] [--engines NAME,…]``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from shutil import rmtree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import orders, tables
from benchmarks.engines import Engine, add_options, work_folder
from benchmarks.merge import check, copy
from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, ReadQuery, ReadTask, Sums
from benchmarks.read_figures import Figures

LAKEMARK = "lakemark"
HUDI = "hudi"
_LAKEMARK_UPSERT = "benchmarks.peers.lakemark_upsert"
_HUDI_UPSERT = "benchmarks.peers.hudi_upsert"
ENGINES = {
    LAKEMARK: Engine(_LAKEMARK_UPSERT, on_spark35=False),
    HUDI: Engine(_HUDI_UPSERT),
}
_CREATORS = {
    LAKEMARK: Engine(_LAKEMARK_UPSERT, ("--create",), on_spark35=False),
    HUDI: Engine(_HUDI_UPSERT, ("--create",)),
}
_READERS = {
    LAKEMARK: Engine("benchmarks.peers.lakemark_read", on_spark35=False),
    HUDI: Engine("benchmarks.peers.spark_read", ("--engine", HUDI)),
}
RECORD_INDEX = "record_index"
LOOKUP = "lookup"
_PARTITIONS = 8
#: How many rows are generated at a time.
_CHUNK_ROWS = 200_000


def main() -> None:
    arguments = parse_arguments()
    with work_folder(arguments.keep) as folder:
        run = Run(arguments, folder)
        for name in arguments.only:
            GROUPS[name](run)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(run.report(), indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000, help="rows of the table")
    parser.add_argument("--changes", type=int, default=1_000_000, help="rows of an upsert")
    parser.add_argument("--repeats", type=int, default=3, help="upserts of each engine")
    add_options(parser, ENGINES, GROUPS)
    return parser.parse_args()


class Run:
    """A run of the benchmark: its folder, its settings, and the figures so far."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments, self._folder = arguments, folder
        self._figures = Figures(LAKEMARK)
        self._rows, self._changes = folder / "rows", folder / "changes.parquet"
        write_rows(self._rows, arguments.rows)
        pq.write_table(changed_rows(arguments.rows, arguments.changes), self._changes)
        self._expected = expected_sums(arguments.rows, arguments.changes)

    def measure_bulk_insert(self) -> None:
        """Have every engine create tables from all rows.

        Raises:
            RuntimeError: an engine failed, or its table has other rows.
        """
        print(f"bulk_insert: {self._arguments.rows:,} rows", flush=True)
        created = rows_sums(np.arange(self._arguments.rows))
        self._figures.note({name: self._create(name, created) for name in self._arguments.engines})

    def _create(self, name: str, created: Sums) -> ReadAnswer:
        folder = self._folder / f"bulk_insert-{name}"
        folder.mkdir()
        paths = tuple(folder / str(number) for number in range(self._arguments.repeats))
        answer = self._run(_CREATORS[name], self._task("bulk_insert", paths, self._rows, folder))
        check(name, answer, created)
        rmtree(folder)
        return answer

    def measure_upserts(self, index: str) -> None:
        """Have every engine upsert into copies of a table with this index.

        Raises:
            RuntimeError: an engine failed, or its table has other rows.
        """
        print(
            f"{index}: {self._arguments.changes:,} rows into {self._arguments.rows:,}", flush=True
        )
        table = self._folder / index
        scratch = self._folder / f"{index}-create"
        scratch.mkdir()
        self._run(_CREATORS[HUDI], self._task(index, (table,), self._rows, scratch))
        self._figures.note(
            {name: self._upsert(index, name, table) for name in self._arguments.engines}
        )
        if index == RECORD_INDEX:
            self._figures.note(
                {name: self._look_up(name, table) for name in self._arguments.engines}
            )
        rmtree(table)

    def measure_lookup(self) -> None:
        """Have every engine query one key of a table that lakemark wrote, with a record index.

        Raises:
            RuntimeError: an engine failed, or found another row.
        """
        print(f"{LOOKUP}: one key of {self._arguments.rows:,}", flush=True)
        table, scratch = self._folder / LOOKUP, self._folder / f"{LOOKUP}-create"
        scratch.mkdir()
        self._run(_CREATORS[LAKEMARK], self._task(LOOKUP, (table,), self._rows, scratch))
        self._figures.note({name: self._look_up(name, table) for name in self._arguments.engines})
        rmtree(table)

    def _upsert(self, index: str, name: str, table: Path) -> ReadAnswer:
        folder = self._folder / f"{index}-{name}"
        folder.mkdir()
        copies = tuple(copy(table, folder / str(n)) for n in range(self._arguments.repeats))
        answer = self._run(ENGINES[name], self._task(index, copies, self._changes, folder))
        check(name, answer, self._expected)
        rmtree(folder)
        return answer

    def _look_up(self, name: str, table: Path) -> ReadAnswer:
        folder = self._folder / f"lookup-{name}"
        folder.mkdir()
        number = np.array([self._arguments.rows // 3])
        query = ReadQuery("lookup", key=orders.keys(number)[0].as_py())
        task = ReadTask(
            str(table),
            (),
            str(folder / "answer.json"),
            self._arguments.driver_memory,
            max(4, self._arguments.repeats),
            (query,),
        )
        answer = self._run(_READERS[name], task)
        check(name, answer, rows_sums(number))
        return answer

    def _run(self, engine: Engine, task: ChangeTask | ReadTask) -> ReadAnswer:
        answer_path = Path(task.answer_path)
        engine.run(task.to_json(), answer_path.parent)
        return ReadAnswer.read(answer_path)

    def _task(self, name: str, paths: tuple[Path, ...], rows: Path, scratch: Path) -> ChangeTask:
        answer_path = str(scratch / "answer.json")
        memory = self._arguments.driver_memory
        return ChangeTask(name, tuple(map(str, paths)), answer_path, memory, str(rows))

    def report(self) -> dict[str, object]:
        """Return settings and figures for the JSON report."""
        names = ("rows", "changes", "repeats", "driver_memory")
        return self._figures.report({name: getattr(self._arguments, name) for name in names})


def write_rows(folder: Path, rows: int) -> None:
    """Write the first rows as Parquet files."""
    folder.mkdir()
    for number, chunk in enumerate(_chunks(np.arange(rows))):
        pq.write_table(orders.rows(chunk, _PARTITIONS), folder / f"{number}.parquet")


def changed_rows(rows: int, changes: int) -> pa.Table:
    """Return new versions of scattered rows, and as many new rows."""
    return pa.concat_tables(
        [
            orders.rows(_updated(rows, changes), _PARTITIONS, version=1),
            orders.rows(_added(rows, changes), _PARTITIONS, version=1),
        ]
    )


def expected_sums(rows: int, changes: int) -> Sums:
    """Compute the sums of the rows after an upsert."""
    kept = np.setdiff1d(np.arange(rows), _updated(rows, changes), assume_unique=True)
    return rows_sums(kept) + tables.sums(changed_rows(rows, changes).to_batches())


def rows_sums(numbers: orders.Numbers) -> Sums:
    """Compute the sums of the first versions of these rows."""
    total = Sums()
    for chunk in _chunks(numbers):
        total += tables.sums(orders.rows(chunk, _PARTITIONS).to_batches())
    return total


def _updated(rows: int, changes: int) -> orders.Numbers:
    order = np.argsort(orders.scattered(np.arange(rows), seed=7), kind="stable")
    return np.sort(order[: changes // 2])


def _added(rows: int, changes: int) -> orders.Numbers:
    return np.arange(rows, rows + changes - changes // 2)


def _chunks(numbers: orders.Numbers) -> Iterator[orders.Numbers]:
    for first in range(0, len(numbers), _CHUNK_ROWS):
        yield numbers[first : first + _CHUNK_ROWS]


GROUPS: dict[str, Callable[[Run], None]] = {
    "bulk_insert": Run.measure_bulk_insert,
    **{
        name: partial(Run.measure_upserts, index=name) for name in ("simple", "bloom", RECORD_INDEX)
    },
    LOOKUP: Run.measure_lookup,
}


if __name__ == "__main__":
    main()
