"""Compares two tables as of two commits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import OpenTable
from lakemark.read.queries import Snapshot
from lakemark.read.scan import Scan
from lakemark.schema.field_path import column_at, top_column
from lakemark.storage.scratch import scratch_folder
from streamer.comparison.conversion import convert
from streamer.comparison.key_buckets import MEMORY_BYTES, KeyBuckets
from streamer.comparison.rows import RowComparison
from streamer.comparison.schemas import SchemaComparison, compare_schemas


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as of one of its commits.

    Attributes:
        table: the table.
        as_of: the requested time of the commit.
    """

    table: OpenTable
    as_of: str

    def scan(self, columns: Sequence[str] | None = None) -> Scan:
        """Plan the query of the rows as of the commit."""
        return self.table.scan(Snapshot(self.as_of), columns)


@dataclass(frozen=True, slots=True)
class TableComparison:
    """What two tables have in common, and what differs.

    Attributes:
        key: the columns by which rows were matched.
        columns: the columns that were compared, and their differences.
        rows: the counts of rows, and the first differences.
    """

    key: tuple[str, ...]
    columns: SchemaComparison
    rows: RowComparison

    @property
    def is_equal(self) -> bool:
        """Whether both tables have the same columns and the same rows."""
        return self.columns.is_equal and self.rows.is_equal


@dataclass(frozen=True, slots=True)
class ComparisonRules:
    """How two tables are compared.

    Attributes:
        key: the columns by which rows are matched; by default those of the record key. If the
            tables have automatic keys, all columns that are not nested; without such a column, all.
        ignored: the columns that are not compared.
        most_examples: how many examples of each kind of difference are kept.
        memory_bytes: about how many bytes of rows of each table are held in memory.
    """

    key: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    most_examples: int = 5
    memory_bytes: int = MEMORY_BYTES


def compare_tables(
    old: TableState, new: TableState, rules: ComparisonRules = ComparisonRules()
) -> TableComparison:
    """Compare the rows of two tables, without meta columns.

    Args:
        old: the old table.
        new: the new table.
        rules: the columns to match and to compare.

    Raises:
        InvalidConfig: no column can be compared, the tables have different record keys, or a column
            of the key is missing, nested, or of a type that cannot be compared.
        SnapshotChanged: cleaning deleted files of the commits.
        DiskFull: the disk of the temporary folder is full.
        HudiError: a table cannot be read.
    """
    columns = compare_schemas(old.scan().schema, new.scan().schema, rules.ignored)
    if not columns.compared.names:
        message = (
            f"{old.table.location.url} and {new.table.location.url} have no column whose values "
            "can be compared; compare other tables, or ignore fewer columns"
        )
        raise InvalidConfig(message)
    named = _check_key(rules.key or _record_key(old, new), columns) or _plain(columns.compared)
    left, right = (one.scan(columns.compared.names).batches() for one in (old, new))
    rows = compare_rows(left, right, columns.compared, named, rules)
    return TableComparison(named, columns, rows)


def compare_rows(
    old: Iterable[pa.RecordBatch],
    new: Iterable[pa.RecordBatch],
    columns: pa.Schema,
    key: Sequence[str],
    rules: ComparisonRules = ComparisonRules(),
) -> RowComparison:
    """Compare rows, which may be more than memory holds.

    Args:
        old: the rows of one side.
        new: the rows of the other side.
        columns: the columns to compare, with the types to which both sides are converted.
        key: the columns by which rows are matched; a name with dots is the path of a field.
        rules: see ``ComparisonRules``; ``key`` and ``ignored`` are not used.

    Raises:
        DiskFull: the disk of the temporary folder is full.
    """
    found = RowComparison(most_examples=rules.most_examples)
    stopping = Event()
    with scratch_folder("compare") as folder, ThreadPoolExecutor(2) as pool:
        divided = []
        for rows, name in ((old, "old"), (new, "new")):
            buckets = KeyBuckets(columns, key, folder / name, rules.memory_bytes)
            divided.append(pool.submit(_divide, rows, buckets, stopping))
        try:
            sides = [one.result() for one in divided]
        finally:
            stopping.set()  # after an error or Ctrl-C, the other side is not read to its end
        for left, right in zip(*(side.tables() for side in sides), strict=True):
            if len(left) or len(right):
                found.add(left, right, key)
    return found


def _divide(rows: Iterable[pa.RecordBatch], buckets: KeyBuckets, stopping: Event) -> KeyBuckets:
    """Divide rows by the hash of their keys, until the comparison is given up."""
    for batch in rows:
        if stopping.is_set():
            break
        values = [convert(batch.column(one.name), one.type) for one in buckets.schema]
        buckets.add(pa.RecordBatch.from_arrays(values, schema=buckets.schema))
    return buckets


def _record_key(old: TableState, new: TableState) -> tuple[str, ...]:
    """Return the columns of the record key of both tables; none if the keys are automatic."""
    keys = [one.table.properties.record_key_fields for one in (old, new)]
    if keys[0] != keys[1]:
        names = [", ".join(one) or "automatic" for one in keys]
        message = (
            f"the record key of {old.table.location.url} is {names[0]}, and that of "
            f"{new.table.location.url} is {names[1]}; name the columns to match rows with --key"
        )
        raise InvalidConfig(message)
    return keys[0]


def _check_key(key: Sequence[str], columns: SchemaComparison) -> tuple[str, ...]:
    """Return the columns of the key, which both tables must have.

    Raises:
        InvalidConfig: a column is missing or nested, or its types cannot be compared.
    """
    empty = columns.compared.empty_table()
    for name in key:
        if top_column(name, columns.compared) in columns.not_compared:
            reason = "its types in the tables cannot be compared"
        elif top_column(name, columns.compared) not in columns.compared.names:
            reason = "not both tables have it"
        elif pa.types.is_nested(column_at(empty, name).type):
            reason = f"its type is {column_at(empty, name).type}"
        else:
            continue
        message = f"rows cannot be matched by column {name}: {reason}; name others with --key"
        raise InvalidConfig(message)
    return tuple(key)


def _plain(columns: pa.Schema) -> tuple[str, ...]:
    return tuple(field.name for field in columns if not pa.types.is_nested(field.type))
