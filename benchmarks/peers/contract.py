"""The task of a peer and its answer, which are passed as JSON.

Every peer is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It reads the
topic from where it stopped until it has caught up, and writes its answer to ``Task.answer_path``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TableShape:
    """The values of the topic, and the table that every peer makes of them.

    Attributes:
        columns: the type of each column, with a name that lakemark and Spark know.
        record_key, partition, ordering: one column each.
        buckets: the file groups in each partition.
        compact_every: delta commits between two compactions.
        avro_schema: the schema of Avro values; None if they are JSON.
        deleted: the column that marks deletes; None if there are none.
    """

    columns: Mapping[str, str]
    record_key: str
    partition: str
    ordering: str
    buckets: int
    compact_every: int
    avro_schema: str | None = None
    deleted: str | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One run of one peer.

    Attributes:
        bootstrap: the broker, ``host:port``.
        topic: the topic, read from its beginning or from the end of the peer's last run.
        table_path: the peer's own table; the floor has none.
        scratch_path: the peer's own folder, which is kept between runs.
        answer_path: the file for the answer.
        records_per_batch: the most records of one batch.
        driver_memory: the heap of the JVM, such as ``4g``.
        table: the values and the table.
    """

    bootstrap: str
    topic: str
    table_path: str
    scratch_path: str
    answer_path: str
    records_per_batch: int
    driver_memory: str
    table: TableShape

    @classmethod
    def from_json(cls, text: str) -> Task:
        """Parse the text of a task file."""
        values = json.loads(text)
        return cls(**values | {"table": TableShape(**values["table"])})

    def to_json(self) -> str:
        """Return the text of a task file."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch, as its engine timed it (seconds since the epoch)."""

    records: int
    started_s: float
    completed_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a peer.

    Attributes:
        batches: its batches in order, none of them empty.
        ended_s: when the last work on the table ended, services after the last batch included.
    """

    batches: tuple[Batch, ...]
    ended_s: float

    @classmethod
    def of(cls, batches: Iterable[Batch], ended_s: float | None = None) -> Answer:
        """Create an answer; by default the work ended with the last batch."""
        kept = tuple(batch for batch in batches if batch.records > 0)
        return cls(kept, ended_s if ended_s is not None else kept[-1].completed_s)

    @classmethod
    def read(cls, path: Path) -> Answer:
        """Read the answer of a peer."""
        answer = json.loads(path.read_text())
        return cls(tuple(Batch(**batch) for batch in answer["batches"]), answer["ended_s"])

    def write(self, path: Path) -> None:
        """Write the answer to the file of the task."""
        path.write_text(json.dumps(asdict(self)))
