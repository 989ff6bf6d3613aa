"""What a pipeline announces to its hooks: its runs, batches, failures and commits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias
from uuid import UUID

from checkpoints.commit_keys import parse_text
from checkpoints.position import Position
from checkpoints.progress import decode_progress
from lakemark.config import keys
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from sinks.audit import Audit


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFacts:
    """A pipeline, its source and its table.

    Attributes:
        pipeline: the name of the pipeline.
        identity: the name under which the table records the progress of the pipeline.
        source_kind: ``kafka``, ``files`` or ``table``.
        source: the topic, the folder, or the URL of the table that is read.
        brokers: the brokers of a topic, ``host:port,host:port``; "" for another source.
        table: the name of the table.
        path: the URL of the table.
    """

    pipeline: str
    identity: str
    source_kind: str
    source: str
    brokers: str
    table: str
    path: str


@dataclass(frozen=True, slots=True)
class RunBegan:
    """A run of a pipeline has opened its table.

    Attributes:
        facts: the pipeline.
        run_id: identifies the run.
        at: the time, with its zone.
    """

    facts: PipelineFacts
    run_id: UUID
    at: datetime


class Outcome(StrEnum):
    """How a run ended.

    Attributes:
        COMPLETED: it has read everything, or was asked to stop.
        ABORTED: it was interrupted.
        FAILED: it failed permanently.
    """

    COMPLETED = "completed"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RunEnded:
    """A run ended.

    Attributes:
        facts: the pipeline.
        run_id: the run.
        at: the time, with its zone.
        outcome: how it ended.
        error_type: the class of the error; "" if the run did not fail.
        error: the message of the error, without secrets.
    """

    facts: PipelineFacts
    run_id: UUID
    at: datetime
    outcome: Outcome
    error_type: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class BatchMeasured:
    """A batch was committed; how long its stages took.

    Attributes:
        facts: the pipeline.
        run_id: the run.
        at: when the batch was committed, with the zone.
        instant: the commit.
        seconds: the duration of the batch.
        stage_s: the duration of each stage in seconds, in order; see ``BatchWritten``.
        counts: the numbers of records, rows, deletes and rejects, by name.
    """

    facts: PipelineFacts
    run_id: UUID
    at: datetime
    instant: str
    seconds: float
    stage_s: Mapping[str, float]
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class BatchFailed:
    """A start or a batch failed for a transient reason; the pipeline tries again.

    Attributes:
        facts: the pipeline.
        run_id: the run.
        at: the time, with its zone.
        error_type: the class of the error.
        error: the message of the error, without secrets.
        attempt: the number of consecutive failures.
    """

    facts: PipelineFacts
    run_id: UUID
    at: datetime
    error_type: str
    error: str
    attempt: int


@dataclass(frozen=True, slots=True)
class CommitCompleted:
    """A batch of the pipeline, or dead letters that were replayed, were committed.

    This notice is built from the commit alone.

    Attributes:
        facts: the pipeline.
        run_id: the run that announces the commit; after a crash, not the one that made it.
        instant: the commit.
        completed_at: when it completed, with the zone.
        metadata: the content of the commit.
    """

    facts: PipelineFacts
    run_id: UUID
    instant: Instant
    completed_at: datetime
    metadata: CommitMetadata = field(repr=False)

    @property
    def audit(self) -> Audit | None:
        """The numbers of records of the batch; None if the commit does not store them."""
        return Audit.in_commit(self.metadata.extra_metadata)

    @property
    def replayed(self) -> int | None:
        """The number of dead letters that a replay has written; None for a batch."""
        text = self.metadata.extra_metadata.get(keys.REPLAYED)
        return None if text is None else int(text)

    @property
    def rows_written(self) -> int:
        """The number of rows that were inserted or updated, as in ``BatchWritten``."""
        return self.metadata.rows_written

    @property
    def rows_deleted(self) -> int:
        """The number of deletes among the rows."""
        return sum(stat.num_deletes for stat in self.metadata.write_stats)

    @property
    def bytes_written(self) -> int:
        """The size of the files in bytes."""
        return sum(stat.total_write_bytes for stat in self.metadata.write_stats)

    @property
    def start(self) -> Position | None:
        """How far the source had been read before the batch; None if it is not known."""
        text = self.metadata.extra_metadata.get(keys.SOURCE_START)
        return None if text is None else parse_text(text)

    @property
    def end(self) -> Position | None:
        """How far the source has been read with the batch; None if it is not known, or a replay.

        The commit of a replay repeats the position of the pipeline, but reads nothing.
        """
        if self.replayed is not None:
            return None
        known = decode_progress(self.metadata.extra_metadata, self.instant, "")
        own = known.streamers.get(self.facts.identity)
        return None if own is None else own.checkpoint


#: Everything that a hook receives.
Notice: TypeAlias = RunBegan | CommitCompleted | BatchMeasured | BatchFailed | RunEnded


@dataclass(frozen=True, slots=True)
class Announced:
    """What a commit records about the hooks of its pipeline (``lakemark.hooks``).

    Attributes:
        identity: the pipeline; see ``PipelineFacts.identity``.
        by_hook: the requested time of the last commit that each hook had announced, by its name;
            "" if it had announced none.
    """

    identity: str
    by_hook: Mapping[str, str]

    def encode(self) -> dict[str, str]:
        """Return the extra metadata that records this in a commit."""
        content = {"id": self.identity, "announced": dict(self.by_hook)}
        return {keys.HOOKS: json.dumps(content, separators=(",", ":"))}

    @classmethod
    def in_commit(cls, metadata: CommitMetadata) -> Announced | None:
        """Return what a commit records; None if it records nothing, or if this is not readable."""
        try:
            found = json.loads(metadata.extra_metadata[keys.HOOKS])
            by_hook = {str(name): str(instant) for name, instant in found["announced"].items()}
            return cls(str(found["id"]), by_hook)
        except (KeyError, ValueError, TypeError, AttributeError):
            return None


def is_batch_of(identity: str, metadata: CommitMetadata) -> bool:
    """Return whether a commit contains a batch or a replay of a pipeline that has hooks.

    Commits that only record where reading starts contain no batch.
    """
    announced = Announced.in_commit(metadata)
    if announced is None or announced.identity != identity:
        return False
    audit = Audit.in_commit(metadata.extra_metadata)
    return audit is None or audit.offsets > 0
