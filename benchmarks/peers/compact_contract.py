"""The task of an engine that compacts; its answer has the form of ``read_contract``.

Every engine is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It gets one
copy of a file slice for each measurement, and sums up the rows of the last one.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class CompactTask:
    """The task of one process.

    Attributes:
        name: its name in the figures.
        tables: copies of one table, each with one pending compaction.
        answer_path: the file for the answer.
        driver_memory: the heap of the JVM, such as ``4g``.
    """

    name: str
    tables: tuple[str, ...]
    answer_path: str
    driver_memory: str

    @classmethod
    def from_json(cls, text: str) -> CompactTask:
        """Parse the text of a task file."""
        values = json.loads(text)
        return cls(**{**values, "tables": tuple(values["tables"])})

    def to_json(self) -> str:
        """Return the text of a task file."""
        return json.dumps(asdict(self))
