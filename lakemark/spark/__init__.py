"""Tables in Spark: ``read_table`` for a DataFrame, ``register`` for ``spark.read.format``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakemark.spark.data_source import register
    from lakemark.spark.read import read_table

__all__ = ["read_table", "register"]

#: The data source exists on Spark 4 only, so each name is loaded when it is used.
_MODULE_OF = {"read_table": "lakemark.spark.read", "register": "lakemark.spark.data_source"}


def __getattr__(name: str) -> Any:
    """Load an exported name when it is first used."""
    if name not in _MODULE_OF:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_MODULE_OF[name]), name)
