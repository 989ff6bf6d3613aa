"""A table as a relation that DuckDB scans, with the columns and the conditions that it asks for.

DuckDB accepts datasets of Arrow, and asks each scan for some columns and a condition. It asks only
for conditions that Arrow evaluates as DuckDB does, and evaluates all others itself: for example, it
orders NaN above all numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from lakemark.errors import Refused
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.read.explanation import Explanation
from lakemark.read.queries import Incremental, Query
from lakemark.read.row_filter import filter_rows
from lakemark.sql.table_reference import Changes, TableReference


@dataclass(frozen=True, slots=True)
class TableScan:
    """A scan of a table that a query makes.

    Attributes:
        table: the table and the type of query.
        columns: the columns that are read.
        condition: the condition by which files, row groups and rows are skipped; None if there is
            none. Other conditions of the query are evaluated on the rows of the scan.
        explanation: the file groups that are read, and why others are skipped; None for ``cdc``,
            whose files are changes.
    """

    table: TableReference
    columns: tuple[str, ...]
    condition: pc.Expression | None
    explanation: Explanation | None


class RowSource(Protocol):
    """The rows of a relation."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        ...

    def read(self, columns: Sequence[str], condition: pc.Expression | None) -> pa.RecordBatchReader:
        """Return the rows that meet a condition, with these columns."""
        ...

    def explain(self, condition: pc.Expression | None) -> Explanation | None:
        """Explain which file groups are read."""
        ...


class QueriedRows:
    """The rows of a snapshot, read-optimized or incremental query."""

    def __init__(
        self, table: OpenTable, query: Query, record_keys: Sequence[str] | None = None
    ) -> None:
        """Keep the query.

        Args:
            table: the table.
            query: the query.
            record_keys: the keys of the rows; None for all rows.
        """
        self._table, self._query, self._keys = table, query, record_keys

    @property
    def schema(self) -> pa.Schema:
        """See ``RowSource``; time travel has the columns of its time.

        Raises:
            Refused: the table has no commit, so it has no columns.
        """
        known = self._table.known_schema
        if known is None:
            message = (
                f"the table {self._table.location.url} has no commit yet, so it has no columns; "
                "query it again after its first commit"
            )
            raise Refused(message)
        is_latest = not isinstance(self._query, Incremental) and self._query.as_of is None
        return known if is_latest else self._table.scan(self._query).schema

    def read(self, columns: Sequence[str], condition: pc.Expression | None) -> pa.RecordBatchReader:
        """See ``RowSource``."""
        return self._table.scan(self._query, columns, condition, self._keys).to_reader()

    def explain(self, condition: pc.Expression | None) -> Explanation | None:
        """See ``RowSource``."""
        return self._table.explain(self._query, condition, self._keys)


class ChangedRows:
    """The changes of a CDC query. All of them are read, and then filtered."""

    def __init__(self, table: OpenTable, changes: Changes) -> None:
        """Plan the query."""
        self._scan = table.changes(changes.begin, changes.end)

    @property
    def schema(self) -> pa.Schema:
        """See ``RowSource``."""
        return self._scan.schema

    def read(self, columns: Sequence[str], condition: pc.Expression | None) -> pa.RecordBatchReader:
        """See ``RowSource``."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        found = (
            rows
            for batch in self._scan.batches()
            for rows in filter_rows(pa.Table.from_batches([batch]), condition)
            .select(columns)
            .to_batches()
        )
        return pa.RecordBatchReader.from_batches(schema, found)

    def explain(self, condition: pc.Expression | None) -> Explanation | None:
        """See ``RowSource``."""
        return None


def rows_of(table: OpenTable, query: Query | Changes) -> RowSource:
    """Return the rows of a query.

    Raises:
        HudiError: the changes of a CDC query cannot be planned.
    """
    if isinstance(query, Changes):
        return ChangedRows(table, query)
    return QueriedRows(table, query)


class Relation(ds.Dataset):  # type: ignore[misc]
    """The rows of a source as a dataset, of which DuckDB uses only ``schema`` and ``scanner``.

    Attributes:
        scans: the columns and the condition of each scan.
        failure: the error of a scan, of which DuckDB reports only the text; None if there is none.
        reads_rows: whether scans read rows; otherwise, they are only recorded.
    """

    def __init__(
        self,
        table: TableReference,
        source: RowSource,
        planning: Lock,
        *,
        has_meta_columns: bool,
    ) -> None:
        """Keep the source. The dataset of Arrow itself is not initialised.

        Args:
            table: the table, for explanations.
            source: the rows.
            planning: a lock that all relations of a query share, because DuckDB scans them in
                several threads, but an open table must not be used by several threads.
            has_meta_columns: whether the relation has Hudi's meta columns.
        """
        self._table, self._source, self._planning = table, source, planning
        schema = source.schema
        self._schema = schema if has_meta_columns else without_meta_columns(schema)
        self.scans: list[tuple[tuple[str, ...], pc.Expression | None]] = []
        self.failure: Exception | None = None
        self.reads_rows = True

    @property
    def schema(self) -> pa.Schema:
        """The columns of the relation."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,
        **_options: object,
    ) -> _Scanner:
        """Return a scan of the rows that meet a condition; DuckDB calls this from its threads."""
        names = tuple(self._schema.names if columns is None else columns)
        schema = pa.schema([self._schema.field(name) for name in names])
        self.scans.append((names, filter))
        if not self.reads_rows:
            return _Scanner(pa.RecordBatchReader.from_batches(schema, ()))
        try:
            with self._planning:
                rows = self._source.read(names, filter)
        except Exception as error:
            self.failure = error
            raise
        return _Scanner(pa.RecordBatchReader.from_batches(schema, self._keep_failure(rows)))

    def explain(self) -> list[TableScan]:
        """Return the scans that were recorded, with the file groups that they read."""
        return [
            TableScan(self._table, columns, condition, self._source.explain(condition))
            for columns, condition in self.scans
        ]

    def _keep_failure(self, rows: pa.RecordBatchReader) -> Any:
        try:
            yield from rows
        except Exception as error:
            self.failure = error
            raise


@dataclass(frozen=True, slots=True)
class _Scanner:
    """A scan that DuckDB reads; of a scanner of Arrow, it uses only ``to_reader``."""

    rows: pa.RecordBatchReader

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows."""
        return self.rows
