"""The task of an engine that changes tables; its answer has the form of ``read_contract``.

Every engine is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It compacts
each copy of a table, upserts the same rows into each copy, or creates each table from these rows
(``--create``). Then it sums up the rows of the last table.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class ChangeTask:
    """The task of one process.

    Attributes:
        name: its name in the figures.
        tables: the paths of the tables. For a compaction, each has one pending compaction.
        answer_path: the file for the answer.
        driver_memory: the heap of the JVM, such as ``4g``.
        rows_path: the Parquet file, or the folder of Parquet files, with the rows to write; "" for
            a compaction.
    """

    name: str
    tables: tuple[str, ...]
    answer_path: str
    driver_memory: str
    rows_path: str = ""

    @classmethod
    def from_json(cls, text: str) -> ChangeTask:
        """Parse the text of a task file."""
        values = json.loads(text)
        return cls(**{**values, "tables": tuple(values["tables"])})

    def to_json(self) -> str:
        """Return the text of a task file."""
        return json.dumps(asdict(self))
