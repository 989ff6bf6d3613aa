"""The exchange of a large batch: two Spark stages, with the project's only shuffle between them.

Map      A task gathers Arrow batches of raw records to chunks of ``CHUNK_BYTES``, and prepares each
         chunk. It sends one payload to each reduce task: an Arrow IPC file with one record batch
         for each portion.
Reduce   A task stores the payloads on its disk without reading them. Then it reads the buckets one
         after the other, in order of the records' partition and offset, and writes each bucket to
         one file.

Memory is limited by three sizes: a chunk (16 MiB of raw records, or one larger record), a payload
(at most a chunk; less if Spark limits its Arrow batches only by rows), and the merge of one bucket,
which spills to disk (``lakemark.merge.merge_stream``).
"""

from __future__ import annotations

import json
import pickle
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from lakemark.merge.merge_stream import split_batches
from lakemark.spark.versions import VersionCheckedTask
from lakemark.storage.durability import sync_process
from lakemark.storage.scratch import scratch_folder, temporary_writes
from lakemark.write.partitioner import Bucket
from sinks.batch import KafkaBatch
from sinks.hudi.collect import MAX_ARROW_BATCH_BYTES, ROWS_IN_ARROW_BATCH
from sinks.hudi.exchange import (
    CHUNK_BYTES,
    OpenWrite,
    Portion,
    PortionKind,
    PortionResult,
    Prepare,
    Write,
)

_PORTIONS = b"lakemark.portions"
_PAYLOAD = pa.schema([("route", pa.int32()), ("order", pa.string()), ("payload", pa.binary())])
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
        max_payload_bytes = self._limit_arrow_batches(batch.records.sparkSession)
        mapper = VersionCheckedTask(_Mapper(prepare, routes(self._reduce_tasks), max_payload_bytes))
        reducer = VersionCheckedTask(_Reducer(open_write(True)))
        results = (
            batch.records.mapInArrow(mapper, "route int, order string, payload binary")
            .repartition(self._reduce_tasks, f.col("route"))
            .mapInArrow(reducer, "written binary")
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
class _Mapper:
    """The first stage: converts Arrow batches of raw records to payloads."""

    prepare: Prepare
    routes: tuple[int, ...]
    max_payload_bytes: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for records in chunks(batches):
            order = _order(records)
            for reducer, portions in self._by_reducer(records).items():
                for number, payload in enumerate(_payloads(portions, self.max_payload_bytes)):
                    columns = [[self.routes[reducer]], [f"{order}-{number:06d}"], [payload]]
                    arrays = [pa.array(c, t) for c, t in zip(columns, _PAYLOAD.types, strict=True)]
                    yield pa.RecordBatch.from_arrays(arrays, schema=_PAYLOAD)

    def _by_reducer(self, records: pa.Table) -> dict[int, list[Portion]]:
        divided: dict[int, list[Portion]] = defaultdict(list)
        for portion in self.prepare(records):
            divided[reducer_of(portion.kind, portion.bucket, len(self.routes))].append(portion)
        return divided


@dataclass(frozen=True)
class _Reducer:
    """The second stage: writes one file for each bucket, and returns the results."""

    write: Write

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with scratch_folder("exchange") as folder:
            spool = _Spool(folder)
            for batch in batches:
                for order, payload in zip(batch.column(1), batch.column(2), strict=True):
                    spool.add(order.as_py(), payload.as_buffer())
            results = [self.write(*key, spool.read(key)) for key in spool.keys()]
        sync_process()  # the driver flushes only files of its own process to the disk
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(results)])], schema=_RESULT)


class _Spool:
    """Payloads on the worker's disk, and the positions of the portions in these payloads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._payloads = 0
        self._positions: dict[tuple[PortionKind, Bucket], list[tuple[str, Path, int]]] = {}

    def add(self, order: str, payload: pa.Buffer) -> None:
        """Store a payload unchanged."""
        path = self._folder / f"{self._payloads:08d}"
        self._payloads += 1
        with temporary_writes("changes of a batch on their way to their file group"):
            path.write_bytes(payload)
        with pa.ipc.open_file(pa.BufferReader(payload)) as file:
            listed = json.loads(file.schema.metadata[_PORTIONS])
        for index, (kind, partition_path, number) in enumerate(listed):
            key = (PortionKind(kind), Bucket(partition_path, number))
            self._positions.setdefault(key, []).append((order, path, index))

    def keys(self) -> list[tuple[PortionKind, Bucket]]:
        """Return the kind and the bucket of all portions."""
        return sorted(self._positions)

    def read(self, key: tuple[PortionKind, Bucket]) -> Iterator[pa.Table]:
        """Yield the portions of a bucket in order of arrival, even after the shuffle mixed them."""
        for _, path, index in sorted(self._positions[key]):
            with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
                yield pa.Table.from_batches([file.get_batch(index)]).replace_schema_metadata(None)


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


def reducer_of(kind: PortionKind, bucket: Bucket, reducers: int) -> int:
    """Return the reduce task of a bucket. Buckets with adjacent numbers get different tasks."""
    return (zlib.crc32(bucket.partition_path.encode()) + bucket.number + kind) % reducers


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


def _payloads(portions: list[Portion], max_bytes: int) -> Iterator[bytes]:
    for group in _group_up_to(portions, max_bytes):
        listed = [[int(p.kind), p.bucket.partition_path, p.bucket.number] for p in group]
        yield _ipc_file(group, json.dumps(listed).encode())


def _group_up_to(portions: list[Portion], max_bytes: int) -> Iterator[list[Portion]]:
    group: list[Portion] = []
    for portion in _split(portions, max_bytes):
        other_schema = bool(group) and group[0].table.schema != portion.table.schema
        if group and (other_schema or sum(p.table.nbytes for p in [*group, portion]) > max_bytes):
            yield group
            group = []
        group.append(portion)
    if group:
        yield group


def _split(portions: list[Portion], max_bytes: int) -> Iterator[Portion]:
    for portion in portions:
        for part in split_batches(portion.table, max_bytes):
            yield Portion(portion.kind, portion.bucket, part)


def _ipc_file(portions: list[Portion], listed: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    schema = portions[0].table.schema.with_metadata({_PORTIONS: listed})
    with pa.ipc.new_file(sink, schema) as writer:
        for portion in portions:
            writer.write_batch(
                portion.table.combine_chunks()
                .to_batches()[0]
                .replace_schema_metadata(schema.metadata)
            )
    file: bytes = sink.getvalue().to_pybytes()
    return file
