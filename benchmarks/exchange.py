"""Measures both exchanges of a batch against the number of buckets, and tasks against the table.

``python -m benchmarks.exchange [--records N] [--buckets N,N] [--groups N,N] [--reducers N]``

The first report is the CPU time of a record in each exchange: from raw records until the rows of
each bucket are read in order of arrival, without the files. The two stages of Spark's exchange run
in this process, one task after the other, so the figures contain no time of the JVM. The records
are decoded, and each bucket has about as many records as each other bucket.

The second report is the number of pickled bytes that a task receives, for tables with different
numbers of file groups: the function, which Spark sends with each task of a stage, and the file
groups of the task, which the shuffle brings.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import cast

import numpy as np
import pyarrow as pa

from lakemark.config.merge_settings import MergeSettings
from lakemark.config.table_properties import MergeMode, TableType
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex, file_id
from lakemark.keygen.key_generator import KeyGenerator, KeyGeneratorConfig
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.spark.versions import VersionCheckedTask
from lakemark.storage import StorageLocation
from lakemark.write.partitioner import Bucket
from lakemark.write.write_context import WriteContext
from sinks.batch import KafkaBatch
from sinks.hudi.exchange import CHUNK_BYTES, Portion, PortionKind, ReadBatch
from sinks.hudi.prepare import BucketWriter, PrepareChunk, WriteBuckets
from sinks.hudi.spark_exchange import Mapper, Reducer, as_payload, messages, routes
from sinks.letter_layout import INDEX
from transforms.decode.json import JsonDecoder
from transforms.record_converter import RecordConverter
from transforms.schema_text import parse_schema

PARTITIONS = 4
_COLUMNS = {
    "order_id": "string",
    "region": "string",
    "customer": "string",
    "status": "string",
    "amount": "double",
    "quantity": "int",
    "updated_at": "bigint",
    "note": "string",
}
_KEYS = 400_009
_NOTE = "a note that makes records as long as in the benchmark of ingestion"
_ARROW_ROWS = 10_000
_INSTANT = "20260101000000000"


#: The number of rows of each bucket that was read; several threads append to it.
_READ: list[int] = []


@dataclass(frozen=True)
class CountRows:
    """Reads the rows of each bucket, counts them in ``_READ``, and writes nothing."""

    def __call__(self, kind: PortionKind, bucket: Bucket, tables: Iterable[pa.Table]) -> None:
        """See ``Write``."""
        if kind is PortionKind.ROWS:
            _READ.append(sum(table.num_rows for table in tables))

    def place(self, portions: Sequence[Portion]) -> tuple[CountRows, Sequence[Portion]]:
        """See ``Write.place``."""
        return self, portions

    def for_tasks(self, tasks: int) -> Sequence[CountRows]:
        """See ``Write.for_tasks``."""
        return [self] * tasks


def raw_records(count: int) -> pa.Table:
    """Create records of about 230 bytes of JSON, of 400,009 keys in four partitions."""
    values = [_value(number) for number in range(count)]
    numbers = np.arange(count)
    return pa.table(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "partition": pa.array(numbers % PARTITIONS, pa.int32()),
            "offset": pa.array(numbers // PARTITIONS, pa.int64()),
            "timestamp": pa.array(numbers, pa.timestamp("us", "UTC")),
        }
    )


def _value(number: int) -> bytes:
    key = number * 7919 % _KEYS
    text = (
        f'{{"order_id":"order-{key:08d}","region":"region-{key % PARTITIONS}",'
        f'"customer":"customer-{key % 997}","status":"paid","amount":{number % 1000}.25,'
        f'"quantity":{number % 13},"updated_at":{number},"note":"{_NOTE}{number:08d}"}}'
    )
    return text.encode()


def prepare_chunks(buckets: int) -> PrepareChunk:
    """Return the function that decodes and divides chunks, for a table with so many buckets."""
    decoder = JsonDecoder(parse_schema(_COLUMNS))
    keys = KeyGenerator(KeyGeneratorConfig(("order_id",), ("region",)))
    return PrepareChunk(
        converter=RecordConverter(decoder, keys, ("updated_at",), topic="orders"),
        row_index=BucketIndex(max(1, buckets // PARTITIONS), ("order_id",)),
        reject_index=INDEX,
    )


def run_on_driver(records: pa.Table, prepare: PrepareChunk) -> None:
    """Run the driver's exchange in one thread."""
    batch = ReadBatch([records], LocalRunner(1))
    batch.run(cast(KafkaBatch, None), prepare, lambda may_reject: CountRows())


def map_stage(records: pa.Table, prepare: PrepareChunk, reducers: int) -> list[pa.RecordBatch]:
    """Run the map stage of Spark's exchange as one task, and return the payloads."""
    mapper = Mapper(prepare, routes(reducers), CHUNK_BYTES)
    return list(mapper(records.to_batches(_ARROW_ROWS)))


def reduce_stage(payloads: Sequence[pa.RecordBatch], reducers: int) -> None:
    """Run each task of the reduce stage."""
    by_route: dict[int, list[pa.RecordBatch]] = defaultdict(list)
    for payload in payloads:
        by_route[payload.column("route")[0].as_py()].append(payload)
    for number, columns in enumerate(messages(routes(reducers), CountRows())):
        by_route[routes(reducers)[number]].append(as_payload(columns))
    for some in by_route.values():
        list(Reducer()(some))


def report_cpu(records: int, buckets: Sequence[int], reducers: int, repeats: int) -> None:
    """Print the CPU time of a record in microseconds, the median of the repeats."""
    table = raw_records(records)
    print(f"{records:,} records of {table.nbytes / records:.0f} bytes, {reducers} reduce tasks\n")
    print("| buckets with records | driver | Spark: map | Spark: reduce |\n|---|---|---|---|")
    first: list[float] = []
    for count in buckets:
        prepare = prepare_chunks(count)
        driver = _measured(partial(run_on_driver, table, prepare), repeats)
        found = _take_counts(records, repeats)
        payloads = map_stage(table, prepare, reducers)
        mapping = _measured(partial(map_stage, table, prepare, reducers), repeats)
        reducing = _measured(partial(reduce_stage, payloads, reducers), repeats)
        assert found == _take_counts(records, repeats)
        times = [one / records * 1e6 for one in (driver, mapping, reducing)]
        first = first or times
        cells = [
            f"{one:.2f} µs ({one / base:.2f}x)" for one, base in zip(times, first, strict=True)
        ]
        print(f"| {found:,} | " + " | ".join(cells) + " |", flush=True)


def _measured(run: Callable[[], object], repeats: int) -> float:
    """Run a function several times, and return the median of its CPU times in seconds."""
    times_s = []
    for _ in range(repeats):
        began_s = time.process_time()
        run()
        times_s.append(time.process_time() - began_s)
    return median(times_s)


def _take_counts(records: int, repeats: int) -> int:
    """Check that all rows were read, and return the number of buckets."""
    buckets = len(_READ) // repeats
    assert sum(_READ) == records * repeats, sum(_READ)
    _READ.clear()
    return buckets


def report_bytes(groups: Sequence[int], reducers: int) -> None:
    """Print how many pickled bytes a task receives, for tables of so many file groups."""
    print("\n| file groups | function of a task | file groups of a reduce task | CPU time |")
    print("|---|---|---|---|")
    for count in groups:
        writer = BucketWriter(_context(), assignment_of(count))
        function = pickle.dumps(VersionCheckedTask(Reducer()))
        began_s = time.process_time()
        sent = [len(one[-1]) for one in messages(routes(reducers), WriteBuckets(writer, None))]
        taken_s = time.process_time() - began_s
        print(f"| {count:,} | {len(function):,} | {max(sent):,} | {taken_s:.2f} s |", flush=True)


def assignment_of(groups: int) -> FileGroupAssignment:
    """Return the file groups of a table; each has a base file and two logs."""
    slices = {}
    for group in range(groups):
        path, number = f"region-{group % PARTITIONS}", group // PARTITIONS
        own_id = file_id(number, path, _INSTANT, "orders")
        base = BaseFile(path, BaseFileName(own_id, f"{group}-0-0", _INSTANT), 440_000)
        logs = tuple(
            LogFile(path, LogFileName(own_id, f"2026010100000000{n}", 1, f"{group}-0-0"), 20_000)
            for n in (1, 2)
        )
        group_id = FileGroupId(path, own_id)
        slices[Bucket(path, number)] = FileSlice(group_id, _INSTANT, base, logs)
    return FileGroupAssignment(slices, frozenset(f"region-{n}" for n in range(PARTITIONS)))


def _context() -> WriteContext:
    return WriteContext(
        location=StorageLocation("/orders"),
        instant=_INSTANT,
        table_name="orders",
        table_type=TableType.MERGE_ON_READ,
        schema=parse_schema(_COLUMNS),
        avro_schema_text="{}",
        merge=MergeSettings(mode=MergeMode.EVENT_TIME, ordering_fields=("updated_at",)),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print both reports as tables in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exchange", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--buckets", default="12,1000,100000", help="separated by commas")
    parser.add_argument("--groups", default="100,10000,100000", help="separated by commas")
    parser.add_argument("--reducers", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args(arguments)
    report_cpu(asked.records, _numbers(asked.buckets), asked.reducers, asked.repeats)
    report_bytes(_numbers(asked.groups), asked.reducers)


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    # The classes of a script are pickled as copies, with copies of what they count.
    from benchmarks.exchange import main

    main()
