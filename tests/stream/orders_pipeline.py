"""The pipeline of the order stream, and the expected rows of its table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from checkpoints.commit_keys import decode
from checkpoints.position import Position
from lakemark.config import keys
from lakemark.model.action import Action
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.demo import ExpectedOrders

COLUMNS = {
    "order_id": "string",
    "customer": "string",
    "region": "string",
    "status": "string",
    "amount": "decimal(10,2)",
    "quantity": "int",
    "updated_at": "bigint",
    "note": "string",
}


def pipeline_tree(
    bootstrap: str, topic: str, path: str, **changes: Mapping[str, object]
) -> dict[str, Any]:
    """Return a pipeline file of the order stream; ``changes`` are merged into its sections."""
    tree: dict[str, Any] = {
        "source": {"bootstrap_servers": bootstrap, "topic": topic, "max_records_per_batch": 4_000},
        "decode": {"schema": COLUMNS},
        "table": {
            "path": path,
            "record_key": ["order_id"],
            "partition_by": ["region"],
            "ordering": ["updated_at"],
            "buckets": 2,
        },
        "compaction": {"after_commits": 2},
        "run": {"mode": "once", "trigger_interval_s": 0},
    }
    for section, settings in changes.items():
        tree[section] = {**tree.get(section, {}), **settings}
    return tree


def pipeline_config(
    bootstrap: str, topic: str, path: Path | str, **changes: Mapping[str, object]
) -> PipelineConfig:
    """Return the pipeline of ``pipeline_tree``, validated."""
    return validated(pipeline_tree(bootstrap, topic, str(path), **changes))


def assert_holds(location: StorageLocation, expected: ExpectedOrders) -> None:
    """Check that the table contains exactly the expected orders."""
    rows = open_table(location).scan(columns=list(COLUMNS)).to_reader().read_all()
    wanted = expected.rows.select(list(COLUMNS)).cast(rows.schema)
    assert rows.sort_by("order_id").equals(wanted), _difference(rows, wanted)


def assert_offsets_chain(location: StorageLocation, end: Position) -> None:
    """Check that each commit begins where the previous one ended, and the last ends at ``end``."""
    table = open_table(location)
    position: str | None = None
    for instant in table.timeline.completed(Action.DELTA_COMMIT):
        extra = table.store.read_commit(instant).extra_metadata
        start = extra[keys.SOURCE_START]
        assert position in (None, start), f"{instant} begins at {start}, not at {position}"
        position = str(decode(extra))
    assert position == str(end)


def _difference(rows: pa.Table, wanted: pa.Table) -> str:
    ours = {tuple(row.items()) for row in rows.to_pylist()}
    theirs = {tuple(row.items()) for row in wanted.to_pylist()}
    return f"too many: {sorted(ours - theirs)[:3]}, missing: {sorted(theirs - ours)[:3]}"
