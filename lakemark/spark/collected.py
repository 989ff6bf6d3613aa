"""Returns the results of Spark to the driver, and the errors of lakemark in tasks as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from lakemark.spark.worker_errors import own_error_of_worker


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise the errors of lakemark that tasks of the block raise, instead of those of Spark."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        own = own_error_of_worker(error)
        if own is None:
            raise
        raise own from error


def collect_arrow(rows: DataFrame) -> pa.Table:
    """Return all rows as one table."""
    to_arrow = getattr(rows, "toArrow", None)
    if to_arrow is not None:
        return to_arrow()
    # In Spark 3.5 this method is private; ``toPandas`` calls it.
    batches = getattr(rows, "_collect_as_arrow")()  # noqa: B009 (not in the stubs of 4.0)
    if not batches:
        return to_arrow_schema(rows.schema).empty_table()
    return pa.Table.from_batches(batches)
