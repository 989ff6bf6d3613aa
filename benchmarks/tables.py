"""The tables of the read benchmark, which lakemark's own writer creates, and their rows.

Row ``n`` depends only on ``n`` and its version (``orders.py``), so that the expected sums are known
without reading a table. Row ``n`` is in partition ``n % partitions``, and ``sequence`` ascends
within every base file. Keys are hashed to buckets as in any table with a bucket index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import orders
from benchmarks.orders import Numbers
from benchmarks.peers.read_contract import Sums
from lakemark.config.merger_name import MergerName
from lakemark.config.table_spec import TableSpec
from lakemark.execution.runner import LocalRunner
from lakemark.index.bucket import BucketIndex, file_id
from lakemark.merge.change_index import MergeCounts, MergeResult
from lakemark.merge.merge_stream import MergeStream
from lakemark.model.changes import CHANGE_KIND_FIELD, ChangeKind
from lakemark.model.commit_metadata import WriteStat
from lakemark.model.file_slice import FileGroupId
from lakemark.model.meta_columns import PARTITION_PATH, RECORD_KEY, with_meta_columns
from lakemark.operations.create import create_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.operations.writer_settings import WriterSettings
from lakemark.services.compaction import request_compaction
from lakemark.services.compaction_plan import CompactionPolicy
from lakemark.storage import StorageLocation
from lakemark.write.file_group_write import write_base_file, write_file_group
from lakemark.write.markers import create_partition_metafile
from lakemark.write.partitioner import Bucket

Mask: TypeAlias = npt.NDArray[np.bool_]
Condition: TypeAlias = Callable[[Numbers], Mask]
#: A file group, and the rows that are written to it.
Changes: TypeAlias = tuple[Bucket, Iterable[pa.Table]]

NAME = "orders"

_NEVER_OF_ITS_OWN = CompactionPolicy(after_commits=1 << 30)
#: How many rows are generated at a time.
_CHUNK_ROWS = 100_000
#: The seed that decides which rows change, independent of their values.
_CHANGES_SEED = 1 << 32


@dataclass(frozen=True, slots=True)
class Layout:
    """The number of rows of a table, and of the files that they are divided into."""

    rows: int
    partitions: int
    buckets: int

    @property
    def index(self) -> BucketIndex:
        """The index that assigns keys to buckets."""
        return BucketIndex(self.buckets, (orders.KEY,))


def every_row(numbers: Numbers) -> Mask:
    """Select all rows."""
    return np.ones(len(numbers), np.bool_)


def no_row(numbers: Numbers) -> Mask:
    """Select no row."""
    return np.zeros(len(numbers), np.bool_)


def one_in(count: int, which: int = 0) -> Condition:
    """Select scattered rows of all files; ``one_in(5)`` includes the rows of ``one_in(10)``."""

    def holds(numbers: Numbers) -> Mask:
        mask: Mask = orders.scattered(numbers, _CHANGES_SEED) % count == which
        return mask

    return holds


@dataclass(frozen=True, slots=True)
class Delta:
    """One delta commit: the rows that it updates to this version, and those that it deletes."""

    version: int
    updates: Condition
    deletes: Condition = no_row


#: Delta commits that update a fifth of the keys, then half of them again, and delete one in 100.
UPDATES = (Delta(1, one_in(5)), Delta(2, one_in(10), one_in(100, which=1)))
#: A delta commit that updates every key.
REWRITE = (Delta(1, every_row),)


def create(
    path: Path, layout: Layout, merger: MergerName | None = None, *, metadata_table: bool = False
) -> None:
    """Create a table whose file groups have only a base file, as after a compaction.

    Args:
        path: an empty folder, or one that does not exist.
        layout: the layout of the table.
        merger: the merger of its records; None to merge by event time.
        metadata_table: whether it has a metadata table.
    """
    spec = TableSpec(
        name=NAME,
        record_key=(orders.KEY,),
        partition_by=(orders.PARTITION,),
        ordering=(orders.ORDERING,),
        merger=merger,
        metadata_table=metadata_table,
    )
    class_path = merger.class_path if merger else None
    writer = writer_of(create_table(StorageLocation(str(path)), spec), layout, class_path)
    context = writer.begin()

    def write(part: _Part) -> WriteStat:
        bucket = part.bucket
        create_partition_metafile(context.storage, context.instant, bucket.partition_path)
        identity = file_id(bucket.number, bucket.partition_path, context.instant, NAME)
        live = (
            MergeResult(_with_keys(rows), MergeCounts(inserted=rows.num_rows))
            for rows in part.rows()
        )
        group = FileGroupId(bucket.partition_path, identity)
        return write_base_file(context, group, MergeStream(live))

    stats = LocalRunner().map(write, list(_parts(layout)))
    writer.commit(stats, {})


def append(path: Path, layout: Layout, delta: Delta, merger_class: str | None = None) -> None:
    """Make one delta commit, with a log file for every file group."""
    writer = writer_of(open_table(StorageLocation(str(path))), layout, merger_class)
    commit(writer, changes(layout, delta))


def changes(layout: Layout, delta: Delta) -> list[Changes]:
    """Yield the changes of a delta commit to each file group; rows are generated when needed."""
    return [(part.bucket, part.changes(delta)) for part in _parts(layout)]


def commit(writer: TableWriter, changed: Sequence[Changes]) -> None:
    """Make one delta commit with a writer that may have made others before."""
    context, assignment = writer.begin(), writer.assigner.assign_file_groups()

    def write(change: Changes) -> list[WriteStat]:
        bucket, rows = change
        return write_file_group(context, assignment.task(bucket), rows)

    written = LocalRunner().map(write, changed)
    writer.commit([stat for stats in written for stat in stats], {})


def writer_of(table: OpenTable, layout: Layout, merger_class: str | None = None) -> TableWriter:
    """Open a writer of these tables."""
    settings = WriterSettings(layout.index, merger_class=merger_class)
    return TableWriter(table, orders.SCHEMA, settings)


def plan_compaction(path: Path) -> None:
    """Request a compaction of every file slice that has a log, without executing it."""
    table = open_table(StorageLocation(str(path)))
    requested = request_compaction(
        table.context, lambda timeline: table.view().slices_for_writing()
    )
    assert requested is not None, f"{path} has no logs"


def compact(path: Path, layout: Layout, merger_class: str | None = None) -> None:
    """Execute the requested compactions, as the service of a pipeline does."""
    writer = writer_of(open_table(StorageLocation(str(path))), layout, merger_class)
    done = writer.compact_if_due(_NEVER_OF_ITS_OWN, LocalRunner())
    assert done, f"{path} has no pending compaction"


def expected(
    layout: Layout, deltas: tuple[Delta, ...] = (), condition: Condition = every_row
) -> Sums:
    """Compute the expected sums of the rows that meet a condition after these commits."""
    total = Sums()
    for numbers in _chunks(np.arange(layout.rows)):
        version = np.zeros(len(numbers), np.int64)
        stays = condition(numbers)
        for delta in deltas:
            version[delta.updates(numbers)] = delta.version
            stays &= ~delta.deletes(numbers)
        for each in np.unique(version[stays]):
            left = numbers[stays & (version == each)]
            total += sums(orders.rows(left, layout.partitions, int(each)).to_batches())
    return total


def sums(batches: list[pa.RecordBatch] | Iterator[pa.RecordBatch]) -> Sums:
    """Compute the sums of rows that have the columns of an order, and maybe others."""
    return reduce(add, map(_sums, batches), Sums())


def _sums(rows: pa.RecordBatch) -> Sums:
    if not rows.num_rows:
        return Sums()
    return Sums(
        rows=rows.num_rows,
        sequence=pc.sum(rows.column(orders.SEQUENCE)).as_py(),
        updated_at_s=pc.sum(rows.column(orders.ORDERING)).as_py(),
        quantity=pc.sum(rows.column("quantity")).as_py(),
        amount_cents=int(pc.sum(rows.column("amount")).as_py() * 100),
        note_characters=pc.sum(pc.utf8_length(rows.column("note"))).as_py(),
    )


def base_files(path: Path) -> tuple[str, ...]:
    """List the table's latest base files."""
    slices = open_table(StorageLocation(str(path))).view().read_optimized()
    return tuple(str(path / each.base.path) for each in slices if each.base)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The rows of one file group."""

    layout: Layout
    bucket: Bucket
    numbers: Numbers = field(repr=False)

    def rows(self, version: int = 0, numbers: Numbers | None = None) -> Iterator[pa.Table]:
        for chunk in _chunks(self.numbers if numbers is None else numbers):
            yield orders.rows(chunk, self.layout.partitions, version)

    def changes(self, delta: Delta) -> Iterator[pa.Table]:
        """Return the changes of a delta commit to the file group."""
        for rows in self.rows(delta.version, self.numbers[delta.updates(self.numbers)]):
            yield _with_kind(_with_keys(rows), ChangeKind.UPSERT)
        for rows in self.rows(delta.version, self.numbers[delta.deletes(self.numbers)]):
            yield _with_kind(_deletes(_with_keys(rows)), ChangeKind.DELETE)


def _parts(layout: Layout) -> Iterator[_Part]:
    for partition in range(min(layout.partitions, layout.rows)):
        numbers = np.arange(partition, layout.rows, layout.partitions)
        hashed = [layout.index.bucket_ids(orders.keys(chunk)) for chunk in _chunks(numbers)]
        bucket_of_row = np.concatenate(hashed)
        for number in np.unique(bucket_of_row):
            bucket = Bucket(orders.partition_path(partition), int(number))
            yield _Part(layout, bucket, numbers[bucket_of_row == number])


def _chunks(numbers: Numbers) -> Iterator[Numbers]:
    for start in range(0, len(numbers), _CHUNK_ROWS):
        yield numbers[start : start + _CHUNK_ROWS]


def _with_keys(rows: pa.Table) -> pa.Table:
    """Add the key and the partition path to rows; the file writer adds the other meta columns."""
    known = {RECORD_KEY: rows.column(orders.KEY), PARTITION_PATH: rows.column(orders.PARTITION)}
    schema = with_meta_columns(orders.SCHEMA)
    columns = [
        known[name]
        if name in known
        else rows.column(name)
        if name in rows.column_names
        else pa.nulls(rows.num_rows, pa.string())
        for name in schema.names
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _with_kind(rows: pa.Table, kind: ChangeKind) -> pa.Table:
    kinds = pa.array(np.full(rows.num_rows, kind, np.int8))
    return rows.append_column(CHANGE_KIND_FIELD, kinds)


def _deletes(rows: pa.Table) -> pa.Table:
    """Remove the values that a delete does not contain."""
    kept = (RECORD_KEY, PARTITION_PATH, orders.ORDERING)
    columns = [
        rows.column(each.name) if each.name in kept else pa.nulls(rows.num_rows, each.type)
        for each in rows.schema
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)
