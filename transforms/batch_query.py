"""A query on a whole batch: it is parsed, bound to the columns, and asked which columns it reads.

A query may read two relations: ``batch``, and ``stored``, the rows of the table before the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import pyarrow as pa

from lakemark.errors import InvalidConfig
from lakemark.sql.engine import open_connection
from lakemark.sql.statement import table_nodes
from lakemark.sql.syntax_tree import Tree, nodes, parse_sql, to_sql

#: The relation with the rows of the batch.
BATCH: Final = "batch"

#: The relation with the current rows of the table.
STORED: Final = "stored"

#: The class of the node of a column that the query names by its number, such as ``#2``.
_POSITION: Final = "POSITIONAL_REFERENCE"

#: Functions of DuckDB that read relations which a text names.
_READING: Final = frozenset({"query", "query_table"})


@dataclass(frozen=True)
class BatchQuery:
    """A parsed query.

    Attributes:
        text: the query, without comments.
        tree: the query as DuckDB parsed it.
    """

    text: str
    tree: Tree

    @classmethod
    def parse(cls, connection: Any, text: str) -> BatchQuery:
        """Parse a query.

        Args:
            connection: a connection of DuckDB.
            text: one query.

        Raises:
            InvalidConfig: the syntax is wrong, the text is not exactly one query, the query reads
                another relation than ``batch`` and ``stored``, or a function that takes the name of
                a relation as a text.
        """
        tree = parse_sql(connection, text)
        if len(tree["statements"]) != 1:
            message = f"expected one query, not {len(tree['statements'])}"
            raise InvalidConfig(message)
        query = cls(to_sql(connection, tree).rstrip("; "), tree)
        others = sorted(query.relations - {BATCH, STORED})
        if others:
            message = (
                f"there is no relation {others[0]!r}; a check reads {BATCH}, and {STORED} for the "
                "rows of the table before the batch"
            )
            raise InvalidConfig(message)
        called = {str(node.get("function_name", "")).lower() for node in nodes(tree)}
        if hidden := sorted(called & _READING):
            message = (
                f"{hidden[0]}() is not supported, because lakemark cannot know what it reads; name "
                f"{BATCH} and {STORED} in the query itself"
            )
            raise InvalidConfig(message)
        return query

    @cached_property
    def relations(self) -> frozenset[str]:
        """The relations that the query reads, in lower case."""
        return frozenset(map(_relation, table_nodes(self.tree)))

    def columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns that the query may read; at least one, so that rows can be counted.

        Args:
            schema: the columns of ``batch``.
        """
        if any(map(_may_read_all, nodes(self.tree))):
            return tuple(schema.names)
        named = frozenset(name.lower() for name in _texts(self.tree))
        read = tuple(name for name in schema.names if name.lower() in named)
        if any(_is_row(node, schema) for node in nodes(self.tree)):
            return tuple(schema.names)
        return read or tuple(schema.names[:1])


@lru_cache(maxsize=256)
def check_query(text: str, columns: pa.Schema | None) -> None:
    """Check a query, without rows.

    Args:
        text: the query.
        columns: the columns of ``batch`` and of ``stored``; None if they are not known yet.

    Raises:
        InvalidConfig: the query has an error, does not fit the columns, or DuckDB is not installed.
    """
    query = _parsed(text)
    if columns is not None:
        with ExitStack() as resources:
            _bind(open_connection(resources), query, columns)


def columns_read(text: str, columns: pa.Schema) -> tuple[str, ...]:
    """Return the columns of ``batch`` that a query may read; see ``BatchQuery.columns``."""
    return _parsed(text).columns(columns)


def reads_stored(text: str) -> bool:
    """Return whether a query reads ``stored``."""
    return STORED in _parsed(text).relations


def without_comments(text: str) -> str:
    """Return a query that can be a part of another query; see ``BatchQuery.text``."""
    return _parsed(text).text


@lru_cache(maxsize=256)
def _parsed(text: str) -> BatchQuery:
    with ExitStack() as resources:
        return BatchQuery.parse(open_connection(resources), text)


def _bind(connection: Any, query: BatchQuery, columns: pa.Schema) -> None:
    import duckdb

    for name in (BATCH, STORED):
        connection.register(name, columns.empty_table())
    try:
        connection.sql(query.text)
    except duckdb.Error as error:
        text = " ".join(str(error).split("\n\nLINE ", maxsplit=1)[0].split())
        message = f"the query does not fit the columns {', '.join(columns.names)}: {text}"
        raise InvalidConfig(message) from error


def _relation(node: Tree) -> str:
    """Return the name of a relation in ``from``, with its schema, or that of a table function."""
    if node["type"] == "TABLE_FUNCTION":
        return str(node["function"]["function_name"]).lower()
    parts = (node["catalog_name"], node["schema_name"], node["table_name"])
    return ".".join(part.lower() for part in parts if part)


def _may_read_all(node: Tree) -> bool:
    """Return whether a node may read columns that the query does not name, or count columns."""
    is_positional = bool(node.get("column_name_alias")) or node.get("class") == _POSITION
    is_star = is_positional or node.get("class") == "STAR"
    return is_star or node.get("ref_type") == "NATURAL" or node.get("type") == "SHOW_REF"


def _is_row(node: Tree, schema: pa.Schema) -> bool:
    """Return whether a node may be a whole row: ``select batch from batch``, or an alias of it."""
    names = node.get("column_names", ())
    known = {name.lower() for name in schema.names}
    return bool(names) and names[0].lower() not in known and names[-1].lower() not in known


def _texts(tree: Any) -> Iterator[str]:
    """Yield all texts in a tree. The names of the columns that a query reads are among them."""
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _texts(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _texts(value)
