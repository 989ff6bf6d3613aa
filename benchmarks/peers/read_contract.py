"""What an engine is asked to read, and what it answers; both travel as JSON.

Every engine is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It reads every
query so many times into nothing, then once more for the sums, which are not timed, and writes its
answer to ``ReadTask.answer_path``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

QueryType = Literal["snapshot", "read_optimized"]


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """One question to a table.

    Attributes:
        name: in the figures.
        query_type: with the logs merged in, or the base files alone.
        where: a condition, in words that ``lakemark.read.where`` and Spark both understand.
        key: the record key that is looked up through the record index; None reads by ``where``.
    """

    name: str
    query_type: QueryType = "snapshot"
    where: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ReadTask:
    """What one process is asked.

    Attributes:
        table_path: the table, which all engines share.
        files: its latest base files, for an engine that knows of Parquet only.
        answer_path: where the answer goes.
        driver_memory: heap of the JVM, such as ``4g``.
        repeats: how often each query is timed.
        queries: asked in this order.
    """

    table_path: str
    files: tuple[str, ...]
    answer_path: str
    driver_memory: str
    repeats: int
    queries: tuple[ReadQuery, ...]

    @classmethod
    def from_json(cls, text: str) -> ReadTask:
        """The task of a task file."""
        values = json.loads(text)
        queries = tuple(ReadQuery(**query) for query in values.pop("queries"))
        files = tuple(values.pop("files"))
        return cls(**values, files=files, queries=queries)

    def to_json(self) -> str:
        """The text of a task file."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Sums:
    """What tells that an engine read the right rows; the same of every engine."""

    rows: int = 0
    sequence: int = 0
    updated_at_s: int = 0
    quantity: int = 0
    amount_cents: int = 0
    note_characters: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(self.values(), other.values(), strict=True)))

    def values(self) -> tuple[int, ...]:
        """The sums, in order."""
        return tuple(asdict(self).values())


@dataclass(frozen=True, slots=True)
class Reading:
    """How one query went.

    Attributes:
        query: its name.
        seconds: of each time that it was read.
        read_bytes: that each time read from files, program code included.
        sums: of the rows.
        slices: file slices that were left after planning; None where the engine does not tell.
    """

    query: str
    seconds: tuple[float, ...]
    read_bytes: tuple[int, ...]
    sums: Sums = Sums()
    slices: int | None = None


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """What an engine did.

    Attributes:
        readings: one for each query.
        peak_memory_bytes: the most that its process ever held, the whole JVM of an engine there.
    """

    readings: tuple[Reading, ...]
    peak_memory_bytes: int

    @classmethod
    def read(cls, path: Path) -> ReadAnswer:
        """The answer that an engine left."""
        answer = json.loads(path.read_text())
        readings = [
            Reading(
                each["query"],
                tuple(each["seconds"]),
                tuple(each["read_bytes"]),
                Sums(**each["sums"]),
                each["slices"],
            )
            for each in answer["readings"]
        ]
        return cls(tuple(readings), answer["peak_memory_bytes"])

    def write(self, path: Path) -> None:
        """Leave the answer for whoever asked."""
        path.write_text(json.dumps(asdict(self)))


def timed(
    query: str, repeats: int, consume: Callable[[], None], process_id: int
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Seconds and bytes read of each time that a query is read into nothing."""
    seconds, read_bytes = [], []
    for number in range(repeats):
        bytes_before, started_s = bytes_read(process_id), time.perf_counter()
        consume()
        seconds.append(time.perf_counter() - started_s)
        read_bytes.append(bytes_read(process_id) - bytes_before)
        print(f"{query} {number}: {seconds[-1]:.3f} s", flush=True)
    return tuple(seconds), tuple(read_bytes)


def bytes_read(process_id: int) -> int:
    """What a process has read from files so far, cached by the system or not."""
    return _proc_number(Path(f"/proc/{process_id}/io"), "rchar:")


def peak_memory_bytes(process_id: int) -> int:
    """The most memory that a process has held."""
    return _proc_number(Path(f"/proc/{process_id}/status"), "VmHWM:") << 10


def _proc_number(path: Path, name: str) -> int:
    (line,) = (line for line in path.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])
