"""Compares tables with the newest state of every key, as the engine or Apache Hudi reads them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.ingest.engines import ENGINES, Reader
from benchmarks.peers.contract import Task
from benchmarks.workloads.row_shape import RECORD_KEY
from tests.interop.oracle import Oracle, OracleError
from tests.interop.same_rows import assert_same_rows


class TableReader:
    """Reads the tables of all engines; close it at the end.

    Args:
        folder: the folder for a process of Apache Hudi, which starts when it is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._oracle: Oracle | None = None

    def difference(self, engine: str, task: Task, expected: pa.Table) -> str | None:
        """Describe how a table differs from the expected rows; None if it does not."""
        print(f"comparing {expected.num_rows:,} rows of {engine}", flush=True)
        try:
            check_rows(self._read(engine, task), expected)
        except (AssertionError, OracleError, RuntimeError) as error:
            return str(error)
        return None

    def close(self) -> None:
        """Stop the process of Apache Hudi."""
        if self._oracle is not None:
            self._oracle.close()

    def _read(self, engine: str, task: Task) -> pa.Table:
        if ENGINES[engine].reader is Reader.ITSELF:
            return _read_by_itself(engine, task)
        if self._oracle is None:
            self._folder.mkdir()
            self._oracle = Oracle(self._folder)
        return self._oracle.read(task.table_path)


def check_rows(held: pa.Table, expected: pa.Table) -> None:
    """Compare the rows of a table with the expected ones, which are sorted by key.

    Raises:
        AssertionError: the rows differ; the message shows some.
    """
    nullable = pa.schema([field.with_nullable(True) for field in expected.schema])
    held = held.select(expected.column_names).replace_schema_metadata(None).sort_by(RECORD_KEY)
    held = held.cast(pa.schema([field.with_nullable(True) for field in held.schema]))
    if held.schema != nullable or not held.equals(expected.cast(nullable)):
        assert_same_rows(held, expected)


def _read_by_itself(engine: str, task: Task) -> pa.Table:
    """Let the program that wrote a table read it, in a new process."""
    scratch = Path(task.scratch_path)
    rows = scratch / "rows"
    ENGINES[engine].engine.run(task.to_json(), scratch, "--read", str(rows))
    return pq.read_table(rows, partitioning=None)
