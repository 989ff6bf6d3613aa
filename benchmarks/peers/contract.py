"""What a peer is asked to do, and what it answers; both travel as JSON.

Every peer is a program: ``python -m benchmarks.peers.NAME TASK [its own flags]``. It reads the
topic from where it stopped until it has caught up, and writes its answer to ``Task.answer_path``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Task:
    """One run of one peer.

    Attributes:
        bootstrap: the broker, ``host:port``.
        topic: what is read, from its beginning or where the last run of this peer stopped.
        table_path: the peer's own table; the floor has none.
        scratch_path: a folder of the peer's own that survives from run to run.
        answer_path: where the answer goes.
        records_per_batch: at most so many records in one batch.
        driver_memory: heap of the JVM, such as ``4g``.
    """

    bootstrap: str
    topic: str
    table_path: str
    scratch_path: str
    answer_path: str
    records_per_batch: int
    driver_memory: str

    @classmethod
    def from_json(cls, text: str) -> Task:
        """The task of a file."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """The task for a file."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch, as its engine timed it (seconds since the epoch)."""

    records: int
    started_s: float
    completed_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a peer did.

    Attributes:
        batches: in order; none of them empty.
        ended_s: when the last work on the table was done, services after the last batch included.
    """

    batches: tuple[Batch, ...]
    ended_s: float

    @classmethod
    def of(cls, batches: Iterable[Batch], ended_s: float | None = None) -> Answer:
        """The answer of an engine that did nothing after its last batch, unless told when."""
        kept = tuple(batch for batch in batches if batch.records > 0)
        return cls(kept, ended_s if ended_s is not None else kept[-1].completed_s)

    @classmethod
    def read(cls, path: Path) -> Answer:
        """The answer that a peer left."""
        answer = json.loads(path.read_text())
        return cls(tuple(Batch(**batch) for batch in answer["batches"]), answer["ended_s"])

    def write(self, path: Path) -> None:
        """Leave the answer for whoever asked."""
        path.write_text(json.dumps(asdict(self)))
