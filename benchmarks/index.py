"""Measures upserts into a table whose index must be searched, beside Apache Hudi.

Apache Hudi creates a merge-on-read table by a bulk insert. Then each engine upserts the same rows
into copies of it: half of them change scattered rows, the others are new. Each engine runs alone,
in its own process, with two threads and the same heap. The first upsert includes the start of
Python's modules, or the compilation of Java's code; the steady time is the median of the others.
Afterwards each engine sums up the rows of its last copy, which must be the expected sums.

``python -m benchmarks.index [--rows N] [--changes N] [--only INDEX,…] [--engines NAME,…]``
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
from benchmarks.peers.read_contract import ReadAnswer, Sums
from benchmarks.peers.upsert_contract import UpsertTask
from benchmarks.read_figures import Figures

LAKEMARK = "lakemark"
_HUDI = "benchmarks.peers.hudi_upsert"
ENGINES = {
    LAKEMARK: Engine("benchmarks.peers.lakemark_upsert", on_spark35=False),
    "hudi": Engine(_HUDI),
}
_CREATE = Engine(_HUDI, ("--create",))
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

    def measure(self, index: str) -> None:
        """Have every engine upsert into copies of a table with this index.

        Raises:
            RuntimeError: an engine failed, or its table has other rows.
        """
        print(
            f"{index}: {self._arguments.changes:,} rows into {self._arguments.rows:,}", flush=True
        )
        table = self._folder / index
        task = self._task(index, (table,), self._rows, f"{index}-create")
        _CREATE.run(task.to_json(), Path(task.answer_path).parent)
        answers = {name: self._upsert(index, name, table) for name in self._arguments.engines}
        rmtree(table)
        self._figures.note(answers)

    def _upsert(self, index: str, name: str, table: Path) -> ReadAnswer:
        folder = self._folder / f"{index}-{name}"
        folder.mkdir()
        copies = tuple(copy(table, folder / str(n)) for n in range(self._arguments.repeats))
        task = self._task(index, copies, self._changes, f"{index}-{name}-log")
        ENGINES[name].run(task.to_json(), Path(task.answer_path).parent)
        answer = ReadAnswer.read(Path(task.answer_path))
        check(name, answer, self._expected)
        rmtree(folder)
        return answer

    def _task(
        self, index: str, copies: tuple[Path, ...], rows: Path, scratch_name: str
    ) -> UpsertTask:
        scratch = self._folder / scratch_name
        scratch.mkdir()
        return UpsertTask(
            index,
            tuple(map(str, copies)),
            str(rows),
            str(scratch / "answer.json"),
            self._arguments.driver_memory,
        )

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
    total = tables.sums(changed_rows(rows, changes).to_batches())
    updated = _updated(rows, changes)
    for chunk in _chunks(np.arange(rows)):
        kept = chunk[~np.isin(chunk, updated, assume_unique=True)]
        total += tables.sums(orders.rows(kept, _PARTITIONS).to_batches())
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
    name: partial(Run.measure, index=name) for name in ("bloom", "simple")
}


if __name__ == "__main__":
    main()
