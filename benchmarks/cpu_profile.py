"""Shows where the CPU time of a record goes: the JVM's threads, Python, and Python's steps.

lakemark and the floor read the same topic, one after the other, as in ``benchmarks.ingest``. The
first batches are left out, in which classes are loaded and most code is compiled. The CPU time of
processes and threads comes from ``/proc`` (Linux only). The CPU time of Python's steps comes from a
second run of lakemark, whose functions measure it (``benchmarks.peers.profiled_lakemark``).

``python -m benchmarks.cpu_profile [--records N] [--batch N] [--skip N]``
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.engines import Engine, work_folder
from benchmarks.ingest.engines import ENGINES, FLOOR, LAKEMARK
from benchmarks.peers.contract import Answer, Task
from benchmarks.peers.lakemark_profiled import STEPS_FILE
from benchmarks.workloads.catalog import WORKLOADS
from benchmarks.workloads.sending import send
from benchmarks.workloads.workload import KAFKA_PARTITIONS
from streamer.broker import EmbeddedBroker

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_SAMPLE_EVERY_S = 0.25
_TOPIC = "profile"
_STEPS = Engine("benchmarks.peers.lakemark_profiled", on_spark35=False)
_PYTHON, _BROKER, _ALL = "Python", "the broker", "JVM and Python together"

#: The groups of the JVM's threads, by the beginnings of their names in ``/proc``.
_THREADS = {
    "JVM: Spark's tasks (fetch, rows, Arrow)": ("Executor task",),
    "JVM: compiler threads": ("C1 Compiler", "C2 Compiler"),
    "JVM: garbage collector": ("G1 ", "GC Thread", "VM Thread"),
}
_OTHER_THREADS = "JVM: everything else"
_JVM = "JVM"


def main() -> None:
    arguments = parse_arguments()
    with (
        work_folder(arguments.keep) as folder,
        EmbeddedBroker(folder / "broker", heap="1g") as broker,
    ):
        workload = WORKLOADS["upserts_10m"].resized(arguments.records, arguments.batch)
        send(broker.bootstrap, _TOPIC, workload, 0, workload.records)

        def task(name: str) -> Task:
            scratch = folder / name
            scratch.mkdir()
            return Task(
                bootstrap=broker.bootstrap,
                topic=_TOPIC,
                table_path=str(scratch / "table"),
                scratch_path=str(scratch),
                answer_path=str(scratch / "answer.json"),
                records_per_batch=arguments.batch + KAFKA_PARTITIONS,
                driver_memory=arguments.driver_memory,
                table=workload.table_shape(),
            )

        for name in (FLOOR, LAKEMARK):
            profile_processes(name, ENGINES[name].engine, task(name), arguments.skip)
        profile_steps(task("steps"), arguments.skip)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--batch", type=int, default=200_000)
    parser.add_argument("--skip", type=_positive, default=6, help="batches that are left out")
    parser.add_argument("--driver-memory", default="4g")
    parser.add_argument("--keep", type=Path, help="also keep the files of the run here")
    return parser.parse_args()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = "expected at least 1, because the first batch is never counted"
        raise argparse.ArgumentTypeError(message)
    return number


def profile_processes(name: str, engine: Engine, task: Task, skip: int) -> None:
    """Run an engine, and print the CPU time of a record by process and group of threads."""
    with sampled() as samples:
        engine.run(task.to_json(), Path(task.scratch_path))
    window = Window.of(Answer.read(Path(task.answer_path)), skip)
    print(f"\n{name}: {window.records_per_s:,.0f} records/s")
    used = {group: window.microseconds(samples, group) for group in sorted(samples[-1].used_s)}
    used[_ALL] = sum(value for group, value in used.items() if group != _BROKER)
    print_table(used)


def profile_steps(task: Task, skip: int) -> None:
    """Run lakemark with measured functions, and print the CPU time of a record by step."""
    scratch = Path(task.scratch_path)
    _STEPS.run(task.to_json(), scratch)
    window = Window.of(Answer.read(Path(task.answer_path)), skip)
    lines = map(json.loads, (scratch / STEPS_FILE).read_text().splitlines())
    samples = [Sample(line["at_s"], line["used_s"]) for line in lines]
    print(f"\nPython's steps: {window.records_per_s:,.0f} records/s")
    print_table({step: window.microseconds(samples, step) for step in samples[-1].used_s})


def print_table(used: Mapping[str, float]) -> None:
    for name, microseconds in sorted(used.items(), key=lambda item: -item[1]):
        print(f"| {name} | {microseconds:.2f} µs |", flush=True)


@dataclass(frozen=True, slots=True)
class Sample:
    """The CPU time of each group up to a time, in seconds."""

    at_s: float
    used_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of a run."""

    start_s: float
    stop_s: float
    records: int

    @classmethod
    def of(cls, answer: Answer, skip: int) -> Window:
        """Return the part of a run after its first batches."""
        kept = answer.batches[skip:]
        start_s = answer.batches[skip - 1].completed_s
        return cls(start_s, kept[-1].completed_s, sum(batch.records for batch in kept))

    @property
    def records_per_s(self) -> float:
        """The rate of the measured part."""
        return self.records / (self.stop_s - self.start_s)

    def microseconds(self, samples: Sequence[Sample], group: str) -> float:
        """Return the CPU time of a record in one group, in microseconds."""
        used_s = _used_at(samples, group, self.stop_s) - _used_at(samples, group, self.start_s)
        return used_s / self.records * 1e6


def _used_at(samples: Sequence[Sample], group: str, at_s: float) -> float:
    """Return the CPU time of a group at some time, interpolated between two samples."""
    number = bisect_left(samples, at_s, key=lambda sample: sample.at_s)
    after = samples[min(number, len(samples) - 1)]
    before = samples[max(number - 1, 0)]
    start_s, stop_s = (sample.used_s.get(group, 0.0) for sample in (before, after))
    if after.at_s <= before.at_s:
        return stop_s
    return start_s + (stop_s - start_s) * min((at_s - before.at_s) / (after.at_s - before.at_s), 1)


@contextmanager
def sampled() -> Iterator[list[Sample]]:
    """Sample the CPU time of all descendants of this process, until the block ends."""
    samples: list[Sample] = []
    ended = threading.Event()
    sampler = threading.Thread(target=_sample, args=(samples, ended))
    sampler.start()
    try:
        yield samples
    finally:
        ended.set()
        sampler.join()


def _sample(samples: list[Sample], ended: threading.Event) -> None:
    clock = _ThreadClock()
    while not ended.wait(_SAMPLE_EVERY_S):
        samples.append(Sample(time.time(), clock.read()))


@dataclass(slots=True)
class _ThreadClock:
    """Adds up the CPU time of processes, and divides that of Spark's JVM among its threads.

    The time of a process includes its threads that have ended. The time of the JVM that no living
    thread has used counts as that of other threads.
    """

    processes: dict[int, tuple[str, float]] = field(default_factory=dict)
    threads: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)

    def read(self) -> Mapping[str, float]:
        for pid in _descendants(os.getpid()):
            used = _stat(Path(f"/proc/{pid}/stat"))
            if used is not None:
                self.processes[pid] = _program(pid), used[1]
            if used is not None and self.processes[pid][0] == _JVM:
                for thread in _listed(Path(f"/proc/{pid}/task")):
                    read = _stat(Path(f"/proc/{pid}/task/{thread}/stat"))
                    if read is not None:
                        self.threads[pid, thread] = _group(read[0]), read[1]
        return self._totals()

    def _totals(self) -> Mapping[str, float]:
        totals: defaultdict[str, float] = defaultdict(float)
        for group, used_s in self.processes.values():
            totals[group] += used_s
        remaining_s = totals.pop(_JVM, 0.0)
        for group, used_s in self.threads.values():
            if group != _OTHER_THREADS:
                totals[group] += used_s
                remaining_s -= used_s
        totals[_OTHER_THREADS] = remaining_s
        return totals


def _group(thread: str) -> str:
    """Return the group of a thread of the JVM."""
    for group, beginnings in _THREADS.items():
        if thread.startswith(beginnings):
            return group
    return _OTHER_THREADS


def _program(pid: int) -> str:
    """Return the group of a process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return _PYTHON
    if not words[0].endswith("java"):
        return _PYTHON
    return _BROKER if any(word.startswith("kafka.") for word in words) else _JVM


def _descendants(pid: int) -> list[int]:
    parents = {one: _parent(one) for one in _listed(Path("/proc"))}
    found = {pid}
    while True:
        more = {one for one, parent in parents.items() if parent in found} - found
        if not more:
            return sorted(found - {pid})
        found |= more


def _listed(folder: Path) -> list[int]:
    try:
        return [int(one.name) for one in folder.iterdir() if one.name.isdigit()]
    except OSError:
        return []


def _parent(pid: int) -> int:
    read = _fields(Path(f"/proc/{pid}/stat"))
    return -1 if read is None else int(read[1][1])


def _stat(path: Path) -> tuple[str, float] | None:
    """Return the name of a process or thread, and its CPU time in seconds; None if it has ended."""
    read = _fields(path)
    if read is None:
        return None
    name, fields = read
    return name, (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _fields(path: Path) -> tuple[str, list[str]] | None:
    """Return the name in parentheses, which may contain spaces, and the fields behind it."""
    try:
        text = path.read_text()
    except OSError:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    return name, text.rpartition(")")[2].split()


if __name__ == "__main__":
    main()
