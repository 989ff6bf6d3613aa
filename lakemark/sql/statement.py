"""Finds the tables in a query, and replaces their paths by names of registered relations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from lakemark.errors import InvalidConfig
from lakemark.model.meta_columns import META_COLUMNS
from lakemark.sql.syntax_tree import Tree, nodes, parse_sql, table_node, to_sql
from lakemark.sql.table_reference import TableReference, is_table_function, parse_call, parse_path

#: A part of a pattern of names that selects meta columns, as in ``columns('^_hoodie.*')``.
_PATTERN: Final = "_hoodie"


@dataclass(frozen=True)
class Statement:
    """A parsed query.

    Attributes:
        text: the query, with the names of relations in place of tables.
        tables: the tables that the query reads, by the name of their relation.
        has_meta_columns: whether the query names one of Hudi's meta columns.
    """

    text: str
    tables: dict[str, TableReference]
    has_meta_columns: bool

    @classmethod
    def parse(cls, connection: Any, text: str) -> Statement:
        """Parse a query.

        Args:
            connection: a connection of DuckDB.
            text: one query.

        Raises:
            InvalidConfig: the syntax is wrong, or the text is not exactly one query; or a table
                function has wrong arguments.
        """
        tree = parse_sql(connection, text)
        if len(tree["statements"]) != 1:
            message = f"expected one query, not {len(tree['statements'])}"
            raise InvalidConfig(message)
        has_meta_columns = any(
            name.lower() in META_COLUMNS for node in nodes(tree) for name in _column_names(node)
        )
        tables: dict[str, TableReference] = {}
        for node in table_nodes(tree):
            table = parse_call(node) if is_table_function(node) else parse_path(node)
            name = _relation_name(table, tables)
            _replace(node, table_node(name, node["alias"] or table.name))
        return cls(to_sql(connection, tree), tables, has_meta_columns)


def _relation_name(table: TableReference, tables: dict[str, TableReference]) -> str:
    """Return the name of a table's relation, which is added to ``tables``.

    It describes the table, because DuckDB names columns after their expressions: a subquery has the
    name of its relation in the name of its column. No query has such a name by accident.
    DuckDB ignores the case of names, so names that differ by case get a number.
    """
    name, number = str(table), 1
    while (other := _same_name(name, tables)) is not None:
        if tables[other] == table:
            return other
        number += 1
        name = f"{table} ({number})"
    tables[name] = table
    return name


def _same_name(name: str, tables: dict[str, TableReference]) -> str | None:
    return next((other for other in tables if other.lower() == name.lower()), None)


def _column_names(node: Tree) -> Iterator[str]:
    """Yield the names of columns in a node, and all meta columns that a pattern may select."""
    yield from node.get("column_names", ())
    yield from node.get("using_columns", ())
    if node.get("class") != "STAR":
        return
    yield from node["exclude_list"]
    yield from (one["column"] for one in node["qualified_exclude_list"])
    yield from (one["key"]["column"] for one in node["rename_list"])
    yield from (one["key"] for one in node["replace_list"])
    texts = (str(one["literal"]["text"]) for one in nodes(node["expr"]) if "literal" in one)
    if any(_PATTERN in text.lower() for text in texts):
        yield from META_COLUMNS


def _replace(node: Tree, new: Tree) -> None:
    """Replace a table, but keep the names of its columns and its sample."""
    kept = {key: node[key] for key in ("sample", "column_name_alias")}
    node.clear()
    node.update(new | kept)


def table_nodes(tree: Any, hidden: frozenset[str] = frozenset()) -> Iterator[Tree]:
    """Yield the nodes of tables and of our table functions.

    Args:
        tree: a node, or a list of nodes.
        hidden: the names of the queries in ``with`` that hide tables here, in lower case.
    """
    if isinstance(tree, list):
        for one in tree:
            yield from table_nodes(one, hidden)
    if not isinstance(tree, dict):
        return
    if tree.get("type") == "BASE_TABLE":
        is_hidden = not tree["schema_name"] and tree["table_name"].lower() in hidden
        if not is_hidden:
            yield tree
    elif tree.get("type") == "TABLE_FUNCTION" and is_table_function(tree):
        yield tree
    else:
        for one in tree.get("cte_map", {}).get("map", ()):
            query, name = one["value"]["query_node"], one["key"].lower()
            is_recursive = query["type"] == "RECURSIVE_CTE_NODE"
            yield from table_nodes(query, hidden | {name} if is_recursive else hidden)
            hidden |= {name}
        rest = [value for key, value in tree.items() if key != "cte_map"]
        yield from table_nodes(rest, hidden)
