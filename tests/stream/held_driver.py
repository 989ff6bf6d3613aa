"""Runs a pipeline with the cluster's exchange, and holds its first writing task; for spark-submit.

held_driver.py PIPELINE FOLDER

The task attempt that writes the first file creates ``FOLDER/first``, which contains the process id
of its executor. It continues only after another attempt of the same task has begun.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from lakemark.write.partitioner import Bucket
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import OpenWrite, Portion, PortionKind, PortionResult, Prepare, Write
from sinks.hudi.spark_exchange import SparkExchange
from streamer import pipeline
from streamer.config.load import load
from streamer.events import ignore

REDUCE_TASKS = 4
POLL_S = 0.02


@dataclass(frozen=True)
class HeldExchange:
    """The cluster's exchange, whose first writing task is held."""

    folder: Path

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        def open_held(may_reject: bool) -> Write:
            return HeldWrite(open_write(may_reject), self.folder)

        return SparkExchange(REDUCE_TASKS).run(batch, prepare, open_held)

    def read(self, batch: KafkaBatch) -> HeldExchange:
        """Return this exchange, which reads the batch when it writes it."""
        return self


@dataclass(frozen=True)
class HeldWrite:
    """Writes, and then waits as the module's docstring describes."""

    write: Write
    folder: Path

    def place(self, portions: Sequence[Portion]) -> tuple[HeldWrite, Sequence[Portion]]:
        """The table has a bucket index."""
        return self, portions

    def for_tasks(self, tasks: int) -> list[HeldWrite]:
        """Each task writes its own buckets, and stays as well."""
        return [HeldWrite(one, self.folder) for one in self.write.for_tasks(tasks)]

    def __call__(
        self, kind: PortionKind, bucket: Bucket, changes: Iterable[pa.Table]
    ) -> PortionResult:
        context = TaskContext.get()
        assert context is not None
        second = self.folder / f"second-{context.partitionId()}"
        first = self.folder / f"first-{context.partitionId()}"
        attempt = str(context.taskAttemptId())  # it may write several buckets at once
        if first.exists() and first.read_text() != attempt:
            second.touch()
        written = self.write(kind, bucket, changes)
        with suppress(FileExistsError):
            (self.folder / "begun").mkdir()
            _create_whole(first, attempt)
            _create_whole(self.folder / "first", str(_executor_pid()))
            while not second.exists():
                time.sleep(POLL_S)
        return written


def _executor_pid() -> int:
    """Return the process id of the JVM, which is the parent of the parent of this worker."""
    _, _, rest = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(") ")
    return int(rest.split()[1])


def _create_whole(path: Path, text: str) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text)
    unfinished.rename(path)


if __name__ == "__main__":
    file, folder = sys.argv[1:]
    with pipeline.build(load(file, []), ignore, HeldExchange(Path(folder))) as built:
        built.loop.run()
