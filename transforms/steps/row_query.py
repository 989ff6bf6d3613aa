"""Checks that an SQL query makes at most one row of each record, and rewrites it.

DuckDB parses the query to a tree. The query is refused unless each row of the result depends only
on one row of ``records``: no aggregates, windows, joins, subqueries, ``order by`` or ``limit``. It
is also refused if it calls a function whose result is not always the same, because a batch that is
written again must get the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.sql.syntax_tree import Tree, column_node, nodes, parse_sql, to_sql

#: The table that a query reads.
RECORDS = "records"

#: The position of a row. No column has this name, because Avro allows no such name.
ROW = "#row"

#: Parts of a query that must be empty, and what they are called.
_EMPTY = {
    "modifiers": "order by, limit or distinct",
    "group_expressions": "group by",
    "having": "having",
    "qualify": "qualify",
    "sample": "using sample",
}
_FORBIDDEN = {"WINDOW": "a window function", "SUBQUERY": "a subquery", "PARAMETER": "a parameter"}

#: Names that DuckDB takes for a function without arguments, unless a column is called so.
_CHANGING_NAMES = frozenset(
    {
        "current_catalog",
        "current_date",
        "current_role",
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "user",
    }
)
#: Scalar functions whose result depends on the time, the session or chance.
_CHANGING = frozenset(
    {
        "age",
        "current_database",
        "current_localtime",
        "current_localtimestamp",
        "current_schema",
        "current_schemas",
        "current_setting",
        "get_current_time",
        "get_current_timestamp",
        "getvariable",
        "in_search_path",
        "now",
        "today",
        "transaction_timestamp",
        "txid_current",
    }
)
#: Macros of DuckDB that are functions of one row. Others are refused, because they may call an
#: aggregate. Macros on lists begin with ``list_`` or ``array_``.
_MACROS = frozenset({"date_add", "days_in_month", "fdiv", "fmod", "if", "nullif", "split_part"})
_LIST_MACROS = ("list_", "array_")


@dataclass(frozen=True)
class RowQuery:
    """A checked query.

    Attributes:
        tree: the query as DuckDB parsed it.
    """

    tree: Tree

    @classmethod
    def parse(cls, connection: Any, text: str) -> RowQuery:
        """Parse and check a query.

        Args:
            connection: a connection of DuckDB.
            text: ``select … from records`` with an optional ``where``.

        Raises:
            InvalidConfig: the syntax is wrong, or a row of the result may depend on several rows.
        """
        tree = parse_sql(connection, text)
        statements = tree["statements"]
        if len(statements) != 1:
            _refuse(f"it has {len(statements)} statements")
        node = statements[0]["node"]
        if node["type"] != "SELECT_NODE" or node["cte_map"]["map"]:
            _refuse("it is not a single select")
        _check_table(node["from_table"])
        for part, name in _EMPTY.items():
            if node[part]:
                _refuse(f"it has {name}")
        query = cls(tree)
        query._check_expressions(connection)
        return query

    def check_names(self, schema: pa.Schema) -> None:
        """Check that each name is that of a column, and not of a function such as current_date.

        Args:
            schema: the columns of the records.

        Raises:
            InvalidConfig: a name is that of a function whose result is not always the same.
        """
        columns = {name.lower() for name in schema.names}
        for one in nodes([self._node["select_list"], self._node["where_clause"]]):
            if one.get("class") == "COLUMN_REF" and len(one["column_names"]) == 1:
                name = one["column_names"][0].lower()
                if name in _CHANGING_NAMES - columns:
                    _refuse_changing(name)

    def to_sql(self, connection: Any, *, filters: bool) -> str:
        """Return the query, with the position of the row as its last column.

        Args:
            connection: a connection of DuckDB.
            filters: whether to keep the ``where`` of the query.
        """
        node = {**self._node, "select_list": [*self._node["select_list"], column_node(ROW)]}
        if not filters:
            node["where_clause"] = None
        tree = {**self.tree, "statements": [{**self.tree["statements"][0], "node": node}]}
        return to_sql(connection, tree)

    def sources(self, column: str, schema: pa.Schema) -> tuple[str, ...] | None:
        """Return the columns of which a column of the result is computed.

        Args:
            column: a column of the result.
            schema: the columns of the records.

        Returns:
            The columns, with dotted names for fields of structs; None if this is not known.
        """
        for one in self._node["select_list"]:
            if _name_of(one) == column:
                return tuple(dict.fromkeys(_columns_in(one, schema)))
        stars = [one for one in self._node["select_list"] if one["class"] == "STAR"]
        is_plain = all(
            not one.get(part) for one in stars for part in ("replace_list", "rename_list", "expr")
        )
        return (column,) if stars and is_plain and column in schema.names else None

    @property
    def _node(self) -> Tree:
        node: Tree = self.tree["statements"][0]["node"]
        return node

    def _check_expressions(self, connection: Any) -> None:
        parts = [self._node["select_list"], self._node["where_clause"]]
        for one in nodes(parts):
            if one.get("class") in _FORBIDDEN:
                _refuse(f"it has {_FORBIDDEN[one['class']]}")
            if one.get("class") == "FUNCTION":
                _check_function(connection, one["function_name"].lower())


def _check_table(table: Tree) -> None:
    is_records = table["type"] == "BASE_TABLE" and table["table_name"].lower() == RECORDS
    if not is_records or table.get("schema_name") or table.get("catalog_name"):
        _refuse(f"it does not read only the table {RECORDS}")
    if table["sample"]:
        _refuse("it has a sample")


def _check_function(connection: Any, name: str) -> None:
    question = "select function_type, stability from duckdb_functions() where function_name = ?"
    found = connection.execute(question, [name]).fetchall()
    kinds = {kind for kind, _ in found}
    if name in _CHANGING or "VOLATILE" in {stability for _, stability in found}:
        _refuse_changing(name)
    is_macro = "macro" in kinds and (name in _MACROS or name.startswith(_LIST_MACROS))
    if "scalar" not in kinds and not is_macro:
        _refuse(f"{name} is not a function of the values of one row")


def _refuse_changing(name: str) -> None:
    _refuse(f"the result of {name} is not always the same")


def _refuse(reason: str) -> None:
    message = (
        f"a query makes at most one row of each record: select … from {RECORDS} where …; {reason}"
    )
    raise InvalidConfig(message)


def _name_of(expression: Tree) -> str:
    if expression["class"] == "COLUMN_REF" and not expression["alias"]:
        return str(expression["column_names"][-1])
    return str(expression["alias"])


def _columns_in(expression: Tree, schema: pa.Schema) -> Iterator[str]:
    names = {name.lower(): name for name in schema.names}
    for one in nodes(expression):
        if one.get("class") == "COLUMN_REF":
            path = list(one["column_names"])
            if path[0].lower() == RECORDS and len(path) > 1:
                path = path[1:]
            if path[0].lower() in names:  # others are arguments of lambda functions
                yield ".".join([names[path[0].lower()], *path[1:]])
