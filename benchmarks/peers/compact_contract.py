"""What an engine is asked to compact; it answers as it would a query, see ``read_contract``.

Every engine is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It is given a
copy of one file slice for each time that is measured, and sums up the rows of the last one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from benchmarks.peers.read_contract import Reading, Sums, timed


@dataclass(frozen=True, slots=True)
class CompactTask:
    """What one process is asked.

    Attributes:
        name: in the figures.
        tables: copies of one table, in each of which one compaction is pending.
        answer_path: where the answer goes.
        driver_memory: heap of the JVM, such as ``4g``.
    """

    name: str
    tables: tuple[str, ...]
    answer_path: str
    driver_memory: str

    @classmethod
    def from_json(cls, text: str) -> CompactTask:
        """The task of a task file."""
        values = json.loads(text)
        return cls(**{**values, "tables": tuple(values["tables"])})

    def to_json(self) -> str:
        """The text of a task file."""
        return json.dumps(asdict(self))


def compacted(
    task: CompactTask,
    compact: Callable[[str], None],
    sums: Callable[[str], Sums],
    process_id: int,
) -> Reading:
    """Compact each of the tables, and sum up what the last one holds then."""
    left = iter(task.tables)

    def consume() -> None:
        compact(next(left))

    seconds, read_bytes = timed(task.name, len(task.tables), consume, process_id)
    return Reading(task.name, seconds, read_bytes, sums(task.tables[-1]))
