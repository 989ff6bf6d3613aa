"""Measures reading: the same tables, read in turn by lakemark, Apache Hudi and Spark alone.

Each engine runs alone, in its own process, with two threads and the same heap. It runs every query
several times and drops the rows, then once more to compare its sums with those of the written rows.

``python -m benchmarks.read [--rows N] [--only GROUP,…] [--engines NAME,…] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import orders, tables
from benchmarks.engines import Engine, add_options, work_folder
from benchmarks.peers.read_contract import ReadAnswer, ReadQuery, ReadTask, Sums
from benchmarks.read_figures import Figures
from tests.interop.oracle import ApacheTable, Oracle

LAKEMARK = "lakemark"
ON_SPARK = "lakemark_on_spark"
HUDI = "hudi"
_INDEXED_ROWS = 200_000
_INDEXED_PARTITIONS = 8


ENGINES = {
    LAKEMARK: Engine("benchmarks.peers.lakemark_read", on_spark35=False),
    ON_SPARK: Engine("benchmarks.peers.spark_read", ("--engine", "lakemark")),
    HUDI: Engine("benchmarks.peers.spark_read", ("--engine", "hudi")),
    "parquet": Engine("benchmarks.peers.spark_read", ("--engine", "parquet")),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and the expected sums of its rows."""

    query: ReadQuery
    sums: Sums


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
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--buckets", type=int, default=2, help="file groups of a partition")
    parser.add_argument("--repeats", type=int, default=4, help="how often a query is timed")
    add_options(parser, ENGINES, GROUPS)
    return parser.parse_args()


class Run:
    """A run of the benchmark: its folder, its settings, and the figures so far."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.folder = folder
        self.layout = tables.Layout(arguments.rows, arguments.partitions, arguments.buckets)
        self._arguments = arguments
        self._figures = Figures(LAKEMARK)

    def ask(
        self,
        table: Path,
        asked: Sequence[Asked],
        engines: Sequence[str],
        repeats: int | None = None,
    ) -> None:
        """Run the queries on each of these engines, check the sums, and print the figures.

        Raises:
            RuntimeError: an engine failed, or its sums differ from those of the written rows.
        """
        chosen = [name for name in engines if name in self._arguments.engines]
        self._figures.note({name: self._answer(name, table, asked, repeats) for name in chosen})

    def oracle_folder(self) -> Path:
        """Return the folder of Apache Hudi's log while it writes a table."""
        folder = self.folder / "oracle"
        folder.mkdir()
        return folder

    def report(self) -> dict[str, object]:
        """Return settings and figures for the JSON report."""
        own = {name: getattr(self._arguments, name) for name in ("repeats", "driver_memory")}
        return self._figures.report({**asdict(self.layout), **own})

    def _answer(
        self, name: str, table: Path, asked: Sequence[Asked], repeats: int | None
    ) -> ReadAnswer:
        scratch = self.folder / f"{table.name}-{asked[0].query.name}-{name}"
        scratch.mkdir()
        task = ReadTask(
            table_path=str(table),
            files=tables.base_files(table),
            answer_path=str(scratch / "answer.json"),
            driver_memory=self._arguments.driver_memory,
            repeats=repeats or self._arguments.repeats,
            queries=tuple(each.query for each in asked),
        )
        ENGINES[name].run(task.to_json(), scratch)
        answer = ReadAnswer.read(Path(task.answer_path))
        check(name, answer, asked)
        return answer


def check(name: str, answer: ReadAnswer, asked: Sequence[Asked]) -> None:
    """Compare the sums of an engine with those of the written rows.

    Raises:
        RuntimeError: the sums differ.
    """
    for reading, each in zip(answer.readings, asked, strict=True):
        if reading.sums != each.sums:
            message = f"{name}, {reading.query}: read {reading.sums}, written were {each.sums}"
            raise RuntimeError(message)


def measure_base_files(run: Run) -> None:
    """Query file groups without logs: all rows, then a partition, a range, and a key."""
    table, layout = run.folder / "compacted", run.layout
    print(f"{layout.rows:,} rows, without logs", flush=True)
    tables.create(table, layout)
    all_rows = Asked(ReadQuery("read_optimized", "read_optimized"), tables.expected(layout))
    run.ask(table, [all_rows, *filters(layout)], list(ENGINES))


def filters(layout: tables.Layout) -> list[Asked]:
    """Return conditions that select one partition, one row in a hundred, and one row."""
    partition, key = layout.partitions // 2, layout.rows // 3
    first, end = layout.rows // 2, layout.rows // 2 + max(layout.rows // 100, 1)
    key_text = orders.keys(np.array([key]))[0].as_py()
    conditions: dict[str, tuple[str, tables.Condition]] = {
        "filter_partition": (
            f"{orders.PARTITION} = '{orders.partition_path(partition)}'",
            lambda numbers: numbers % layout.partitions == partition,
        ),
        "filter_range": (
            f"{orders.SEQUENCE} >= {first} and {orders.SEQUENCE} < {end}",
            lambda numbers: (numbers >= first) & (numbers < end),
        ),
        "filter_key": (
            f"_hoodie_record_key = '{key_text}'",
            lambda numbers: numbers == key,
        ),
    }
    return [
        Asked(
            ReadQuery(name, "read_optimized", where),
            tables.expected(layout, condition=condition),
        )
        for name, (where, condition) in conditions.items()
    ]


def measure_snapshot(run: Run) -> None:
    """Query file groups with two logs each."""
    table, layout = run.folder / "with_logs", run.layout
    print(f"{layout.rows:,} rows, a fifth of them updated in two delta commits", flush=True)
    tables.create(table, layout)
    for delta in tables.UPDATES:
        tables.append(table, layout, delta)
    asked = Asked(ReadQuery("snapshot"), tables.expected(layout, tables.UPDATES))
    run.ask(table, [asked], [LAKEMARK, ON_SPARK, HUDI])


def measure_merge(run: Run) -> None:
    """Query a file group whose log has all of its rows, once, to measure the memory."""
    table, layout = run.folder / "one_group", tables.Layout(run.layout.rows, 1, 1)
    print(f"{layout.rows:,} rows in one file group, all of them updated", flush=True)
    tables.create(table, layout)
    for delta in tables.REWRITE:
        tables.append(table, layout, delta)
    asked = Asked(ReadQuery("merge"), tables.expected(layout, tables.REWRITE))
    run.ask(table, [asked], [LAKEMARK], repeats=1)


def measure_lookup(run: Run) -> None:
    """Query one key of a table of Apache Hudi, with its record index and without."""
    layout = tables.Layout(_INDEXED_ROWS, _INDEXED_PARTITIONS, 1)
    print(f"{layout.rows:,} rows and a record index by Apache Hudi", flush=True)
    table = run.folder / "indexed"
    numbers = np.arange(layout.rows)
    write_indexed(table, orders.rows(numbers, layout.partitions), run.oracle_folder())
    number = layout.rows // 3
    key = orders.keys(np.array([number]))[0].as_py()
    wanted = tables.expected(layout, condition=lambda numbers: numbers == number)
    asked = [
        Asked(ReadQuery("lookup_by_index", key=key), wanted),
        Asked(ReadQuery("lookup_by_filter", where=f"_hoodie_record_key = '{key}'"), wanted),
    ]
    run.ask(table, asked, [LAKEMARK, HUDI])


def write_indexed(path: Path, rows: pa.Table, scratch: Path) -> None:
    """Have Apache Hudi create a table with its record index."""
    table = ApacheTable(
        tables.NAME,
        [orders.KEY],
        [orders.PARTITION],
        [orders.ORDERING],
        has_metadata=True,
        extra={
            "hoodie.index.type": "RECORD_INDEX",
            "hoodie.metadata.record.index.enable": "true",
            "hoodie.metadata.index.column.stats.enable": "false",
        },
    )
    oracle = Oracle(scratch)
    try:
        oracle.write(path, rows, table)
    finally:
        oracle.close()


GROUPS: dict[str, Callable[[Run], None]] = {
    "base_files": measure_base_files,
    "snapshot": measure_snapshot,
    "merge": measure_merge,
    "lookup": measure_lookup,
}


if __name__ == "__main__":
    main()
