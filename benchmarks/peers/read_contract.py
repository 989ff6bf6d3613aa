"""The task of an engine that reads, and its answer, which are passed as JSON.

Every engine is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It runs every
query several times and drops the rows, then once more for the sums, which are not timed, and writes
its answer to ``ReadTask.answer_path``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

QueryType = Literal["snapshot", "read_optimized"]


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """One query of a table.

    Attributes:
        name: its name in the figures.
        query_type: whether logs are merged, or only base files are read.
        where: a condition that ``lakemark.read.where`` and Spark both understand.
        key: the record key to look up in the record index; None to read by ``where``.
    """

    name: str
    query_type: QueryType = "snapshot"
    where: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ReadTask:
    """The task of one process.

    Attributes:
        table_path: the table, which all engines share.
        files: its latest base files, for an engine that only reads Parquet.
        answer_path: the file for the answer.
        driver_memory: the heap of the JVM, such as ``4g``.
        repeats: how often each query is timed.
        queries: the queries, run in this order.
    """

    table_path: str
    files: tuple[str, ...]
    answer_path: str
    driver_memory: str
    repeats: int
    queries: tuple[ReadQuery, ...]

    @classmethod
    def from_json(cls, text: str) -> ReadTask:
        """Parse the text of a task file."""
        values = json.loads(text)
        queries = tuple(ReadQuery(**query) for query in values.pop("queries"))
        files = tuple(values.pop("files"))
        return cls(**values, files=files, queries=queries)

    def to_json(self) -> str:
        """Return the text of a task file."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums that show that an engine read the right rows; they must be the same for all engines."""

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
    """The measurements of one query.

    Attributes:
        query: the name of the query.
        seconds: the time of each run.
        read_bytes: the bytes that each run read from files, program code included.
        sums: the sums of the rows.
        slices: the file slices that planning selected; None if the engine does not report them.
    """

    query: str
    seconds: tuple[float, ...]
    read_bytes: tuple[int, ...]
    sums: Sums = Sums()
    slices: int | None = None


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """The answer of an engine.

    Attributes:
        readings: the measurements, one for each query.
        peak_memory_bytes: the peak memory of its process; for an engine on a JVM, of the whole JVM.
    """

    readings: tuple[Reading, ...]
    peak_memory_bytes: int

    @classmethod
    def read(cls, path: Path) -> ReadAnswer:
        """Read the answer of an engine."""
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
        """Write the answer to the file of the task."""
        path.write_text(json.dumps(asdict(self)))


def change_each(
    name: str,
    tables: Sequence[str],
    change: Callable[[str], None],
    sums: Callable[[str], Sums],
    process_id: int,
) -> Reading:
    """Change each of these copies of one table, and sum up the rows of the last one."""
    left = iter(tables)
    seconds, read_bytes = timed(name, len(tables), lambda: change(next(left)), process_id)
    return Reading(name, seconds, read_bytes, sums(tables[-1]))


def timed(
    query: str, repeats: int, consume: Callable[[], None], process_id: int
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Run a query several times; return the seconds and the bytes read of each run."""
    seconds, read_bytes = [], []
    for number in range(repeats):
        bytes_before, started_s = bytes_read(process_id), time.perf_counter()
        consume()
        seconds.append(time.perf_counter() - started_s)
        read_bytes.append(bytes_read(process_id) - bytes_before)
        print(f"{query} {number}: {seconds[-1]:.3f} s", flush=True)
    return tuple(seconds), tuple(read_bytes)


def bytes_read(process_id: int) -> int:
    """Return how many bytes a process has read from files so far, cached or not."""
    return _proc_number(Path(f"/proc/{process_id}/io"), "rchar:")


def peak_memory_bytes(process_id: int) -> int:
    """Return the peak memory of a process."""
    return _proc_number(Path(f"/proc/{process_id}/status"), "VmHWM:") << 10


def _proc_number(path: Path, name: str) -> int:
    (line,) = (line for line in path.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1])
