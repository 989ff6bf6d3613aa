"""Moves the records of a batch to their buckets.

An exchange runs two functions:

``prepare``   converts a chunk of raw records to changes, and divides them by bucket
``write``     writes all changes of one bucket, in order of arrival, to one file

A small batch is collected in the driver as Arrow data. Threads of the driver write it, without any
Python worker. So such a batch can be read before the previous batch is published (``ReadBatch``). A
large batch runs as two Spark stages (``sinks.hudi.spark_exchange``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, TypeAlias, TypeVar

import pyarrow as pa

from lakemark.execution.runner import LocalRunner, Runner, Task
from lakemark.merge.merge_stream import split_batches
from lakemark.model.commit_metadata import WriteStat
from lakemark.write.partitioner import Bucket, SortedRows
from sinks.audit import ChangeCounts, RecordsRead
from sinks.batch import Batch, KafkaBatch, RecordsBatch
from sinks.hudi.arrived_rows import ArrivedRows, BucketGroup, TableInMemory
from sinks.hudi.collect import collect
from sinks.hudi.collect_budget import COLLECT_BUDGET_BYTES
from sinks.hudi.partition_rule import ChangedRows
from sinks.reject_counts import RejectCount
from transforms.batch_checks import CheckResults
from transforms.schema_request import SchemaRequest
from transforms.violations import Violations

#: The size of a chunk of raw records, which is decoded at once.
CHUNK_BYTES = 16 << 20

#: Many buckets are divided among this number of tasks for threads, because each task costs time.
_MAX_THREAD_TASKS = 64


class PortionKind(IntEnum):
    """The content of a portion.

    Only the first two kinds are written to a table. The portions of each other kind are merged.
    """

    #: Changes of the pipeline's table.
    ROWS = 0
    #: Changes of the dead-letter table.
    REJECTS = 1
    #: A request to change the schema of the pipeline's table (``SchemaRequest``).
    SCHEMA_REQUEST = 2
    #: The number of records that were read (``RecordsRead``).
    READ_COUNT = 3
    #: Keys of changes, which are looked up in other partitions (``ChangedRows``).
    KEYS = 4
    #: How many changes were looked up together, and are to be written (``ChangeCounts``).
    CHANGE_COUNTS = 5
    #: How many rows violated the rules of ``expect`` (``Violations``).
    VIOLATIONS = 6
    #: The rows that the checks of ``expect`` judge, with the columns that the checks read.
    CHECKED_ROWS = 7


@dataclass(frozen=True, slots=True)
class Portion:
    """The content of one kind in a prepared chunk.

    Attributes:
        kind: the kind of content.
        content: the rows, sorted by task and bucket. Rows that are not changes are merged if they
            have the same kind and bucket.
    """

    kind: PortionKind
    content: SortedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketWritten:
    """The result of writing the changes of one bucket.

    Attributes:
        kind: ``ROWS`` or ``REJECTS``.
        arrived: the number of changes of the bucket, before they were merged.
        stats: the written files; none if there was nothing to write, and mostly one.
        first_reject: the origin of the first reject, and the reason.
        reject_counts: the number of rejects by code.
    """

    kind: PortionKind
    arrived: int
    stats: tuple[WriteStat, ...]
    first_reject: str | None = None
    reject_counts: tuple[RejectCount, ...] = ()


#: The result for one bucket, or for the merged portions of another kind. A ``Bucket`` means that
#: the bucket has changes, which were not written. None means that there is no result.
PortionResult: TypeAlias = (
    BucketWritten
    | SchemaRequest
    | RecordsRead
    | ChangedRows
    | ChangeCounts
    | Violations
    | CheckResults
    | Bucket
    | None
)


class Prepare(Protocol):
    """Converts a chunk of raw records to portions. Can be pickled."""

    def __call__(self, records: pa.Table, tasks: int, /) -> list[Portion]:
        """Return the portions. Each record is among the rows or the rejects, or is ignored.

        Args:
            records: the chunk.
            tasks: the number of tasks that write buckets. A bucket belongs to the task
                ``task_of(bucket, tasks, kind)``.
        """
        ...


class Write(Protocol):
    """Writes the file of one bucket, or merges portions of another kind. Can be pickled."""

    def __call__(
        self, kind: PortionKind, bucket: Bucket, tables: Iterable[pa.Table], /
    ) -> PortionResult:
        """Return the result. ``tables`` can be read only once, in order of arrival."""
        ...

    def place(self, portions: Sequence[Portion]) -> tuple[Write, Sequence[Portion]]:
        """Find the file group of each change, if the table has a lookup index.

        Args:
            portions: all portions of the batch.

        Returns:
            The function that writes the portions, and the portions, whose changes are sorted by the
            buckets that this function knows.
        """
        ...

    def for_tasks(self, tasks: int) -> Sequence[Write]:
        """Return for each task a function that writes only the buckets of this task."""
        ...


#: Begins the commits of a batch, and returns the ``write`` function. The argument is whether there
#: may be rejects.
OpenWrite = Callable[[bool], Write]


#: The kind of batch that an exchange reads.
ReadableBatch = TypeVar("ReadableBatch", bound=Batch, contravariant=True)


class Exchange(Protocol[ReadableBatch]):
    """Moves the records of a batch to their buckets."""

    def run(
        self, batch: ReadableBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """Read the batch once, prepare it, and write each bucket."""
        ...


class StreamExchange(Exchange[ReadableBatch], Protocol[ReadableBatch]):
    """Moves the records of each batch of a stream to their buckets."""

    def read(self, batch: ReadableBatch) -> Exchange[ReadableBatch]:
        """Read a batch without writing it, if it fits in this process.

        Returns:
            The exchange that writes the batch: a ``ReadBatch``, or an exchange that reads the batch
            only when it writes it.
        """
        ...


def write_buckets(
    arrived: Mapping[PortionKind, ArrivedRows], write: Write, runner: Runner, max_bytes: int
) -> list[PortionResult]:
    """Write all buckets that have arrived, several of them at once.

    Args:
        arrived: the rows of each kind.
        write: writes one bucket.
        runner: the threads that write.
        max_bytes: the maximum Arrow size of the buckets that are written at once. A larger bucket
            is written alone.

    Returns:
        The results, in ascending order of the buckets of each kind.
    """

    def write_one(one: tuple[PortionKind, BucketGroup, int]) -> PortionResult:
        kind, group, n = one
        return write(kind, group.bucket(n), group.read(n))

    results: list[PortionResult] = []
    for groups in _rounds(arrived, max_bytes):
        buckets = [(kind, group, n) for kind, group in groups for n in range(len(group))]
        results += _map_in_parts(runner, write_one, buckets)
    return results


def _map_in_parts(
    runner: Runner, function: Callable[[Task], PortionResult], tasks: Sequence[Task]
) -> list[PortionResult]:
    """Do the same as ``Runner.map``, but with less time for each of many short tasks."""
    count = min(len(tasks), _MAX_THREAD_TASKS)
    parts = [range(n, len(tasks), count) for n in range(count)]
    done = runner.map(lambda part: [function(tasks[n]) for n in part], parts)
    results: list[PortionResult] = [None] * len(tasks)
    for part, some in zip(parts, done, strict=True):
        results[part.start :: count] = some
    return results


def _rounds(
    arrived: Mapping[PortionKind, ArrivedRows], max_bytes: int
) -> Iterator[list[tuple[PortionKind, BucketGroup]]]:
    """Yield groups that are written at once: first all small kinds, then each other group."""
    small = [rows.is_one_group(max_bytes) for rows in arrived.values()]
    kinds = [*zip(arrived.items(), small, strict=True)]
    yield [(kind, next(rows.groups(max_bytes))) for (kind, rows), is_small in kinds if is_small]
    for (kind, rows), is_small in kinds:
        if not is_small:
            yield from ([(kind, group)] for group in rows.groups(max_bytes))


class ReadBatch:
    """The raw records of a batch in the memory of this process.

    The records are decoded only when the batch is written, for two reasons. The table then has its
    newest columns. Also, Spark reads the next batch in the meantime, because Spark waits only for
    the call that reads.

    Args:
        records: the raw records, in order of arrival. The values of different tables may have
            different types.
        runner: the threads that prepare and write.
    """

    def __init__(self, records: Sequence[pa.Table], runner: LocalRunner) -> None:
        self._records, self._runner = records, runner

    @property
    def records(self) -> Sequence[pa.Table]:
        """The raw records, in order of arrival."""
        return self._records

    @property
    def size_bytes(self) -> int:
        """The Arrow memory of the raw records."""
        return sum(int(table.nbytes) for table in self._records)

    def run(self, batch: Batch, prepare: Prepare, open_write: OpenWrite) -> list[PortionResult]:
        """See ``Exchange.run`` and ``write_records``."""
        return write_records(self._records, prepare, open_write, self._runner)


def write_records(
    records: Sequence[pa.Table], prepare: Prepare, open_write: OpenWrite, runner: LocalRunner
) -> list[PortionResult]:
    """Prepare raw records and write their buckets, in threads of this process.

    If records request a schema change, only this request is returned, and nothing is written.

    Args:
        records: the raw records, in order of arrival; see ``ReadBatch``.
        prepare: converts a chunk of the records.
        open_write: returns the function that writes a bucket.
        runner: the threads.
    """
    chunks = [chunk for table in records for chunk in split_batches(table, CHUNK_BYTES)]
    prepared = runner.map(lambda chunk: prepare(chunk, 1), chunks)
    portions = [portion for several in prepared for portion in several]
    requests = [one for one in portions if one.kind is PortionKind.SCHEMA_REQUEST]
    arrived = requests or portions
    may_reject = any(one.kind is PortionKind.REJECTS for one in arrived)
    write, placed = open_write(may_reject).place(arrived)
    return write_buckets(_arrived(placed), write, runner, COLLECT_BUDGET_BYTES)


class MemoryExchange:
    """Writes batches that the source has already read, in threads of this process.

    Args:
        runner: the threads that prepare and write.
    """

    def __init__(self, runner: LocalRunner) -> None:
        self._runner = runner

    def run(
        self, batch: RecordsBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """See ``Exchange.run``."""
        return self.read(batch).run(batch, prepare, open_write)

    def read(self, batch: RecordsBatch) -> ReadBatch:
        """See ``StreamExchange.read``."""
        return ReadBatch(batch.tables, self._runner)


class DriverExchange:
    """Runs in threads of the driver, for batches that fit in its memory.

    Only this exchange writes to tables with a lookup index, because the keys of the whole batch are
    looked up between the two stages.

    Args:
        runner: the threads that prepare and write.
        budget_bytes: the maximum size of a collected batch.
    """

    def __init__(self, runner: LocalRunner, budget_bytes: int = COLLECT_BUDGET_BYTES) -> None:
        self._runner, self._budget_bytes = runner, budget_bytes

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """See ``Exchange.run``. Raises the same errors as ``read``."""
        return self.read(batch).run(batch, prepare, open_write)

    def read(self, batch: KafkaBatch) -> ReadBatch:
        """See ``StreamExchange.read``.

        Raises:
            TooLarge: a record is larger than its share of the budget.
        """
        return ReadBatch([collect(batch, self._budget_bytes)], self._runner)


def _arrived(portions: Iterable[Portion]) -> dict[PortionKind, ArrivedRows]:
    parts: dict[PortionKind, list[TableInMemory]] = defaultdict(list)
    for portion in portions:
        parts[portion.kind].append(TableInMemory(portion.content))
    return {kind: ArrivedRows(some) for kind, some in sorted(parts.items())}
