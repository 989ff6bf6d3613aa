"""Measures the processor time of small commits, as a routed pipeline makes them.

Some tables get batches of few records in turn, each from memory through the sink of a pipeline:
decoding, one log file for each bucket, the metadata table, the publication, and then the services
that are due. All settings have their defaults. ``sink`` is the time of the batch up to its
publication, ``services`` that of the services after it.

``python -m benchmarks.small_commits [--tables N] [--commits N] [--rows N] [--profile FILE]``
"""

from __future__ import annotations

import argparse
import cProfile
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean, median

import pyarrow as pa

from benchmarks.engines import work_folder
from benchmarks.routed import COLUMNS
from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.execution.runner import LocalRunner
from sinks.batch import RoutedBatch
from sinks.hudi.exchange import MemoryExchange
from sinks.hudi.sink import HudiSink
from streamer import pipeline
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.routing.first_records import RecordsOfTable
from streamer.services import TableServices
from tests.json_stream import RECORDED_AT

_TOPIC = "events"
#: Commits of each table that do not count: the table is created, and caches are filled.
_WARM_UP = 5


@dataclass
class Subject:
    """One table, and how much of the topic it has read.

    Attributes:
        sink: writes the table.
        services: the services of the table.
        offset: the next offset.
        costs: the processor time of each step of each commit, in seconds.
    """

    sink: HudiSink
    services: TableServices
    offset: int = 0
    costs: list[tuple[float, float]] = field(default_factory=list)

    @classmethod
    def create(cls, path: Path) -> Subject:
        """Create a table."""
        config = _pipeline(path)
        sink, writers = pipeline.open_sink(config, RecordsOfTable(_TOPIC, _records(0, 1)))
        services = pipeline.table_services(config, None, writers, lambda event: None)
        sink.recover()
        services.run()
        sink.progress()
        return cls(sink, services)

    def commit(self, rows: int) -> None:
        """Write a batch, and run the services that are due after it."""
        start, self.offset = self.offset, self.offset + rows
        batch = RoutedBatch(
            tables=[_records(start, rows)],
            start=KafkaCheckpoint(_TOPIC, {0: start}),
            end=KafkaCheckpoint(_TOPIC, {0: self.offset}),
            topic_id="",
        )
        began = time.process_time()
        self.sink.write(batch, MemoryExchange(LocalRunner(1)).read(batch))
        written = time.process_time()
        self.services.run()
        self.costs.append((written - began, time.process_time() - written))


def main() -> None:
    """Make the commits, and print their costs."""
    arguments = _parse_arguments()
    with work_folder(arguments.keep) as folder:
        subjects = [Subject.create(folder / f"{n:03}") for n in range(arguments.tables)]
        for _ in range(_WARM_UP):
            _commit_each(subjects, arguments.rows)
        for subject in subjects:
            subject.costs.clear()
        with _profiled(arguments.profile):
            for _ in range(arguments.commits):
                _commit_each(subjects, arguments.rows)
    costs = [cost for subject in subjects for cost in subject.costs]
    print(f"{len(costs)} commits of {arguments.rows} rows to {len(subjects)} tables")
    steps = {"sink": [c[0] for c in costs], "services": [c[1] for c in costs]}
    for name, found in {**steps, "both": [sum(c) for c in costs]}.items():
        print(f"{name:10}{mean(found) * 1e3:8.2f} ms mean{median(found) * 1e3:8.2f} ms median")


def _commit_each(subjects: Sequence[Subject], rows: int) -> None:
    for subject in subjects:
        subject.commit(rows)


@contextmanager
def _profiled(file: Path | None) -> Iterator[None]:
    if file is None:
        yield
        return
    with cProfile.Profile(time.thread_time) as profile:
        yield
    profile.dump_stats(file)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--commits", type=int, default=60, help="commits of each table")
    parser.add_argument("--rows", type=int, default=400, help="rows in each commit")
    parser.add_argument("--profile", type=Path, help="write a profile of the commits here")
    parser.add_argument("--keep", type=Path, help="work in this new folder, and keep it")
    return parser.parse_args()


def _records(start: int, count: int) -> pa.Table:
    """Return records as the source reads them. The keys of consecutive batches differ."""
    offsets = range(start, start + count)
    return pa.table(
        {
            "value": pa.array([json.dumps(_row(n)).encode() for n in offsets], pa.binary()),
            "key": pa.nulls(count, pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([RECORDED_AT] * count, pa.timestamp("us", "UTC")),
        }
    )


def _row(number: int) -> dict[str, object]:
    return {
        "id": str(number % 8_000),
        "kind": "one",
        "customer": f"customer {number % 977}",
        "status": "shipped",
        "amount": number / 100,
        "updated_at": number,
        "note": "left at the door of a neighbour",
    }


def _pipeline(path: Path) -> PipelineConfig:
    return validated(
        {
            "name": path.name,
            "source": {"bootstrap_servers": "localhost:1", "topic": _TOPIC},
            "decode": {"schema": COLUMNS},
            "table": {"path": str(path), "record_key": "id", "ordering": "updated_at"},
            "dead_letters": {"enabled": False},
        }
    )


if __name__ == "__main__":
    main()
