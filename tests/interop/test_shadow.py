"""A second table is compared with the table that Apache Hudi writes as a job of HoodieStreamer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakemark.model.meta_columns import IS_DELETED
from streamer.cli import FAILED, OK, main
from tests.fixtures.kafka import Kafka
from tests.interop.oracle import Oracle
from tests.interop.test_migration import (
    COLUMNS,
    JOBS,
    Job,
    message,
    ordered,
    properties_of,
    write_as_the_job,
)
from tests.unit.streamer.migration.jobs import SOURCES

pytestmark = [pytest.mark.oracle, pytest.mark.kafka, pytest.mark.spark]

Row = dict[str, Any]


def row(number: int, ts: int, v: int, region: str | None = None, *, deletes: bool = False) -> Row:
    place = region or ("north", "south")[number % 2]
    return {"id": str(number), "region": place, "ts": ts, "v": v, IS_DELETED: deletes}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.table_type}-{job.version}")
def test_pipeline_is_proved_to_write_the_rows_of_the_job(
    oracle: Oracle,
    kafka: Kafka,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    job: Job,
) -> None:
    topic, path, shadow = kafka.create_topic(), tmp_path / "orders", tmp_path / "shadow"
    command = shadow_command(kafka, topic, path, shadow, job, tmp_path)

    def apply(rows: list[Row], end: int) -> None:
        """Let the job write the rows of the topic before an offset."""
        write_as_the_job(oracle, path, rows, job, f"{topic},0:{end}")

    first = [row(n, ts=2, v=n) for n in range(20)]
    kafka.produce(topic, map(message, first), 0)
    apply(first, 20)
    assert main(command) == OK
    assert "equal rows: 20\n" in capsys.readouterr().out

    updates = [row(1, ts=5, v=10), row(3, ts=1, v=-1), row(30, ts=5, v=30)]
    deletes = [row(4, ts=5, v=0, deletes=True), row(5, ts=1, v=0, deletes=True)]
    moved = [row(6, ts=5, v=60, region="west")]
    second = [*updates, *deletes, *moved]
    unread = [row(n, ts=9, v=-2) for n in range(8)]
    kafka.produce(topic, map(message, [*second, *unread]), 0)
    apply(second, 26)
    assert main(command) == OK
    printed = capsys.readouterr().out
    assert f"compared at {topic},0:26:" in printed
    # The key of the row that moved has a row in each partition, unless the index is global.
    count = 21 if job.table_type == "MERGE_ON_READ" else 20
    assert f"equal rows: {count}\n" in printed
    ours, theirs = (oracle.read(one).select(COLUMNS).to_pylist() for one in (shadow, path))
    assert ordered(ours) == ordered(theirs)

    apply([row(7, ts=7, v=-7), row(8, ts=7, v=0, deletes=True)], 26)  # not in the topic
    assert main(command) == FAILED
    printed = capsys.readouterr().out
    assert "rows only in the new table: 1\n" in printed
    assert 'id="8"' in printed
    assert 'id="7": ts 7 -> 2, v -7 -> 7' in printed


def shadow_command(
    kafka: Kafka, topic: str, path: Path, shadow: Path, job: Job, folder: Path
) -> list[str]:
    """Return the command for a job that reads the topic."""
    kafka_properties = {
        "bootstrap.servers": kafka.bootstrap,
        "hoodie.streamer.source.kafka.topic": topic,
    }
    properties = folder / "job.properties"
    lines = (f"{n}={v}" for n, v in {**kafka_properties, **properties_of(job)}.items())
    properties.write_text("\n".join(lines))
    arguments = {
        "--target-base-path": str(path),
        "--target-table": "orders",
        "--table-type": job.table_type,
        "--source-class": f"{SOURCES}JsonKafkaSource",
        "--source-ordering-field": "ts",
    }
    words = [word for pair in arguments.items() for word in pair]
    options = ["--to", str(shadow), "--set", "run.trigger_interval_s=0"]
    return ["shadow", str(properties), *options, "--", *words]
