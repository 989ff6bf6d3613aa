"""Runs a query on tables: ``query`` returns the rows, ``explain`` the scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from threading import Lock

import pyarrow as pa

from lakemark.merge.custom.api import CustomMerger
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.sql.engine import open_connection
from lakemark.sql.relation import Relation, TableScan, rows_of
from lakemark.sql.sql_query import SqlQuery
from lakemark.sql.statement import Statement
from lakemark.storage import StorageLocation

#: Opens the table at a path or URL.
TableOpener = Callable[[str], OpenTable]


def query(
    text: str, *, mergers: Sequence[CustomMerger] = (), **storage_options: str
) -> pa.RecordBatchReader:
    """Run a query on tables in DuckDB, and return its rows as a stream.

    The rows of the tables are read while the result is read.

    Args:
        text: the query (docs/sql.md). A path in quotes is a table: ``select * from 'lake/orders'``.
        mergers: custom mergers, for tables in merge mode ``CUSTOM``.
        storage_options: as for ``lakemark.open``, for the tables in object stores.

    Raises:
        InvalidConfig: DuckDB is not installed, the query has an error, or it fails on the rows.
        Refused: a table has no commit yet; or the query needs too much memory.
        DiskFull: the disk has no space for what the query spills.
        TableNotFound, SnapshotChanged, CorruptData, Unsupported: a table cannot be read.
    """
    return open_query(text, _opener(mergers, storage_options)).to_reader()


def explain(
    text: str, *, mergers: Sequence[CustomMerger] = (), **storage_options: str
) -> list[TableScan]:
    """Return the scans that a query makes, with the file groups that each of them reads.

    No row is read. Arguments and errors are as for ``query``.
    """
    return open_query(text, _opener(mergers, storage_options)).explain()


def open_query(text: str, opener: TableOpener) -> SqlQuery:
    """Parse a query and open its tables. Each table is opened once, so that it has one state.

    Args:
        text: the query.
        opener: opens the tables.

    Raises:
        HudiError: as for ``query``.
    """
    with ExitStack() as resources:
        connection = open_connection(resources)
        statement = Statement.parse(connection, text)
        paths = dict.fromkeys(table.path for table in statement.tables.values())
        opened = {path: opener(path) for path in paths}
        planning = Lock()
        relations = {
            name: Relation(
                table,
                rows_of(opened[table.path], table.query),
                planning,
                has_meta_columns=statement.has_meta_columns,
            )
            for name, table in statement.tables.items()
        }
        return SqlQuery(connection, statement.text, relations, resources.pop_all())


def _opener(mergers: Sequence[CustomMerger], options: Mapping[str, str]) -> TableOpener:
    return lambda path: open_table(StorageLocation(path, dict(options)), mergers=mergers)
