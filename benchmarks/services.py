"""Measures table services: the same table, changed by lakemark and by Apache Hudi.

``cluster``: a table of many small files, whose rows are in no order, is clustered: its files are
combined, and their rows are sorted by a column.

Each engine runs alone, in its own process, with two threads and the same heap. Each time it gets a
copy of the table. The first run includes the start of Python's modules, or the compilation of
Java's code; the steady time is the median of the others. Afterwards each engine sums up the rows of
its last table, which must be the sums of the written rows, and its files must be sorted.

``python -m benchmarks.services [--rows N] [--files N] [--engines NAME,…] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from shutil import rmtree

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakemark
from benchmarks import orders, tables
from benchmarks.engines import Engine, add_options, work_folder
from benchmarks.index import rows_sums
from benchmarks.merge import check, copy
from benchmarks.peers.change_contract import ChangeTask
from benchmarks.peers.lakemark_cluster import SORTED_BY
from benchmarks.peers.read_contract import ReadAnswer
from benchmarks.read_figures import Figures

LAKEMARK = "lakemark"
HUDI = "hudi"
ENGINES = {
    LAKEMARK: Engine("benchmarks.peers.lakemark_cluster", on_spark35=False),
    HUDI: Engine("benchmarks.peers.hudi_cluster"),
}
_PARTITIONS = 4
_SEED = 7


def main() -> None:
    arguments = parse_arguments()
    with work_folder(arguments.keep) as folder:
        figures = Figures(LAKEMARK)
        measure_clustering(arguments, folder, figures)
    if arguments.json is not None:
        names = ("rows", "files", "repeats", "driver_memory")
        report = figures.report({name: getattr(arguments, name) for name in names})
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--files", type=int, default=80, help="base files of the table")
    parser.add_argument("--repeats", type=int, default=3, help="clusterings of each engine")
    add_options(parser, ENGINES)
    return parser.parse_args()


def measure_clustering(arguments: argparse.Namespace, folder: Path, figures: Figures) -> None:
    """Have every engine cluster copies of a table.

    Raises:
        RuntimeError: an engine failed, or its table has other rows, or is not sorted.
    """
    table = folder / "table"
    files = create(table, arguments.rows, arguments.files)
    print(f"cluster: {arguments.rows:,} rows in {files} files, by {SORTED_BY}", flush=True)
    expected = rows_sums(np.arange(arguments.rows))
    answers = {}
    for name in arguments.engines:
        scratch = folder / name
        scratch.mkdir()
        copies = tuple(str(copy(table, scratch / str(n))) for n in range(arguments.repeats))
        answer_path = scratch / "answer.json"
        task = ChangeTask("cluster", copies, str(answer_path), arguments.driver_memory)
        ENGINES[name].run(task.to_json(), scratch)
        answers[name] = ReadAnswer.read(answer_path)
        check(name, answers[name], expected)
        check_clustered(name, Path(copies[-1]), files)
        rmtree(scratch)
    figures.note(answers)


def create(path: Path, rows: int, files: int) -> int:
    """Create a table of small files, whose rows are in no order; return the number of files."""
    table = lakemark.create(
        path,
        schema=orders.SCHEMA,
        record_key=orders.KEY,
        partition_by=orders.PARTITION,
        ordering=orders.ORDERING,
        index="lookup",
        only_writer=True,
    )
    numbers = np.random.default_rng(_SEED).permutation(rows)
    for part in np.array_split(numbers, max(1, files // _PARTITIONS)):
        table.bulk_insert(orders.rows(part, _PARTITIONS))
    return len(tables.base_files(path))


def check_clustered(name: str, path: Path, files_before: int) -> None:
    """Check that a table has fewer files than before, and that each of them is sorted.

    Raises:
        RuntimeError: it does not.
    """
    files = tables.base_files(path)
    if len(files) >= files_before:
        message = f"{name}: left {len(files)} of {files_before} files"
        raise RuntimeError(message)
    for file in files:
        values = pq.read_table(file, columns=[SORTED_BY]).column(0)
        if not pc.all(pc.less_equal(values[:-1], values[1:])).as_py():
            message = f"{name}: {file} is not sorted by {SORTED_BY}"
            raise RuntimeError(message)


if __name__ == "__main__":
    main()
