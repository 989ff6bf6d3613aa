"""The task of an engine that upserts rows; its answer has the form of ``read_contract``.

Every engine is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It upserts the
same rows into each copy of a table, and sums up the rows of the last copy.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class UpsertTask:
    """The task of one process.

    Attributes:
        name: its name in the figures, which is that of the index in lower case.
        tables: copies of one table.
        changes_path: the Parquet file with the rows to upsert.
        answer_path: the file for the answer.
        driver_memory: the heap of the JVM, such as ``4g``.
    """

    name: str
    tables: tuple[str, ...]
    changes_path: str
    answer_path: str
    driver_memory: str

    @classmethod
    def from_json(cls, text: str) -> UpsertTask:
        """Parse the text of a task file."""
        values = json.loads(text)
        return cls(**{**values, "tables": tuple(values["tables"])})

    def to_json(self) -> str:
        """Return the text of a task file."""
        return json.dumps(asdict(self))
