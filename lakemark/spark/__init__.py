"""Reads and writes tables with Spark.

``read_table`` returns a DataFrame of rows, and ``read_changes`` one of changes. ``register``
enables ``spark.read.format("lakemark")`` and ``spark.readStream.format("lakemark")``.
``write`` writes the rows of a DataFrame, and ``foreach_batch`` the micro-batches of a stream.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakemark.spark.data_source import register
    from lakemark.spark.frame_writes import SparkOperation, foreach_batch, write
    from lakemark.spark.read import read_changes, read_table

__all__ = [
    "SparkOperation",
    "foreach_batch",
    "read_changes",
    "read_table",
    "register",
    "write",
]

#: Each name is loaded when it is first used, because the data source can be imported only on
#: Spark 4.
_MODULE_OF = {
    "SparkOperation": "lakemark.spark.frame_writes",
    "foreach_batch": "lakemark.spark.frame_writes",
    "read_changes": "lakemark.spark.read",
    "read_table": "lakemark.spark.read",
    "register": "lakemark.spark.data_source",
    "write": "lakemark.spark.frame_writes",
}


def __getattr__(name: str) -> Any:
    """Load an exported name when it is first used."""
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_MODULE_OF[name]), name)
