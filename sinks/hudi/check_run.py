"""Runs the checks of ``expect`` on the rows of a batch, in DuckDB.

One process receives the rows of the whole batch, with only the columns that the checks read: the
driver, or one reduce task of a batch that is written on the cluster. There, the rows are on the
disk of the task, and DuckDB spills to this disk, so the size of the batch does not limit the memory
of a check.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa

from lakemark.config.table_properties import TableProperties
from lakemark.errors import InvalidConfig, Refused
from lakemark.merge.custom.api import CustomMerger
from lakemark.model.meta_columns import without_meta_columns
from lakemark.model.python_values import python_rows
from lakemark.operations.open_table import OpenTable
from lakemark.operations.table_queries import LATEST
from lakemark.sql.engine import open_connection
from lakemark.sql.relation import QueriedRows, Relation
from lakemark.sql.sql_query import SqlQuery
from lakemark.sql.table_reference import TableReference
from lakemark.storage import StorageLocation, open_storage
from lakemark.timeline.clock import TimelineClock
from transforms.batch_checks import SHOWN_ROWS, BatchCheck, CheckResult, CheckResults, show_row
from transforms.batch_query import BATCH, STORED, without_comments


@dataclass(frozen=True)
class StoredTable:
    """What opens the table of a pipeline in any process. Can be pickled."""

    location: StorageLocation
    properties: TableProperties
    mergers: tuple[CustomMerger, ...]
    clock: TimelineClock

    @classmethod
    def of(cls, table: OpenTable) -> StoredTable:
        """Return what opens a table again."""
        return cls(table.location, table.properties, table.mergers, table.store.clock)

    def open(self) -> OpenTable:
        """Open the table. The pending commit of the batch is not visible in it."""
        storage = open_storage(self.location)
        return OpenTable(storage, self.properties, mergers=self.mergers, clock=self.clock)


@dataclass(frozen=True)
class CheckRun:
    """Runs checks on the rows of a batch. Can be pickled.

    Attributes:
        checks: the checks.
        table: opens the table that the batch is written to.
        columns: the columns of the table, without meta columns.
    """

    checks: tuple[BatchCheck, ...]
    table: StoredTable
    columns: pa.Schema

    def __call__(self, tables: Iterable[pa.Table]) -> CheckResults:
        """Return the results of all checks.

        Args:
            tables: the rows of the batch, with the columns that the checks read.

        Raises:
            HudiError: the table cannot be read, or the disk is full.
        """
        given = list(tables)
        rows = pa.concat_tables(given) if given else self.columns.empty_table()
        with ExitStack() as resources:
            connection = open_connection(resources)
            connection.register(BATCH, rows)
            relations = self._stored()
            return CheckResults(tuple(_run(connection, check, relations) for check in self.checks))

    def _stored(self) -> dict[str, Relation]:
        """Return the relation of the stored rows, if a check reads them."""
        if not any(check.reads_stored for check in self.checks):
            return {}
        table = self.table.open()
        source = _NoRows(self.columns) if table.known_schema is None else QueriedRows(table, LATEST)
        reference = TableReference(self.table.location.url, LATEST)
        return {STORED: Relation(reference, source, Lock(), has_meta_columns=False)}


class _NoRows:
    """The rows of a table that has no commit yet; a ``RowSource``."""

    def __init__(self, columns: pa.Schema) -> None:
        self.schema = without_meta_columns(columns)

    def read(self, columns: Any, condition: Any) -> pa.RecordBatchReader:
        """Return no rows."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        return pa.RecordBatchReader.from_batches(schema, ())

    def explain(self, condition: Any) -> None:
        """Return None, because no file is read."""


def _run(connection: Any, check: BatchCheck, relations: dict[str, Relation]) -> CheckResult:
    own = relations if check.reads_stored else {}
    try:
        query = without_comments(check.query)
        return _count(SqlQuery(connection, query, own, ExitStack()).to_reader())
    except (InvalidConfig, Refused) as error:
        return CheckResult(error=str(error))


def _count(found: pa.RecordBatchReader) -> CheckResult:
    count, first = 0, list[str]()
    for batch in found:
        count += batch.num_rows
        missing = SHOWN_ROWS - len(first)
        first += [show_row(row) for row in python_rows(batch.slice(0, missing))]
    return CheckResult(count, tuple(first))
