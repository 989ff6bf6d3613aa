"""Measures how a lookup index finds the files of keys, in footers and in the metadata table.

One partition has many base files, and a batch changes a few keys. Each request to the store takes a
fixed time, as over a network. The table is in the memory of this process.

``python -m benchmarks.tagging [--files N] [--rows N] [--keys N …] [--latency-ms N]``
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import numpy as np
import pyarrow as pa

import lakemark
from benchmarks.round_trips import DistantStorage, Trips, measure
from lakemark.execution.runner import LocalRunner
from lakemark.index.key_lookup import NEW_KEY
from lakemark.index.lookup import LookupIndex, new_file_id
from lakemark.index.stored_filters import StoredFilters
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.partition_kind import PartitionKind
from lakemark.model.changes import CHANGE_KIND, CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.file_group_assigner import FileGroupAssignment
from lakemark.operations.lookup_assigner import searched_groups
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.properties_file import read_properties
from lakemark.write.file_group_write import write_file_group
from lakemark.write.partitioner import Bucket

_SCHEMA = pa.schema([("id", pa.string()), ("day", pa.string()), ("v", pa.int64())])
_PATH = "1"
_EVERY = (PartitionKind.COLUMN_STATS, PartitionKind.BLOOM_FILTERS)


class CountedStorage(DistantStorage):
    """Also counts the bytes that are read."""

    read_bytes = 0

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Open an object; a small one is read as a whole."""
        file = super().open(path)
        if isinstance(file, io.BytesIO):
            self.read_bytes += file.getbuffer().nbytes
        return file

    def _range(self, path: str, start: int, length_bytes: int) -> bytes:
        data = super()._range(path, start, length_bytes)
        self.read_bytes += len(data)
        return data


@dataclass(frozen=True, slots=True)
class Tagging:
    """The cost of one search."""

    trips: Trips
    read_bytes: int
    cpu_s: float

    def __str__(self) -> str:
        return (
            f"{self.trips.requests:5} requests ({self.trips.sequential:4} sequential)  "
            f"{self.read_bytes / 1e6:7.1f} MB  {self.trips.wall_s:6.2f} s  CPU {self.cpu_s:5.2f} s"
        )


def create_table(folder: Path, files: int, rows: int, *, in_order: bool) -> None:
    """Create a table whose files have as many rows; with or without narrow ranges of keys."""
    lakemark.create(
        folder,
        schema=_SCHEMA,
        record_key="id",
        partition_by="day",
        index="lookup",
        table_type="copy_on_write",
        only_writer=True,
    )
    writer = _writer(open_storage(StorageLocation(str(folder))))
    context, stats = writer.begin(), list[WriteStat]()
    for number in range(files):
        bucket = Bucket(_PATH, number)
        ids = {bucket: new_file_id(number, _PATH, context.instant, "orders")}
        task = FileGroupAssignment({}, frozenset(), new_file_ids=ids).task(bucket)
        mine = np.arange(rows) + number * rows if in_order else np.arange(rows) * files + number
        stats += write_file_group(context, task, [_changes(mine)])
    writer.commit(stats, {})
    lakemark.open(folder, only_writer=True).create_index("bloom_filters")


def searches(storage: CountedStorage, keys: pa.Array) -> Iterator[tuple[str, Tagging]]:
    """Yield the name and the cost of each way to find the files of keys."""
    for name, kinds in (
        ("footers", ()),
        ("ranges of the metadata table, footers", _EVERY[:1]),
        ("ranges and filters of the metadata table", _EVERY),
    ):
        yield name, _search(storage, keys, kinds)


def _search(storage: CountedStorage, keys: pa.Array, kinds: tuple[PartitionKind, ...]) -> Tagging:
    writer = _writer(storage)
    reader = writer.begin().reader
    writer.cancel()
    groups = searched_groups(writer.table.view(), _PATH)
    writer.table.snapshot.forget_metadata_table(writer.table.properties)

    def open_metadata(kind: PartitionKind) -> MetadataTable | None:
        return writer.table.snapshot.metadata_with(kind) if kind in kinds else None

    index = LookupIndex(reader, LocalRunner(), StoredFilters(open_metadata, 2, 10_000))
    storage.read_bytes, began_s = 0, time.process_time()
    trips = measure(storage, lambda: _check(index.tag(groups, keys, _PATH)))
    return Tagging(trips, storage.read_bytes, time.process_time() - began_s)


def _check(tags: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
    assert (tags != NEW_KEY).all()


def _writer(storage: object) -> TableWriter:
    table = OpenTable(storage, read_properties(storage))  # type: ignore[arg-type]
    return TableWriter(table, _SCHEMA, WriterSettings(None))


def _changes(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    ids, count = ids_of(numbers), len(numbers)
    columns = {
        RECORD_KEY: ids,
        PARTITION_PATH: [_PATH] * count,
        "id": ids,
        "day": [_PATH] * count,
        "v": numbers,
        CHANGE_KIND: [int(ChangeKind.UPSERT)] * count,
    }
    schema = with_meta_columns(_SCHEMA).append(CHANGE_KIND_FIELD)
    nothing: list[None] = [None] * count
    return pa.table([pa.array(columns.get(f.name, nothing), f.type) for f in schema], schema=schema)


def ids_of(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    """Return the record keys of rows with these numbers."""
    return pa.array([f"order-{number:012d}" for number in numbers.tolist()], pa.string())


def main() -> None:
    """Print the cost of each search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--latency-ms", type=float, default=20)
    given = parser.parse_args()
    for in_order in (True, False):
        storage = CountedStorage(given.latency_ms / 1000)
        with TemporaryDirectory() as folder:
            create_table(Path(folder) / "orders", given.files, given.rows, in_order=in_order)
            storage.copy_from(Path(folder) / "orders")
        total = given.files * given.rows
        for count in given.keys:
            chosen = np.arange(count) + total // 2 if in_order else np.arange(count) * 7919 + 1
            for name, cost in searches(storage, ids_of(np.unique(chosen % total))):
                order = "in order" if in_order else "random"
                print(f"{order:8} {count:6} keys  {name:42} {cost}", flush=True)


if __name__ == "__main__":
    main()
