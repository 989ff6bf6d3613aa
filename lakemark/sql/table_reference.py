"""The tables that a query names: a path, or a table function with a path and times.

``'lake/orders'`` has the latest rows. A table function is one of ::

    snapshot(path [, as_of])                time travel, if as_of is given
    read_optimized(path [, as_of])
    incremental(path, begin [, end])
    cdc(path, begin [, end])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn

from lakemark.errors import InvalidConfig
from lakemark.read.queries import Incremental, Query, ReadOptimized, Snapshot
from lakemark.sql.syntax_tree import Tree

_PATH: Final = "path"
#: The parameters of each table function, after the path.
_PARAMETERS: Final = {
    "snapshot": ("as_of",),
    "read_optimized": ("as_of",),
    "incremental": ("begin", "end"),
    "cdc": ("begin", "end"),
}


@dataclass(frozen=True, slots=True)
class Changes:
    """A CDC query; see ``lakemark.Table.changes``."""

    begin: str
    end: str | None = None


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table that a query reads.

    Attributes:
        path: the path or URL of the table.
        query: the type of query, with its times.
    """

    path: str
    query: Query | Changes

    def __str__(self) -> str:
        times = {name: getattr(self.query, name) for name in _PARAMETERS[self.function]}
        given = [f"{name} {time}" for name, time in times.items() if time is not None]
        return ", ".join([f"{self.function} of {self.path}", *given])

    @property
    def function(self) -> str:
        """The name of the table function."""
        match self.query:
            case Snapshot():
                return "snapshot"
            case ReadOptimized():
                return "read_optimized"
            case Incremental():
                return "incremental"
            case Changes():
                return "cdc"

    @property
    def name(self) -> str:
        """The name of the table in the query, if the query gives it no other: the last folder."""
        return self.path.rstrip("/").rpartition("/")[2]


def is_table_function(node: Tree) -> bool:
    """Return whether a node of ``from`` calls one of our table functions."""
    return node["type"] == "TABLE_FUNCTION" and _function_name(node) in _PARAMETERS


def parse_path(node: Tree) -> TableReference:
    """Return the table whose path is the name of a table in ``from``.

    Raises:
        InvalidConfig: the name has several parts, or the table has an ``at`` clause.
    """
    path = node["table_name"]
    parts = [node["catalog_name"], node["schema_name"], path]
    given = [part for part in parts if part]
    if len(given) > 1:
        named = ".".join(given)
        message = f"there is no table {named}; write the path of a table in quotes: 'lake/orders'"
        raise InvalidConfig(message)
    if node["at_clause"]:
        message = f"at is not supported; write snapshot('{path}', as_of => '2026-05-01')"
        raise InvalidConfig(message)
    return TableReference(path, Snapshot())


def parse_call(node: Tree) -> TableReference:
    """Return the table that a call of a table function names.

    Raises:
        InvalidConfig: an argument is missing, unknown, given twice, or no constant.
    """
    function = _function_name(node)
    if node["with_ordinality"] != "WITHOUT_ORDINALITY":
        message = f"{function} cannot be combined with ordinality"
        raise InvalidConfig(message)
    given = _arguments(function, node["function"]["arguments"])
    if _PATH not in given:
        _refuse(function, "the path of the table is missing")
    path, as_of, end = given[_PATH], given.get("as_of"), given.get("end")
    if function in ("snapshot", "read_optimized"):
        return TableReference(
            path, Snapshot(as_of) if function == "snapshot" else ReadOptimized(as_of)
        )
    if "begin" not in given:
        _refuse(function, "begin is missing: an instant, a date, or 'earliest'")
    begin = given["begin"]
    return TableReference(
        path, Incremental(begin, end) if function == "incremental" else Changes(begin, end)
    )


def _function_name(node: Tree) -> str:
    return str(node["function"]["function_name"]).lower()


def _arguments(function: str, arguments: list[Tree]) -> dict[str, str]:
    """Return the texts of arguments, which are given by position or by name."""
    names, given = (_PATH, *_PARAMETERS[function]), dict[str, str]()
    for position, argument in enumerate(arguments):
        name = argument["name"].lower() or "".join(names[position : position + 1])
        if name not in names:
            _refuse(function, f"it has no argument {argument['name'] or position + 1}")
        if name in given:
            _refuse(function, f"{name} is given twice")
        given[name] = _text(function, name, argument["expression"])
    return given


def _text(function: str, name: str, expression: Tree) -> str:
    """Return the text of a constant, which may be converted, as in ``date '2026-05-01'``."""
    if expression["class"] == "CAST":
        expression = expression["child"]
    if expression["class"] != "CONSTANT" or expression["literal"]["kind"] not in _KINDS:
        _refuse(function, f"{name} is not a text; write it in single quotes")
    return str(expression["literal"]["text"])


_KINDS = ("STRING", "INTEGER")


def _refuse(function: str, reason: str) -> NoReturn:
    required, *others = (_PATH, *_PARAMETERS[function])
    if others[0] == "begin":
        required, others = "path, begin", others[1:]
    message = f"{function}({required}[, {others[0]}]): {reason}"
    raise InvalidConfig(message)
