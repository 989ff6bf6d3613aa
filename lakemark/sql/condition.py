"""Reads the rows of one table that meet a condition, which may be any expression of DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from threading import Lock
from typing import Any

from lakemark.errors import InvalidConfig
from lakemark.operations.open_table import OpenTable
from lakemark.read.queries import Query
from lakemark.sql.engine import open_connection
from lakemark.sql.relation import QueriedRows, Relation
from lakemark.sql.sql_query import SqlQuery
from lakemark.sql.syntax_tree import Tree, column_node, nodes, parse_sql, table_node, to_sql
from lakemark.sql.table_reference import TableReference


def check_condition(where: str) -> None:
    """Check the syntax of a condition; its columns may have any name and type.

    Raises:
        InvalidConfig: the condition is not one expression, or DuckDB is not installed.
    """
    with ExitStack() as resources:
        _parse(open_connection(resources), where)


def open_filtered(
    table: OpenTable,
    query: Query,
    columns: Sequence[str],
    where: str,
    record_keys: Sequence[str] | None = None,
) -> SqlQuery:
    """Return the rows of a table that meet a condition.

    Args:
        table: the table.
        query: the query.
        columns: the columns of the result.
        where: the condition.
        record_keys: the keys of the rows; None for all rows.

    Raises:
        InvalidConfig: the condition is not one expression, or DuckDB is not installed.
        Refused: the table has no commit yet.
        HudiError: the query cannot be planned.
    """
    with ExitStack() as resources:
        connection = open_connection(resources)
        tree = _parse(connection, where)
        reference = TableReference(table.location.url, query)
        node, name = tree["statements"][0]["node"], str(reference)
        node["select_list"] = [column_node(column) for column in columns]
        node["from_table"] = table_node(name)
        relation = Relation(
            reference, QueriedRows(table, query, record_keys), Lock(), has_meta_columns=True
        )
        text = to_sql(connection, tree)
        return SqlQuery(connection, text, {name: relation}, resources.pop_all())


def _parse(connection: Any, where: str) -> Tree:
    """Return the tree of a query that has only this condition."""
    try:
        tree = parse_sql(connection, where, before="select 1 where ")
    except InvalidConfig as error:
        message = f"condition {where!r}: {error}"
        raise InvalidConfig(message) from error
    model = parse_sql(connection, "select 1 where true")["statements"][0]["node"]
    node = tree["statements"][0]["node"]
    changed = {key for key in node if node[key] != model.get(key)}
    is_expression = len(tree["statements"]) == 1 and changed <= {"where_clause", "select_list"}
    if not is_expression or any(one.get("class") == "SUBQUERY" for one in nodes(node)):
        message = f"condition {where!r}: expected one expression, without a subquery"
        raise InvalidConfig(message)
    return tree
