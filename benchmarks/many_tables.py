"""Measures many tables in one process: their rate together, and what they cost while idle.

``one``: a pipeline reads all records from one topic into one table. ``many``: the same number of
records is in as many topics as there are tables, and one process of ``lakemark run`` reads them.
Both runs are continuous. When a run has read everything, the CPU time of its processes is measured
while no records come. ``batches`` and ``records/s`` count from the first planned batch of the run
to its last commit.

``python -m benchmarks.many_tables [--tables N] [--records N] [--idle-s S] [--json FILE]``
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

import yaml

from benchmarks.cpu_time import cpu_time_s
from benchmarks.engines import add_report_options, machine, work_folder
from benchmarks.pipelines import COLUMNS
from streamer.broker import EmbeddedBroker
from streamer.demo import create_topic, produce
from streamer.demo.order_stream import OrderMix

#: No broken messages, so that each record is a row, and no dead-letter tables are created.
_MIX = OrderMix(broken=0.0)
_KEYS = 10_000
_PARTITIONS = 2

#: Seconds after the last commit before the idle time begins: streams of idle pipelines end.
_SETTLE_S = 15.0

#: Seconds without a further commit after which a run counts as failed.
_STALLED_S = 120.0


@dataclass(frozen=True)
class Figures:
    """The figures of one run.

    Attributes:
        tables: the number of tables.
        records: the number of records of all topics.
        batches: the number of commits.
        seconds: the time from the first planned batch to the last commit.
        idle_cpu_share: the CPU seconds of all processes per second, while no records come.
        memory_bytes: the resident memory of the Python process and of its JVM at the end.
    """

    tables: int
    records: int
    batches: int
    seconds: float
    idle_cpu_share: float
    memory_bytes: int

    @property
    def records_per_s(self) -> float:
        """The rate of all tables together."""
        return self.records / self.seconds


def main() -> None:
    """Measure both runs, and print their figures."""
    arguments = parse_arguments()
    with work_folder(arguments.keep) as folder, EmbeddedBroker(folder / "broker") as broker:
        total = arguments.tables * arguments.records
        figures = {
            "one": measure(broker.bootstrap, folder / "one", 1, total, arguments.idle_s),
            "many": measure(
                broker.bootstrap, folder / "many", arguments.tables, total, arguments.idle_s
            ),
        }
    print("\n".join(as_lines(figures)))
    if arguments.json is not None:
        report = {"machine": machine(), "runs": {n: asdict(one) for n, one in figures.items()}}
        arguments.json.write_text(json.dumps(report, indent=2))


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--records", type=int, default=20_000, help="of each of the many tables")
    parser.add_argument("--idle-s", type=float, default=20.0)
    add_report_options(parser)
    return parser.parse_args()


def measure(bootstrap: str, folder: Path, tables: int, records: int, idle_s: float) -> Figures:
    """Measure a process that reads ``records`` records from as many topics as there are tables."""
    pipelines = folder / "pipelines"
    pipelines.mkdir(parents=True)
    for number in range(tables):
        topic = f"{folder.name}-{number:03}"
        create_topic(bootstrap, topic, partitions=_PARTITIONS)
        count = records // tables
        produce(bootstrap, topic, count, keys=_KEYS, mix=_MIX, partitions=_PARTITIONS)
        text = yaml.safe_dump(_pipeline(bootstrap, topic, folder / "lake" / topic))
        (pipelines / f"{topic}.yaml").write_text(text)
    events = folder / "events.jsonl"
    given = sorted(map(str, pipelines.iterdir())) if tables == 1 else [str(pipelines)]
    with running([*given, "--events", str(events)], folder / "run.log") as process:
        written = wait_for(process, events, records)
        time.sleep(_SETTLE_S)
        began, used_s = time.monotonic(), cpu_time_s(process.pid)
        time.sleep(idle_s)
        share = (cpu_time_s(process.pid) - used_s) / (time.monotonic() - began)
        return Figures(
            tables,
            records,
            len(written),
            run_s(events),
            share,
            sum(map(_memory_bytes, _processes(process.pid))),
        )


@contextmanager
def running(arguments: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``lakemark run`` until the block ends."""
    command = [sys.executable, "-m", "lakemark", "run", *arguments]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def wait_for(process: subprocess.Popen[bytes], events: Path, records: int) -> list[dict[str, int]]:
    """Return the commits of a run, when they have read all records."""
    read, changed_at = -1, time.monotonic()
    while True:
        written = list(_events(events, "BatchWritten"))
        before, read = read, sum(one["records_read"] for one in written)
        if read >= records:
            return written
        if read > before:
            changed_at = time.monotonic()
        if process.poll() is not None or time.monotonic() - changed_at > _STALLED_S:
            message = f"the run has read {read} of {records} records; its log is run.log"
            raise RuntimeError(message)
        time.sleep(0.5)


def as_lines(figures: dict[str, Figures]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| | tables | records/s | batches | CPU while idle | memory |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, one in figures.items():
        yield (
            f"| {name} | {one.tables} | {one.records_per_s:,.0f} | {one.batches} "
            f"| {one.idle_cpu_share:.1%} of a core | {one.memory_bytes >> 20:,} MiB |"
        )


def _pipeline(bootstrap: str, topic: str, path: Path) -> dict[str, object]:
    return {
        "source": {"bootstrap_servers": bootstrap, "topic": topic},
        "decode": {"schema": COLUMNS},
        "table": {"path": str(path), "record_key": "order_id", "ordering": "updated_at"},
    }


def _events(path: Path, kind: str) -> Iterator[dict[str, int]]:
    if not path.exists():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n") and f'"event": "{kind}"' in line:
            yield json.loads(line)


def run_s(events: Path) -> float:
    """Return the time from the first planned batch to the last commit."""
    planned, written = (
        [datetime.fromisoformat(str(one["time"])) for one in _events(events, kind)]
        for kind in ("BatchPlanned", "BatchWritten")
    )
    return (max(written) - min(planned)).total_seconds()


def _processes(pid: int) -> list[int]:
    """Return a process and its children: the JVM."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _memory_bytes(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
