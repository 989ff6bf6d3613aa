"""From raw records to written files: every record meets the others of its bucket, once.

Two ways, one for each size of batch, with the same two functions in them:

``prepare``   a chunk of raw Kafka records → changes, divided by bucket
``write``     all changes of one bucket, in order of arrival → one file

A small batch is collected to the driver as Arrow and written by its threads, without any Python
worker. A large one runs as two Spark stages (``sinks.hudi.spark_exchange``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import pyarrow as pa

from lakemark.execution.runner import LocalRunner
from lakemark.merge.merge_stream import split_batches
from lakemark.model.commit_metadata import WriteStat
from lakemark.write.partitioner import Bucket
from sinks.audit import RecordsRead
from sinks.batch import KafkaBatch
from sinks.hudi.collect import COLLECT_BUDGET_BYTES, collect
from transforms.schema_request import SchemaRequest

#: Raw records decoded in one go.
CHUNK_BYTES = 16 << 20


class Target(IntEnum):
    """Which table a change goes to.

    Other portions go to no table: a request to change the schema of the first one, a count of the
    records that were read, or the keys of the changes, to be looked up in other partitions.
    """

    ROWS = 0
    REJECTS = 1
    SCHEMA = 2
    READ = 3
    KEYS = 4


@dataclass(frozen=True, slots=True)
class Portion:
    """Changes of one chunk that belong together; or what it requests, see ``SchemaRequest``."""

    target: Target
    bucket: Bucket
    changes: pa.Table


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one bucket.

    Attributes:
        target: the table.
        arrived: changes that came for it, before any was merged away.
        stat: the file; None when nothing was left to write.
        first_reject: origin of the first rejected record, and why it was turned away.
        request: what the records ask of the table's schema, all chunks together. If they ask for
            anything, the batch is not to be published: it is written again, or not at all.
        read: what was read of the topic, all chunks together.
        partition_changes: of the bucket, keys and partitions as
            ``lakemark.index.partition_changes`` finds them.
        bucket: the bucket, if it was only looked at.
    """

    target: Target
    arrived: int
    stat: WriteStat | None
    first_reject: str | None = None
    request: SchemaRequest | None = None
    read: RecordsRead | None = None
    partition_changes: pa.Table | None = None
    bucket: Bucket | None = None


class Prepare(Protocol):
    """Turns a chunk of raw records into portions, in order of arrival; pickles."""

    def __call__(self, records: pa.Table, /) -> list[Portion]:
        """Each record is in one portion of ``Target.ROWS`` or ``Target.REJECTS``, or ignored."""
        ...


class Write(Protocol):
    """Writes one bucket's file; pickles."""

    def __call__(self, target: Target, bucket: Bucket, changes: Iterable[pa.Table], /) -> Written:
        """Takes the changes in order of arrival, once."""
        ...


#: Opens the commit (or commits), once it is known whether there may be rejects.
OpenWrite = Callable[[bool], Write]


class Exchange(Protocol):
    """One way to bring a batch's records to their buckets."""

    def run(self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite) -> list[Written]:
        """Read the batch once, prepare it, write every bucket."""
        ...


class DriverExchange:
    """Everything in the driver's threads, for batches that fit.

    Args:
        runner: the threads.
        budget_bytes: what a collected batch may weigh.
    """

    def __init__(self, runner: LocalRunner, budget_bytes: int = COLLECT_BUDGET_BYTES) -> None:
        self._runner, self._budget_bytes = runner, budget_bytes

    def run(self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite) -> list[Written]:
        """Collect, prepare, write; raises ``TooLarge`` when a record was cut short."""
        return run_here(collect(batch, self._budget_bytes), prepare, open_write, self._runner)


def run_here(
    records: pa.Table, prepare: Prepare, open_write: OpenWrite, runner: LocalRunner
) -> list[Written]:
    """Prepare and write what this process holds; only a request is passed on where there is one.

    Args:
        records: the batch.
        prepare: a chunk to portions.
        open_write: opens the commit.
        runner: the threads.
    """
    grouped = _grouped(runner.map(prepare, list(split_batches(records, CHUNK_BYTES))))
    if any(target is Target.SCHEMA for target, _ in grouped):
        grouped = {key: parts for key, parts in grouped.items() if key[0] is Target.SCHEMA}
    write = open_write(any(target is Target.REJECTS for target, _ in grouped))
    return runner.map(lambda key: write(*key, grouped[key]), sorted(grouped))


def _grouped(prepared: Iterable[Sequence[Portion]]) -> dict[tuple[Target, Bucket], list[pa.Table]]:
    grouped: dict[tuple[Target, Bucket], list[pa.Table]] = defaultdict(list)
    for portions in prepared:
        for portion in portions:
            grouped[portion.target, portion.bucket].append(portion.changes)
    return dict(grouped)
