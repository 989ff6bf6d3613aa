"""Shows where the time of the first batch and of small batches goes.

The topic has large batches first, and then batches of 100 records. Each repeat reads all of them
with two runs of lakemark, one for each size, whose steps are measured
(``benchmarks.peers.timed_lakemark``). The floor is measured by ``benchmarks.ingest``.

``python -m benchmarks.batch_stages [--repeats N] [--batches N]``
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from benchmarks.engines import work_folder
from benchmarks.peers import lakemark_stream
from benchmarks.peers.contract import Task
from benchmarks.peers.timed_lakemark import (
    CALL,
    COLLECT,
    COMMIT,
    PLAN,
    PUBLISH,
    SAMPLE,
    START,
    STREAM,
)
from benchmarks.workloads.catalog import WORKLOADS
from benchmarks.workloads.sending import send
from benchmarks.workloads.workload import KAFKA_PARTITIONS
from streamer.broker import EmbeddedBroker

_LARGE = 200_000
_LARGE_BATCHES = 4
_SMALL = 100
#: Small batches that do not count, because the JVM compiles most of its code during them.
_WARM_UP = 5
_TOPIC = "stages"
_WAIT_FOR_SPARK = "Spark, between two calls"
_INTERVAL = "from one publication to the next"
#: The steps of a small batch, in the order of the report.
_SMALL_STEPS = (_WAIT_FOR_SPARK, PLAN, COLLECT, PUBLISH, COMMIT, _INTERVAL)
#: The steps before the first batch is published.
_FIRST_STEPS = (SAMPLE, START, PLAN, COLLECT, PUBLISH)
_UNTIL_FIRST_CALL = "until Spark calls for the first batch"
_UNTIL_PUBLISHED = "until the first batch is published"

#: A call of a step: when it began, in seconds since the epoch, and how many seconds it took.
Call = tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batches", type=int, default=40, help="batches of 100 records")
    parser.add_argument("--keep", type=Path, help="work in this new folder, and keep it")
    arguments = parser.parse_args()
    counts = {_LARGE: _LARGE_BATCHES, _SMALL: arguments.batches}
    measured: dict[int, list[Steps]] = {size: [] for size in counts}
    with work_folder(arguments.keep) as folder, EmbeddedBroker(folder / "b", heap="1g") as broker:
        sent = 0
        for size, count in counts.items():
            workload = WORKLOADS["small_batches"]
            send(broker.bootstrap, _TOPIC, workload, sent, size * count)
            sent += size * count
            for repeat in range(arguments.repeats):
                steps = run(broker.bootstrap, size, folder / f"{repeat}")
                measured[size].append(steps)
    for size, runs in measured.items():
        print_table(f"first batch, {size:,} records", [steps.first() for steps in runs])
    print_table(f"batches of {_SMALL} records", [steps.usual() for steps in measured[_SMALL]])


class Steps:
    """The calls of each step in one run."""

    def __init__(self, report: Path) -> None:
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)
        for step, began_s, took_s in map(json.loads, report.read_text().splitlines()):
            self._calls[step].append((began_s, took_s))

    def first(self) -> dict[str, float]:
        """Return the seconds of each step of the first batch, and of the time since the start."""
        start_s = self._calls[STREAM][0][0]
        took_s = {step: self._calls[step][0][1] for step in _FIRST_STEPS}
        # Classes are loaded with a job of two rows, which uses the same functions.
        called_s = self._calls[CALL][0][0]
        for step in (PLAN, COLLECT):
            took_s[step] = next(took for began, took in self._calls[step] if began >= called_s)
        published_s = sum(self._calls[PUBLISH][0])
        whole = {
            _UNTIL_FIRST_CALL: called_s - start_s,
            _UNTIL_PUBLISHED: published_s - start_s,
        }
        return took_s | whole

    def usual(self) -> dict[str, float]:
        """Return the median seconds of each step of the batches after the first ones."""
        calls = self._calls[CALL]
        took_s = {
            step: [took for _, took in self._calls[step][_WARM_UP:]]
            for step in (PLAN, COLLECT, PUBLISH, COMMIT)
        }
        took_s[_WAIT_FOR_SPARK] = _gaps_s(calls)
        ends = [(sum(call), 0.0) for call in self._calls[PUBLISH]]
        took_s[_INTERVAL] = _gaps_s(ends)
        return {step: median(took_s[step]) for step in _SMALL_STEPS}


def _gaps_s(calls: Sequence[Call]) -> list[float]:
    """Return the seconds between the end of each call and the begin of the next one."""
    return [later[0] - sum(earlier) for earlier, later in pairwise(calls)][_WARM_UP:]


def run(bootstrap: str, batch: int, scratch: Path) -> Steps:
    """Read the topic from where the table stopped, and return the measured steps."""
    scratch.mkdir(exist_ok=True)
    task = Task(
        bootstrap=bootstrap,
        topic=_TOPIC,
        table_path=str(scratch / "table"),
        scratch_path=str(scratch),
        answer_path=str(scratch / "answer.json"),
        records_per_batch=batch + KAFKA_PARTITIONS,
        driver_memory="4g",
        table=WORKLOADS["small_batches"].table_shape(),
    )
    report = scratch / f"steps-{batch}.jsonl"
    program = [sys.executable, "-m", "benchmarks.peers.timed_lakemark", str(report)]
    lakemark_stream.run(task, program)
    return Steps(report)


def print_table(title: str, runs: Sequence[dict[str, float]]) -> None:
    """Print the median of each step over the runs, with the smallest and the largest value."""
    print(f"\n| {title} | median | spread |\n|---|---|---|")
    for step in runs[0]:
        values = [each[step] for each in runs]
        print(f"| {step} | {median(values):.2f} s | {min(values):.2f} to {max(values):.2f} s |")


if __name__ == "__main__":
    main()
