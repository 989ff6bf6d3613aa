"""The step that runs an SQL query on the rows, in DuckDB, in the process that decodes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.extras import install_command
from lakemark.sql.engine import connect
from lakemark.sql.returned_types import AS_TEXT
from transforms.steps.row_query import RECORDS, ROW, RowQuery
from transforms.steps.single_rows import compute_in_parts
from transforms.steps.transform import Transform, Transformed

#: One thread, because the tasks around it already use all cores.
_SETTINGS = ("threads = 1", "memory_limit = '512MB'", "temp_directory = ''")

#: How many queries are cached.
_CACHED_QUERIES = 256

#: Open connections that no thread uses. The threads of a batch end with it, but the next batch uses
#: the same connections: to open one takes as long as a query on 100,000 rows.
_idle: list[Any] = []


@dataclass(frozen=True, slots=True)
class Sql(Transform):
    """Runs a query that makes at most one row of each record (``transforms.steps.row_query``).

    The columns are those of the result for a table without rows. Values of types that no column
    has, such as ``bit``, become text. Records for which the query fails alone are rejected. Records
    that ``where`` drops are filtered.

    Attributes:
        query: ``select … from records``.
    """

    query: str

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        """See ``Transform``."""
        _parse(self.query).check_names(schema)
        import duckdb

        try:
            with _connection() as connection:
                found = _run(connection, _rewrite(self.query, True), schema.empty_table())
        except duckdb.Error as error:
            text = str(error).split("\n\n")[0]
            message = f"the query cannot run on the columns {', '.join(schema.names)}: {text}"
            raise InvalidConfig(message) from error
        return found.drop_columns([ROW]).schema

    def apply(self, rows: pa.Table) -> Transformed:
        """See ``Transform``."""
        return self._apply(rows, filters=True)

    def key_sources(self, column: str, schema: pa.Schema) -> tuple[str, ...] | None:
        """See ``Transform``."""
        top, dot, rest = column.partition(".")
        found = _parse(self.query).sources(top, schema)
        is_same = found == (top,)
        return tuple(f"{one}{dot}{rest}" for one in found or ()) if is_same else found

    def apply_to_keys(self, rows: pa.Table) -> Transformed:
        """Run the query without its ``where``, because tombstones are not filtered."""
        return self._apply(rows, filters=False)

    def _apply(self, rows: pa.Table, *, filters: bool) -> Transformed:
        import duckdb

        query = _rewrite(self.query, filters)
        numbered = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
        errors = (
            duckdb.DataError,
            duckdb.InvalidInputException,
            duckdb.NotImplementedException,
            duckdb.OutOfMemoryException,
            duckdb.SyntaxException,  # in a pattern that a value contains
        )
        with _connection() as connection:
            parts, rejected = compute_in_parts(
                lambda some: _run(connection, query, some, is_numbered=True), numbered, errors
            )
        found = pa.concat_tables([part for _, part in parts])
        origins = found.column(ROW).to_numpy()
        is_dropped = np.ones(rows.num_rows, np.bool_)
        is_dropped[origins] = False
        is_dropped[list(rejected)] = False
        return Transformed(
            rows=found.drop_columns([ROW]),
            origins=origins,
            rejected={row: reason.split(" LINE ")[0] for row, reason in rejected.items()},
            filtered=np.flatnonzero(is_dropped),
        )


def _run(connection: Any, query: str, rows: pa.Table, *, is_numbered: bool = False) -> pa.Table:
    """Return the result, sorted by ``ROW``, which is its last column."""
    if not is_numbered:
        rows = rows.append_column(ROW, pa.array(np.arange(rows.num_rows)))
    connection.register(RECORDS, rows)
    try:
        relation = connection.sql(query)
        if any(map(AS_TEXT.returns_as_another, relation.types)):
            relation = connection.sql(AS_TEXT.convert(query, relation.types, relation.columns))
        found = relation.to_arrow_table()
    finally:
        connection.unregister(RECORDS)
    # A star also selects the position of the row.
    kept = [n for n, name in enumerate(found.column_names[:-1]) if not name.startswith(ROW)]
    columns = [*(found.column(n) for n in kept), found.column(found.num_columns - 1)]
    names = [*(found.column_names[n] for n in kept), ROW]
    fields = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
    result = pa.table(columns, schema=pa.schema(fields))
    numbers = result.column(ROW).to_numpy()
    return result if np.all(np.diff(numbers) > 0) else result.sort_by(ROW)


@lru_cache(maxsize=_CACHED_QUERIES)
def _parse(query: str) -> RowQuery:
    """Return a checked query. To check it takes longer than to run it on thousands of rows.

    Raises:
        InvalidConfig: see ``RowQuery.parse``.
    """
    with _connection() as connection:
        return RowQuery.parse(connection, query)


@lru_cache(maxsize=_CACHED_QUERIES)
def _rewrite(query: str, filters: bool) -> str:
    """Return ``RowQuery.to_sql`` of a query."""
    parsed = _parse(query)
    with _connection() as connection:
        return parsed.to_sql(connection, filters=filters)


@contextmanager
def _connection() -> Iterator[Any]:
    """Lend a connection to the calling thread.

    Raises:
        InvalidConfig: DuckDB is not installed.
    """
    try:
        connection = _idle.pop()
    except IndexError:
        connection = _open()
    try:
        yield connection
    finally:
        _idle.append(connection)


def _open() -> Any:
    try:
        return connect(*_SETTINGS)
    except ImportError:
        message = (
            f"a query needs DuckDB, for the driver and for every executor: {install_command('sql')}"
        )
        raise InvalidConfig(message) from None
