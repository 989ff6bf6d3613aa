"""Queries as the trees into which DuckDB parses them, and back."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TypeAlias

from lakemark.errors import InvalidConfig

#: The end of an error message if the parser did not expect a word, or the end after a word.
_NEAR_WORD = re.compile(r'near "\w+"$')

#: The end of a query before the first slash or colon of a path that is not in quotes.
_BEGIN_OF_PATH = re.compile(r"\b(from|join)\s+[\w.:-]*$", re.IGNORECASE)

#: A node of a query: its type, its children and its attributes.
Tree: TypeAlias = dict[str, Any]


def parse_sql(connection: Any, text: str, *, before: str = "") -> Tree:
    """Parse queries; the result has them in ``statements``.

    Args:
        connection: a connection of DuckDB.
        text: one or several queries.
        before: the start of the first query, which no user wrote; messages do not count it.

    Raises:
        InvalidConfig: the syntax is wrong, or the text has a statement that is not a query.
    """
    ((found,),) = connection.execute("select json_serialize_sql(?)", [before + text]).fetchall()
    tree: Tree = json.loads(found)
    if not tree["error"]:
        return tree
    reason, position = tree["error_message"], tree.get("position")
    if reason.startswith("Only SELECT"):
        reason = "expected select; statements that change something, and pivot, are not supported"
    where, rest = "", text
    if position is not None:
        start = int(position) - len(before)
        where, rest = f", at character {start + 1}", text[start:]
    is_name = _NEAR_WORD.search(reason) and not re.fullmatch(r"\w*\s*", rest)
    hint = "; write a name that is a keyword in double quotes" if is_name else ""
    if rest[:1] in {"/", ":"} and _BEGIN_OF_PATH.search(text.removesuffix(rest)):
        hint = "; write the path of a table in single quotes: from 'lake/orders'"
    message = f"the query cannot be parsed: {reason}{where}{hint}"
    raise InvalidConfig(message)


def to_sql(connection: Any, tree: Tree) -> str:
    """Return the text of queries that ``parse_sql`` has parsed."""
    question = "select json_deserialize_sql(?::json)"
    ((text,),) = connection.execute(question, [json.dumps(tree)]).fetchall()
    return str(text)


def nodes(tree: Any) -> Iterator[Tree]:
    """Yield a node, and all nodes below it."""
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for one in tree:
            yield from nodes(one)


def column_node(name: str) -> Tree:
    """Return the node of a column."""
    return {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        "query_location": 0,
        "column_names": [name],
    }


def table_node(name: str, alias: str = "") -> Tree:
    """Return the node of a table in ``from``."""
    return {
        "type": "BASE_TABLE",
        "alias": alias,
        "sample": None,
        "query_location": 0,
        "schema_name": "",
        "table_name": name,
        "column_name_alias": [],
        "catalog_name": "",
        "at_clause": None,
    }
