"""Runs pipelines in turn, each in its own process, and compares their times with one of them.

Each run is a process of ``lakemark run --once``, which reads a topic into a new table. The first
batches are left out, in which classes are loaded and most code is compiled. ``CPU`` is the
processor time of the Python process and of its JVM, without the broker. It depends less than the
seconds on what else runs on the machine. Needs Linux.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.cpu_time import cpu_time_s
from benchmarks.engines import add_report_options, machine, work_folder
from streamer.broker import EmbeddedBroker

_SAMPLE_EVERY_S = 0.25

#: The columns of the orders that all pipelines write.
COLUMNS = {
    "order_id": "string",
    "customer": "string",
    "region": "string",
    "status": "string",
    "amount": "decimal(10,2)",
    "quantity": "int",
    "updated_at": "bigint",
    "note": "string",
}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run took after its first batches.

    Attributes:
        records: the records of the other batches.
        seconds: the time from the last commit of the first batches to the last commit.
        cpu_s: the processor time in this time.
    """

    records: int
    seconds: float
    cpu_s: float

    @property
    def records_per_s(self) -> float:
        """The rate in steady state."""
        return self.records / self.seconds

    @property
    def cpu_us(self) -> float:
        """The processor time of a record, in microseconds."""
        return self.cpu_s / self.records * 1e6


@dataclass(frozen=True, slots=True)
class Comparison:
    """Pipelines that are run in turn.

    Attributes:
        broker: the broker with their topics.
        folder: the folder of the runs.
        batch: the records of a batch.
        skip: how many first batches do not count.
        repeats: how often each pipeline runs.
    """

    broker: EmbeddedBroker
    folder: Path
    batch: int
    skip: int
    repeats: int

    def run(self, pipelines: Mapping[str, Mapping[str, Any]], records: int) -> dict[str, list[Run]]:
        """Run the pipelines in turn; every second round has the reverse order.

        Args:
            pipelines: for each pipeline, the sections of its file, which are completed.
            records: the records of each topic.

        Raises:
            RuntimeError: a run failed, or has not written each record.
        """
        runs: dict[str, list[Run]] = {name: [] for name in pipelines}
        for repeat in range(self.repeats):
            for name in list(pipelines)[:: 1 if repeat % 2 == 0 else -1]:
                own = self.folder / f"{name.replace(' ', '_')}-{repeat}"
                own.mkdir()
                runs[name].append(self._run(self._completed(pipelines[name], own), own, records))
                print(f"{name}: {runs[name][-1]}", flush=True)
        return runs

    def _completed(self, sections: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        source = {
            "bootstrap_servers": self.broker.bootstrap,
            "max_records_per_batch": self.batch,
            **sections["source"],
        }
        table = {
            "path": str(folder / "table"),
            "record_key": ["order_id"],
            "partition_by": ["region"],
            "ordering": ["updated_at"],
            **sections.get("table", {}),
        }
        return {**sections, "source": source, "table": table}

    def _run(self, pipeline: Mapping[str, Any], folder: Path, records: int) -> Run:
        file, events = folder / "pipeline.yaml", folder / "events.jsonl"
        file.write_text(yaml.safe_dump(pipeline))
        command = [sys.executable, "-m", "lakemark", "run", str(file), "--once"]
        with (folder / "run.log").open("wb") as log:
            process = subprocess.Popen(
                [*command, "--events", str(events)], stdout=log, stderr=subprocess.STDOUT
            )
            with sampled(process.pid) as samples:
                process.wait()
        if process.returncode:
            message = f"{folder.name} failed:\n{(folder / 'run.log').read_text()[-4000:]}"
            raise RuntimeError(message)
        return run_of(_batches(events), samples, self.skip, records)


@dataclass(slots=True)
class CpuSamples:
    """The processor time of a process and its descendants at some times."""

    at_s: list[float] = field(default_factory=list)
    used_s: list[float] = field(default_factory=list)

    def add(self, at_s: float, used_s: float) -> None:
        """Add a sample. The time of a process that has ended is kept."""
        self.at_s.append(at_s)
        self.used_s.append(max(used_s, self.used_s[-1]) if self.used_s else used_s)

    def between(self, start_s: float, stop_s: float) -> float:
        """Return the processor time between two times, interpolated between samples."""
        start, stop = np.interp([start_s, stop_s], self.at_s, self.used_s)
        return float(stop - start)


@contextmanager
def sampled(pid: int) -> Iterator[CpuSamples]:
    """Sample the processor time of a process and its descendants until the block ends."""
    samples, ended = CpuSamples(), threading.Event()

    def sample() -> None:
        while True:
            samples.add(time.time(), cpu_time_s(pid))
            if ended.wait(_SAMPLE_EVERY_S):
                return

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield samples
    finally:
        ended.set()
        sampler.join()


def run_of(
    batches: Sequence[Mapping[str, Any]], samples: CpuSamples, skip: int, records: int
) -> Run:
    """Compute the figures of a run from its events ``BatchWritten``.

    Raises:
        RuntimeError: records were rejected or not read, or no batch remains.
    """
    read, rejects = (sum(one[name] for one in batches) for name in ("records_read", "rejects"))
    if read != records or rejects or len(batches) <= skip:
        message = (
            f"{read} of {records} records were read in {len(batches)} batches, of which {skip} do "
            f"not count, and {rejects} were rejected"
        )
        raise RuntimeError(message)
    times = [datetime.fromisoformat(one["time"]).timestamp() for one in batches]
    start_s, stop_s = times[skip - 1], times[-1]
    counted = sum(one["records_read"] for one in batches[skip:])
    return Run(counted, stop_s - start_s, samples.between(start_s, stop_s))


def as_lines(runs: Mapping[str, Sequence[Run]]) -> Iterator[str]:
    """Yield the lines of a table, with the medians of the ratios to the first pipeline.

    Both runs of a ratio are of the same round.
    """
    base = next(iter(runs.values()))
    yield "| | records/s | CPU of a record | rate / first | CPU / first |"
    yield "|---|---:|---:|---:|---:|"
    for name, own in runs.items():
        rates, base_rates = ([one.records_per_s for one in some] for some in (own, base))
        cpus, base_cpus = ([one.cpu_us for one in some] for some in (own, base))
        yield (
            f"| {name} | {statistics.median(rates):,.0f} | {statistics.median(cpus):.2f} µs "
            f"| {_ratios(rates, base_rates)} | {_ratios(cpus, base_cpus)} |"
        )


def add_options(parser: argparse.ArgumentParser, pipelines: Mapping[str, object]) -> None:
    """Add the options of a comparison of some of these pipelines."""
    parser.add_argument("--records", type=int, default=1_000_000, help="records of a topic")
    parser.add_argument("--batch", type=int, default=100_000, help="records of a batch")
    parser.add_argument("--skip", type=int, default=3, help="first batches that do not count")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each pipeline")
    add_report_options(parser, pipelines)


@contextmanager
def comparison(arguments: argparse.Namespace) -> Iterator[Comparison]:
    """Start the broker of a comparison, and delete the files of the runs at the end."""
    with work_folder(arguments.keep) as folder, EmbeddedBroker(folder / "broker") as broker:
        yield Comparison(broker, folder, arguments.batch, arguments.skip, arguments.repeats)


def report(runs: Mapping[str, Sequence[Run]], path: Path | None) -> None:
    """Print the table of a comparison; also write the figures of all runs to a file."""
    print("\n".join(as_lines(runs)), flush=True)
    if path is not None:
        figures = {
            name: [
                {"records": one.records, "seconds": one.seconds, "cpu_s": one.cpu_s} for one in own
            ]
            for name, own in runs.items()
        }
        path.write_text(json.dumps({"machine": machine(), "runs": figures}, indent=2) + "\n")


def _batches(events: Path) -> list[dict[str, Any]]:
    found = map(json.loads, events.read_text().splitlines())
    return [one for one in found if one["event"] == "BatchWritten"]


def _ratios(own: Sequence[float], base: Sequence[float]) -> str:
    ratios = [one / other for one, other in zip(own, base, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
