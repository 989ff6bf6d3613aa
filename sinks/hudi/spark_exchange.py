"""The exchange of a large batch: two Spark stages, with the project's only shuffle between them.

Map      A task gathers Arrow batches of raw records to chunks of ``CHUNK_BYTES``, and prepares each
         chunk. The rows are sorted by reduce task and bucket, so each reduce task gets one slice of
         them as a payload, with the position of each bucket in the payload.
Reduce   A task stores the payloads on its disk without reading them. Then it writes each bucket to
         one file, in order of the records' partition and offset, several buckets at once.

A reduce task must know the file groups of its buckets. Spark sends the same function to all tasks,
so the function knows no file groups. Instead, the shuffle brings each task its own ones.

Memory is limited by four sizes: a chunk (16 MiB of raw records, or one larger record), a payload
(at most a chunk; less if Spark limits its Arrow batches only by rows), the buckets that are written
at once (``_MAX_WRITTEN_BYTES``), and the merge of one larger bucket, which spills to disk
(``lakemark.merge.merge_stream``).
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lakemark.execution.runner import LocalRunner
from lakemark.spark.versions import VersionCheckedTask
from lakemark.storage.durability import sync_process
from lakemark.storage.scratch import scratch_folder, temporary_writes
from lakemark.write.partitioner import BucketSpans
from sinks.batch import KafkaBatch
from sinks.hudi.arrived_rows import ArrivedRows
from sinks.hudi.collect import MAX_ARROW_BATCH_BYTES, ROWS_IN_ARROW_BATCH
from sinks.hudi.exchange import (
    CHUNK_BYTES,
    OpenWrite,
    Portion,
    PortionKind,
    PortionResult,
    Prepare,
    Write,
    write_buckets,
)

#: The rows between the stages. ``order`` sorts the payloads of a kind; ``spans`` is a pickled
#: ``BucketSpans``, and ``content`` an Arrow file. If the kind is ``_WRITE``, ``content`` is the
#: pickled function that writes the buckets of a task.
_PAYLOAD = pa.schema(
    [
        ("route", pa.int32()),
        ("kind", pa.int32()),
        ("order", pa.string()),
        ("spans", pa.binary()),
        ("content", pa.binary()),
    ]
)
_PAYLOAD_COLUMNS = "route int, kind int, order string, spans binary, content binary"
_WRITE = -1

#: The values of a row between the stages.
PayloadValues: TypeAlias = tuple[int, int, str, bytes, bytes]

#: How many buckets a reduce task writes at once, to wait for several answers of the storage at the
#: same time; and the maximum Arrow size of these buckets.
_WRITES_AT_ONCE = 4
_MAX_WRITTEN_BYTES = 64 << 20
_RESULT = pa.schema([("written", pa.binary())])


class SparkExchange:
    """Divides a batch by bucket with Spark's shuffle, and writes the buckets on the workers.

    Args:
        reduce_tasks: the number of tasks that write files.
        max_message_bytes: the topic's limit for messages. Spark 3.5 limits its Arrow batches only
            by rows, so this limit decides how many rows an Arrow batch may have.
    """

    def __init__(self, reduce_tasks: int, max_message_bytes: int = 1 << 20) -> None:
        self._reduce_tasks = reduce_tasks
        self._max_message_bytes = max_message_bytes

    def run(
        self, batch: KafkaBatch, prepare: Prepare, open_write: OpenWrite
    ) -> list[PortionResult]:
        """See ``Exchange.run``. Only the results are sent to the driver."""
        spark, own_routes = batch.records.sparkSession, routes(self._reduce_tasks)
        max_payload_bytes = self._limit_arrow_batches(spark)
        mapper = VersionCheckedTask(Mapper(prepare, own_routes, max_payload_bytes))
        placed = messages(own_routes, open_write(True))
        results = (
            batch.records.mapInArrow(mapper, _PAYLOAD_COLUMNS)
            .union(spark.createDataFrame(placed, _PAYLOAD_COLUMNS))
            .repartition(self._reduce_tasks, f.col("route"))
            .mapInArrow(VersionCheckedTask(Reducer()), "written binary")
            .collect()
        )
        return [result for row in results for result in pickle.loads(row.written)]

    def read(self, batch: KafkaBatch) -> SparkExchange:
        """See ``StreamExchange.read``. The batch is read when it is written."""
        return self

    def _limit_arrow_batches(self, spark: SparkSession) -> int:
        """Keep Arrow batches to Python below 64 MiB; return the maximum size of a payload."""
        if int(spark.version.split(".")[0]) >= 4:
            # The session also limits the bytes of a batch, and this limit is reached first.
            spark.conf.set(ROWS_IN_ARROW_BATCH, 100_000)
            return CHUNK_BYTES
        rows = max(1, MAX_ARROW_BATCH_BYTES // self._max_message_bytes)
        spark.conf.set(ROWS_IN_ARROW_BATCH, rows)
        return MAX_ARROW_BATCH_BYTES // rows


@dataclass(frozen=True)
class Mapper:
    """The first stage: converts Arrow batches of raw records to payloads."""

    prepare: Prepare
    routes: tuple[int, ...]
    max_payload_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the payloads of the chunks of one task."""
        for records in chunks(batches):
            order = _order(records)
            for portion in self.prepare(records, len(self.routes)):
                yield from self._payloads(portion, order)

    def _payloads(self, portion: Portion, order: str) -> Iterator[pa.RecordBatch]:
        """Yield the slice of each reduce task, in parts that are not larger than a payload."""
        rows, spans = portion.content.rows, portion.content.spans
        tasks = spans.tasks(len(self.routes), portion.kind)
        firsts = np.flatnonzero(np.diff(tasks, prepend=-1))
        edges = [*spans.starts[firsts].tolist(), rows.num_rows]
        for task, start, stop in zip(tasks[firsts].tolist(), edges, edges[1:], strict=False):
            part_rows = _rows_up_to(rows.slice(start, stop - start), self.max_payload_bytes)
            for first in range(start, stop, part_rows):
                end = min(first + part_rows, stop)
                sent = pickle.dumps(spans.of_rows(first, end))
                content = _ipc_file(rows.slice(first, end - first))
                name = f"{order}-{first:010d}"
                yield as_payload((self.routes[task], int(portion.kind), name, sent, content))


@dataclass(frozen=True)
class Reducer:
    """The second stage: writes one file for each bucket, and returns the results."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the buckets of one task, and yield the pickled results."""
        with scratch_folder("exchange") as folder:
            spool = _Spool(folder)
            pickled: pa.Buffer | None = None
            for batch in batches:
                for kind, order, spans, content in zip(*batch.columns[1:], strict=True):
                    if kind.as_py() == _WRITE:
                        pickled = content.as_buffer()
                    else:
                        arrived = pickle.loads(spans.as_buffer())
                        spool.add(PortionKind(kind.as_py()), order.as_py(), arrived, content)
            assert pickled is not None, "each task gets a function that writes its buckets"
            runner = LocalRunner(_WRITES_AT_ONCE)
            write = pickle.loads(pickled)
            results = write_buckets(spool.arrived(), write, runner, _MAX_WRITTEN_BYTES)
        sync_process()  # the driver flushes only files of its own process to the disk
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(results)])], schema=_RESULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredTable:
    """A payload on the disk of a reduce task; an ``ArrivedTable``."""

    path: Path
    spans: BucketSpans
    schema: pa.Schema
    size_bytes: int

    def read(self, start: int, stop: int) -> pa.Table:
        with pa.memory_map(str(self.path)) as mapped, pa.ipc.open_file(mapped) as file:
            return pa.Table.from_batches([file.get_batch(0).slice(start, stop - start)])


class _Spool:
    """Payloads on the worker's disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stored: dict[PortionKind, list[tuple[str, _StoredTable]]] = defaultdict(list)
        self._payloads = 0

    def add(
        self, kind: PortionKind, order: str, spans: BucketSpans, content: pa.BinaryScalar
    ) -> None:
        """Store a payload unchanged."""
        path, payload = self._folder / f"{self._payloads:08d}", content.as_buffer()
        self._payloads += 1
        with temporary_writes("changes of a batch on their way to their file group"):
            path.write_bytes(payload)
        with pa.ipc.open_file(pa.BufferReader(payload)) as file:
            schema = file.schema
        table = _StoredTable(path=path, spans=spans, schema=schema, size_bytes=payload.size)
        self._stored[kind].append((order, table))

    def arrived(self) -> dict[PortionKind, ArrivedRows]:
        """Return the rows of each kind in order of arrival, even after the shuffle mixed them."""
        return {
            kind: ArrivedRows([table for _, table in sorted(stored, key=itemgetter(0))])
            for kind, stored in sorted(self._stored.items())
        }


def messages(own_routes: Sequence[int], write: Write) -> list[PayloadValues]:
    """Return a message to each reduce task, with the function that writes its buckets."""
    writes = write.for_tasks(len(own_routes))
    pickler: Any = CloudPickleSerializer()  # like Spark, it pickles the classes of a script, too
    return [
        (route, _WRITE, "", b"", pickler.dumps(one))
        for route, one in zip(own_routes, writes, strict=True)
    ]


def as_payload(values: PayloadValues) -> pa.RecordBatch:
    """Return a payload as one row between the stages."""
    arrays = [pa.array([v], t) for v, t in zip(values, _PAYLOAD.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_PAYLOAD)


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather Arrow batches to tables of about ``CHUNK_BYTES``."""
    gathered: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for batch in batches:
        gathered.append(batch)
        gathered_bytes += batch.nbytes
        if gathered_bytes >= CHUNK_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered, gathered_bytes = [], 0
    if gathered:
        yield pa.Table.from_batches(gathered)


@cache
def routes(reducers: int) -> tuple[int, ...]:
    """Return for each reduce task a number that Spark's ``repartition`` assigns to this task.

    Spark partitions by the Murmur3 hash of the column. With other numbers, some tasks would get
    several buckets, and others none.
    """
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < reducers:
        found.setdefault(_spark_hash(candidate) % reducers, candidate)
        candidate += 1
    return tuple(found[reducer] for reducer in range(reducers))


def _spark_hash(value: int) -> int:
    """Return ``Murmur3_x86_32.hashInt(value, 42)``, which Spark computes for an integer column."""
    mask = 0xFFFFFFFF
    k = _rotate(value * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (_rotate(42 ^ k, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _rotate(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & 0xFFFFFFFF


def _order(records: pa.Table) -> str:
    partition, offset = records.column("partition")[0].as_py(), records.column("offset")[0].as_py()
    return f"{partition:010d}-{offset:020d}"


def _rows_up_to(table: pa.Table, max_bytes: int) -> int:
    """Return how many rows of the table take about ``max_bytes``."""
    parts: int = max(1, -(-table.nbytes // max_bytes))
    rows: int = max(1, -(-table.num_rows // parts))
    return rows


def _ipc_file(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    (batch,) = rows.combine_chunks().to_batches()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(batch)
    file: bytes = sink.getvalue().to_pybytes()
    return file
