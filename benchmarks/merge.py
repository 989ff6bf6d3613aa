"""Measures merging: the same file slice, compacted by lakemark and by Apache Hudi.

Each engine runs alone, in its own process, with two threads and the same heap. Each time it gets a
copy of the table, which has one pending compaction. Afterwards the rows are compared.

Then lakemark alone compacts a log that updates a part of the base rows: merged by event time, and
by a merger of single records that does the same in Python.

``python -m benchmarks.merge [--rows N] [--only GROUP,…] [--engines NAME,…] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import orders, tables
from benchmarks.engines import Engine, add_options, work_folder
from benchmarks.order_merger import MERGER
from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.read_contract import ReadAnswer, Sums
from benchmarks.read_figures import Figures
from lakemark.config.merger_name import MergerName
from lakemark.model.meta_columns import COMMIT_TIME, RECORD_KEY

LAKEMARK = "lakemark"
PER_RECORD = "per_record"
_COMPACT = "benchmarks.peers.lakemark_compact"
ENGINES = {
    LAKEMARK: Engine(_COMPACT, on_spark35=False),
    "hudi": Engine("benchmarks.peers.hudi_compact"),
    "sort_and_take": Engine("benchmarks.peers.arrow_sort", on_spark35=False),
}
_PER_RECORD = Engine(_COMPACT, ("--merger", MERGER.class_path), on_spark35=False)
#: The log updates one in so many base rows.
_COLLIDING = {"colliding_0.1%": 1000, "colliding_1%": 100, "colliding_10%": 10}
#: The engines that write a table.
_COMPACTORS = (LAKEMARK, "hudi")
_COMPARED = [COMMIT_TIME, RECORD_KEY, *orders.SCHEMA.names]


def main() -> None:
    arguments = parse_arguments()
    with work_folder(arguments.keep) as folder:
        run = Run(arguments, folder)
        for group in arguments.only:
            GROUPS[group](run)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(run.report(), indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows of base file and log each"
    )
    parser.add_argument("--repeats", type=int, default=3, help="how often a slice is compacted")
    add_options(parser, ENGINES, GROUPS)
    return parser.parse_args()


class Run:
    """A run of the benchmark: its folder, its settings, and the figures so far."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.layout = tables.Layout(arguments.rows, partitions=1, buckets=1)
        self.engines: list[str] = arguments.engines
        self._arguments = arguments
        self._figures = Figures(LAKEMARK)

    def compact(
        self, query: str, name: str, engine: Engine, original: Path, expected: Sums
    ) -> tuple[ReadAnswer, Path]:
        """Have an engine compact copies of a table; return its answer, and the last copy.

        Raises:
            RuntimeError: the engine failed, or wrote other rows.
        """
        scratch = self.folder / f"{query}-{name}"
        scratch.mkdir()
        copies = [copy(original, scratch / str(n)) for n in range(self._arguments.repeats)]
        task = ChangeTask(
            query,
            tuple(str(path) for path in copies),
            str(scratch / "answer.json"),
            self._arguments.driver_memory,
        )
        engine.run(task.to_json(), scratch)
        answer = ReadAnswer.read(Path(task.answer_path))
        check(name, answer, expected)
        for each in copies[:-1]:
            shutil.rmtree(each)
        return answer, copies[-1]

    def note(self, answers: Mapping[str, ReadAnswer]) -> None:
        """Print the figures of these engines."""
        self._figures.note(answers)

    def report(self) -> dict[str, object]:
        """Return settings and figures for the JSON report."""
        names = ("rows", "repeats", "driver_memory")
        return self._figures.report({name: getattr(self._arguments, name) for name in names})


def measure_compaction(run: Run) -> None:
    """Measure every engine with as many log rows as base rows."""
    layout = run.layout
    print(f"{layout.rows:,} log rows onto as many base rows, by event time", flush=True)
    table = run.folder / "table"
    write_slice(table, layout, tables.REWRITE)
    expected = tables.expected(layout, tables.REWRITE)
    done = {
        name: run.compact("compaction", name, ENGINES[name], table, expected)
        for name in run.engines
    }
    compare({name: path for name, (_, path) in done.items() if name in _COMPACTORS})
    run.note({name: answer for name, (answer, _) in done.items()})


def measure_custom(run: Run) -> None:
    """Measure logs of a part of the rows: by event time, and with a merger of single records."""
    layout = run.layout
    print(f"some log rows onto {layout.rows:,} base rows, by event time and by record", flush=True)
    engines = {LAKEMARK: (ENGINES[LAKEMARK], None), PER_RECORD: (_PER_RECORD, MERGER)}
    for query, one_in in _COLLIDING.items():
        deltas = (tables.Delta(1, tables.one_in(one_in)),)
        expected = tables.expected(layout, deltas)
        answers, compacted = {}, {}
        for name, (engine, merger) in engines.items():
            table = run.folder / f"{query}-{name}-table"
            write_slice(table, layout, deltas, merger)
            done = run.compact(query, name, engine, table, expected)
            answers[name], compacted[name] = done
            shutil.rmtree(table)
        compare(compacted, _COMPARED[1:])
        run.note(answers)


def write_slice(
    path: Path,
    layout: tables.Layout,
    deltas: Sequence[tables.Delta],
    merger: MergerName | None = None,
) -> None:
    """Create a table of one file slice with logs, and a pending compaction of it."""
    tables.create(path, layout, merger)
    for delta in deltas:
        tables.append(path, layout, delta, merger.class_path if merger else None)
    tables.plan_compaction(path)


def copy(original: Path, path: Path) -> Path:
    """Copy the table; data files, which never change, are hard links."""
    shutil.copytree(original / ".hoodie", path / ".hoodie")
    shutil.copytree(original, path, copy_function=os.link, ignore=_metadata, dirs_exist_ok=True)
    return path


def _metadata(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == ".hoodie"]


def check(name: str, given: ReadAnswer, expected: Sums) -> None:
    """Compare the sums of an engine with those of the written rows.

    Raises:
        RuntimeError: the sums differ.
    """
    for reading in given.readings:
        if reading.sums != expected:
            message = f"{name}: came to {reading.sums}, it was to be {expected}"
            raise RuntimeError(message)


def compare(compacted: Mapping[str, Path], columns: Sequence[str] = _COMPARED) -> None:
    """Compare the rows of two compacted tables, in the order of their keys.

    Args:
        compacted: the tables by engine; fewer than two are not compared.
        columns: the columns that must be the same.

    Raises:
        RuntimeError: the rows differ.
    """
    if len(compacted) < 2:
        return
    files = [tables.base_files(path) for path in compacted.values()]
    ordered = [pc.sort_indices(_column(file, RECORD_KEY, None)) for file in files]
    # Column by column, because all columns of both tables would not fit into memory.
    for name in columns:
        mine, other = (_column(file, name, rows) for file, rows in zip(files, ordered, strict=True))
        if not mine.equals(other):
            message = f"column {name} differs: {' and '.join(compacted)}"
            raise RuntimeError(message)


def _column(files: Sequence[str], name: str, rows: pa.Array | None) -> pa.ChunkedArray:
    """Read a column of the only base file, in this order of its rows."""
    (file,) = files
    column = pq.ParquetFile(file).read([name]).column(0)
    return column if rows is None else column.take(rows)


GROUPS: dict[str, Callable[[Run], None]] = {
    "compaction": measure_compaction,
    "custom": measure_custom,
}


if __name__ == "__main__":
    main()
