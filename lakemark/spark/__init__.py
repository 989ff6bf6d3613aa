"""Reads and writes tables with Spark.

``read_table`` returns a DataFrame of rows, and ``read_changes`` one of changes. ``register``
enables ``spark.read.format("lakemark")`` and ``spark.readStream.format("lakemark")``.
``bulk_insert`` inserts the rows of a DataFrame.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakemark.spark.data_source import register
    from lakemark.spark.insert_shares import bulk_insert
    from lakemark.spark.read import read_changes, read_table

__all__ = ["bulk_insert", "read_changes", "read_table", "register"]

#: Each name is loaded when it is first used, because the data source can be imported only on
#: Spark 4.
_MODULE_OF = {
    "bulk_insert": "lakemark.spark.insert_shares",
    "read_changes": "lakemark.spark.read",
    "read_table": "lakemark.spark.read",
    "register": "lakemark.spark.data_source",
}


def __getattr__(name: str) -> Any:
    """Load an exported name when it is first used."""
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_MODULE_OF[name]), name)
