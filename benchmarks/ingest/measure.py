"""Runs one workload: sends its records, lets the engines read them in turn, compares the tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.ingest.contents import TableReader
from benchmarks.ingest.engines import ENGINES, Reader
from benchmarks.ingest.figures import durations_s
from benchmarks.peers.contract import Answer, Task
from benchmarks.workloads.sending import send
from benchmarks.workloads.workload import KAFKA_PARTITIONS, Phase, Workload
from streamer.broker import EmbeddedBroker


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run of the benchmark.

    Attributes:
        engines: the names of the engines, in the order in which they run.
        repeats: how often each engine runs each workload.
        driver_memory: the heap of every engine.
    """

    engines: Sequence[str]
    repeats: int
    driver_memory: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one workload.

    Attributes:
        answers: the answers of each engine for the measured phase, one for each repeat.
        refusals: why some engines do not run this workload.
        failures: the errors of engines that failed, or whose table is wrong.
    """

    answers: dict[str, list[Answer]] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def fail(self, engine: str, reason: str) -> None:
        """Drop the answers of an engine, because its figures mean nothing."""
        self.answers.pop(engine, None)
        self.failures[engine] = reason
        print(f"  {engine} failed: {reason}", flush=True)


class Measurement:
    """One workload, with a broker, a topic and tables of its own.

    Args:
        name: the name of the workload and of its topic.
        workload: the workload.
        settings: the settings of the run.
        folder: a new folder for the broker and the tables.
    """

    def __init__(self, name: str, workload: Workload, settings: Settings, folder: Path) -> None:
        self._name, self._workload, self._settings = name, workload, settings
        self._folder = folder
        self._outcome = Outcome()
        #: The tables of the last phase, with the names of their engines.
        self._written: list[tuple[str, Task]] = []
        folder.mkdir(parents=True)

    def run(self) -> Outcome:
        """Run every engine that can run this workload, and compare the tables."""
        self._refuse()
        with EmbeddedBroker(self._folder / "broker", heap="1g") as broker:
            first = 0
            for phase in self._workload.phases:
                send(broker.bootstrap, self._name, self._workload, first, phase.records)
                self._run_phase(broker.bootstrap, phase)
                first += phase.records
        self._check()
        return self._outcome

    def _refuse(self) -> None:
        for name in self._settings.engines:
            reason = ENGINES[name].refusal(self._workload)
            if reason is not None:
                self._outcome.refusals[name] = reason

    def _run_phase(self, bootstrap: str, phase: Phase) -> None:
        print(f"{phase.records:,} records in batches of {phase.batch:,}", flush=True)
        self._outcome.answers.clear()
        self._written.clear()
        for repeat, name in turns(self._settings.engines, self._settings.repeats):
            if name not in self._outcome.refusals and name not in self._outcome.failures:
                self._run_engine(name, self._task(name, repeat, bootstrap, phase), phase)

    def _run_engine(self, name: str, task: Task, phase: Phase) -> None:
        try:
            answer = run_engine(name, task, phase.records)
        except RuntimeError as error:
            self._outcome.fail(name, str(error))
            return
        self._outcome.answers.setdefault(name, []).append(answer)
        if ENGINES[name].reader is not Reader.NOTHING_TO_READ:
            self._written.append((name, task))
        took_s = sum(durations_s(answer))
        print(f"  {name}: {len(answer.batches)} batches in {took_s:.1f} s", flush=True)

    def _task(self, name: str, repeat: int, bootstrap: str, phase: Phase) -> Task:
        scratch = self._folder / f"{name}-{repeat}"
        return Task(
            bootstrap=bootstrap,
            topic=self._name,
            table_path=str(scratch / "table"),
            scratch_path=str(scratch),
            answer_path=str(scratch / "answer.json"),
            # Spark rounds each partition's share down; the rest would be another, small batch
            records_per_batch=phase.batch + KAFKA_PARTITIONS,
            driver_memory=self._settings.driver_memory,
            table=self._workload.table_shape(),
        )

    def _check(self) -> None:
        """Compare the tables of all repeats of all engines that did not fail."""
        if not self._written:
            return
        expected = self._workload.newest_rows()
        with closing(TableReader(self._folder / "oracle")) as reader:
            for name, task in self._written:
                if name in self._outcome.answers:
                    difference = reader.difference(name, task, expected)
                    if difference is not None:
                        self._outcome.fail(name, difference)


def turns(engines: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """Yield the repeats and engines in the order in which they run.

    All engines run before the next repeat. Every second repeat has the reverse order, so that no
    engine always runs first.
    """
    for repeat in range(repeats):
        for name in reversed(engines) if repeat % 2 else engines:
            yield repeat, name


def run_engine(name: str, task: Task, records: int) -> Answer:
    """Run one engine on one task, in its own process.

    Raises:
        RuntimeError: the engine failed, or did not read every record that was sent.
    """
    scratch = Path(task.scratch_path)
    scratch.mkdir(exist_ok=True)
    ENGINES[name].engine.run(task.to_json(), scratch)
    answer = Answer.read(Path(task.answer_path))
    read = sum(batch.records for batch in answer.batches)
    if read != records:
        message = f"{name} read {read:,} of {records:,} records"
        raise RuntimeError(message)
    return answer
