"""Notices of a pipeline, as tests of single hooks send them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pyarrow as pa

from lakemark.config import keys
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata, WriteStat
from lakemark.model.instant import Instant
from lakemark.schema.avro import to_avro, to_json
from sinks.audit import Audit
from streamer.hooks.notices import (
    BatchFailed,
    BatchMeasured,
    CommitCompleted,
    Outcome,
    PipelineFacts,
    RunBegan,
    RunEnded,
)

FACTS = PipelineFacts(
    pipeline="shop-orders",
    identity="",
    source_kind="kafka",
    source="orders",
    brokers="kafka-1:9092,kafka-2:9092",
    table="orders",
    path="s3://lake/shop/orders",
)
RUN = UUID("5f3a1c1e-1d7e-4c7e-9a53-6f0f6ad4d6d1")
AT = datetime(2026, 1, 31, 6, 0, 0, 123_000, UTC)
SCHEMA = pa.schema([("id", pa.string()), ("amount", pa.decimal128(10, 2))])


def commit(number: int = 1, extra: Mapping[str, str] | None = None) -> CommitCompleted:
    """Return the notice of a commit of 10 rows, of which 2 are deletes; 1 record is rejected."""
    instant = f"2026013106000012{number}"
    stats = (
        WriteStat(
            path="eu/a.log", partition_path="eu", num_writes=6, num_inserts=6, total_write_bytes=600
        ),
        WriteStat(
            path="us/b.log",
            partition_path="us",
            num_writes=4,
            num_update_writes=4,
            num_deletes=2,
            total_write_bytes=400,
        ),
    )
    audit = Audit(offsets=12, records=11, written=10, merged=0, rejected=1, skipped=1)
    progress = {"": {"checkpoint": "orders,0:112,1:50", "commit": instant}}
    metadata = {
        keys.SCHEMA: to_json(to_avro(SCHEMA, "orders")),
        keys.SOURCE_START: "orders,0:100,1:50",
        keys.AUDIT: audit.to_json(),
        keys.CHECKPOINTS: json.dumps({"as_of": "", "streamers": progress}),
        **(extra or {}),
    }
    return CommitCompleted(
        facts=FACTS,
        run_id=RUN,
        instant=Instant(instant, Action.DELTA_COMMIT, State.COMPLETED, f"2026013106000112{number}"),
        completed_at=AT + timedelta(seconds=1),
        metadata=CommitMetadata(write_stats=stats, extra_metadata=metadata),
    )


def batch(number: int = 1) -> BatchMeasured:
    """Return the notice of the batch of ``commit(number)``."""
    stages = {"read": 0.5, "write": 1.0, "commit": 0.25}
    instant = commit(number).instant.requested_at
    return BatchMeasured(FACTS, RUN, AT, instant, 1.5, stages, {"rows_written": 10})


BEGAN = RunBegan(FACTS, RUN, AT)
ENDED = RunEnded(FACTS, RUN, AT, Outcome.COMPLETED)
FAILED = RunEnded(FACTS, RUN, AT, Outcome.FAILED, "LostOffsets", "offsets 3 to 7 were deleted")
RETRYING = BatchFailed(FACTS, RUN, AT, "StorageUnavailable", "the store is busy", 1)
