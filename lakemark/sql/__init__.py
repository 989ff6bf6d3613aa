"""Runs SQL queries on tables with DuckDB: several tables in one query, all types of queries.

    from lakemark.sql import query

    rows = query("select region, count(*) from 'lake/orders' group by region").read_all()

``query`` returns the rows, and ``explain`` the scans of a query. DuckDB reads only the columns that
a query needs, and conditions on columns skip partitions, files and row groups as in ``Table.scan``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakemark.sql.relation import TableScan
    from lakemark.sql.run import explain, query

__all__ = ["TableScan", "explain", "query"]

#: Each name is loaded when it is first used, because the workers of a pipeline need neither.
_MODULE_OF = {
    "TableScan": "lakemark.sql.relation",
    "explain": "lakemark.sql.run",
    "query": "lakemark.sql.run",
}


def __getattr__(name: str) -> Any:
    """Load an exported name when it is first used."""
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_MODULE_OF[name]), name)
