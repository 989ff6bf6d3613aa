"""Measures ingest: each engine in turn reads the same topic and writes a table of its own.

Each engine runs alone, in its own process, with two threads and the same heap. All engines run
before the next repeat. Afterwards every table must have exactly the newest state of every key.

``python -m benchmarks.ingest [--workloads NAME,…] [--engines NAME,…] [--repeats N] [--records N]
[--batch N] [--json FILE] [--plot FILE]``
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.engines import add_options, names_of, work_folder
from benchmarks.ingest.engines import ENGINES, Reader
from benchmarks.ingest.machine import describe
from benchmarks.ingest.measure import Measurement, Settings
from benchmarks.ingest.report import WorkloadReport, facts, overview
from benchmarks.plot import draw
from benchmarks.workloads.catalog import WORKLOADS
from benchmarks.workloads.workload import Workload
from tests.interop.oracle import oracle_python


def main() -> None:
    arguments = parse_arguments()
    check_readers(arguments.engines)
    about = describe(arguments.engines)
    print("\n".join(facts(about)), flush=True)
    reports: list[WorkloadReport] = []
    with work_folder(arguments.keep) as folder:
        for report in measure_all(arguments, folder):
            reports.append(report)
            print("\n".join(["", *report.as_lines()]), flush=True)
            save(arguments, as_json(about, reports))
    print("\n".join(["", *overview(reports)]), flush=True)
    if any(report.outcome.failures for report in reports):
        sys.exit(1)


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ingest", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--workloads", type=names_of(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--repeats", type=int, default=3, help="runs of each engine")
    parser.add_argument("--records", type=int, help="records of every workload")
    parser.add_argument("--batch", type=int, help="records in a large batch of every workload")
    parser.add_argument("--small-batches", type=int, default=21, help="batches of 100 records")
    parser.add_argument("--plot", type=Path, help="also draw the headline as SVG in this file")
    add_options(parser, ENGINES)
    return parser.parse_args(words)


def check_readers(engines: Sequence[str]) -> None:
    """Check that the program that reads the tables at the end is there.

    Raises:
        OracleUnavailable: Apache Hudi reads one of them, and its environment is missing.
    """
    if any(ENGINES[name].reader is Reader.APACHE_HUDI for name in engines):
        oracle_python()


def measure_all(arguments: argparse.Namespace, folder: Path) -> Iterator[WorkloadReport]:
    """Run the workloads, one after the other; delete their tables unless they shall be kept."""
    settings = Settings(arguments.engines, arguments.repeats, arguments.driver_memory)
    for name in arguments.workloads:
        workload = sized(WORKLOADS[name], arguments)
        yield WorkloadReport(
            name, workload, Measurement(name, workload, settings, folder / name).run()
        )
        if arguments.keep is None:
            shutil.rmtree(folder / name)


def sized(workload: Workload, arguments: argparse.Namespace) -> Workload:
    """Return a workload with the numbers of the command line."""
    resized = workload.resized(arguments.records, arguments.batch)
    return resized.with_last_batches(arguments.small_batches) if workload.is_small else resized


def as_json(about: Mapping[str, object], reports: Sequence[WorkloadReport]) -> dict[str, object]:
    """Return the report of all workloads that have run so far."""
    return {"about": dict(about), "workloads": {one.name: one.as_json() for one in reports}}


def save(arguments: argparse.Namespace, report: Mapping[str, object]) -> None:
    """Write the report, after each workload, so that an interrupted run keeps its figures."""
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    if arguments.plot is not None:
        arguments.plot.write_text(draw(report))


if __name__ == "__main__":
    main()
