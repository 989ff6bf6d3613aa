"""The section ``compaction`` decides when the table is compacted, and which of its file groups."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from lakemark.model.partition_pattern import PartitionPattern
from lakemark.services.compaction_plan import CompactionPolicy, DueWhen
from lakemark.services.slice_choice import ALL_SLICES, SliceChoice, SliceOrder
from streamer.config.compaction import CompactionConfig
from streamer.config.load import validated
from streamer.pipeline import _policies, open_sink
from streamer.sources.kafka import KafkaSource
from tests.unit.streamer.test_opened_sink import COLUMNS, Topic


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, CompactionPolicy(5)),
        ({"after_commits": 3}, CompactionPolicy(3)),
        ({"after": "90m"}, CompactionPolicy(None, timedelta(minutes=90))),
        ({"after_log_bytes": 7}, CompactionPolicy(None, None, 7)),
        (
            {"after_commits": 3, "after": "1d", "when": "all"},
            CompactionPolicy(3, timedelta(days=1), None, DueWhen.ALL),
        ),
    ],
)
def test_five_commits_are_the_limit_unless_another_one_is_set(
    settings: dict[str, Any], policy: CompactionPolicy
) -> None:
    assert CompactionConfig(**settings).compaction_policy() == policy


def test_dead_letters_are_compacted_in_all_partitions(tmp_path: Path) -> None:
    config = validated(
        {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": COLUMNS,
            "table": {
                "path": str(tmp_path / "rows"),
                "record_key": "id",
                "partition_by": "region",
            },
            "compaction": {
                "after": "1h",
                "order": "oldest_partitions",
                "partitions": "n*",
                "max_partitions": 2,
                "max_io_bytes": 3,
            },
        }
    )
    _, (rows, letters) = open_sink(config, cast(KafkaSource, Topic()))
    assert letters.settings.compacted_slices == ALL_SLICES
    assert rows.settings.compacted_slices == SliceChoice(
        order=SliceOrder.OLDEST_PARTITIONS,
        partitions=(PartitionPattern("n*"),),
        max_partitions=2,
        max_io_bytes=3,
    )
    archival = _policies(config).archival
    assert archival is not None
    assert archival.delta_commits_to_compact is None, "commits are not counted"
