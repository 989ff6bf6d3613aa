"""The condition of ``lakemark query --where``, which may be any expression of DuckDB.

Conditions in the language of ``lakemark.read.where`` need no DuckDB and find records by key.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lakemark.errors import InvalidConfig
from lakemark.extras import install_command
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import OpenTable
from lakemark.read.queries import Query

if TYPE_CHECKING:
    from lakemark.sql.sql_query import SqlQuery


def needs_duckdb(where: str) -> bool:
    """Return whether a condition has an expression that only DuckDB evaluates.

    Raises:
        InvalidConfig: the syntax is wrong, or DuckDB is needed but not installed. If DuckDB cannot
            parse the condition either, the error is that of DuckDB, which evaluates more.
    """
    from lakemark.read.where import InvalidWhere, check_syntax

    try:
        check_syntax(where)
    except InvalidWhere as error:
        if find_spec("duckdb") is None:
            message = f"{error}. DuckDB evaluates more expressions: {install_command('sql')}"
            raise InvalidConfig(message) from None
        from lakemark.sql.condition import check_condition

        check_condition(where)
        return True
    return False


def filter_with_duckdb(
    table: OpenTable,
    query: Query,
    columns: Sequence[str] | None,
    where: str,
    record_keys: Sequence[str] | None,
) -> SqlQuery:
    """Return the rows of a query that meet the condition; DuckDB evaluates it.

    Args:
        table: the table.
        query: the query.
        columns: the columns of the result; None for all except the meta columns.
        where: the condition.
        record_keys: the keys of the rows; None for all rows.

    Raises:
        HudiError: as for ``lakemark.sql.condition.open_filtered``.
    """
    from lakemark.sql.condition import open_filtered

    if columns is None:
        columns = without_meta_columns(table.scan(query).schema).names
    return open_filtered(table, query, columns, where, record_keys)
