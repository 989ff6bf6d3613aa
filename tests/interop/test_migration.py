"""A job of Apache Hudi is translated, and the pipeline continues its table from its checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakemark
from checkpoints.commit_keys import decode
from lakemark.config import keys
from lakemark.execution.runner import LocalRunner
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY, CHECKPOINT_KEY_V2
from sinks.hudi.exchange import DriverExchange
from streamer import pipeline
from streamer.cli import OK, main
from streamer.config.load import load
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event
from tests.fixtures.kafka import Kafka
from tests.interop.oracle import ApacheTable, Oracle
from tests.unit.streamer.migration.jobs import SOURCES

pytestmark = [pytest.mark.oracle, pytest.mark.kafka, pytest.mark.spark]

COLUMNS = ["id", "region", "ts", "v"]

#: Messages of each partition of the topic that the job has read.
READ = (5, 3)

Row = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A job of HoodieStreamer whose table Apache Hudi's data source writes.

    Attributes:
        checkpoint_key: the key under which its release records the offsets.
        properties: properties of the job that its writer and the command get.
    """

    table_type: Literal["MERGE_ON_READ", "COPY_ON_WRITE"]
    version: int
    checkpoint_key: str
    properties: Mapping[str, str] = field(default_factory=dict)


JOBS = [
    Job(
        "MERGE_ON_READ",
        9,
        CHECKPOINT_KEY_V2,
        {
            "hoodie.index.type": "BUCKET",
            "hoodie.bucket.index.num.buckets": "2",
            "hoodie.datasource.write.hive_style_partitioning": "true",
        },
    ),
    Job(
        "COPY_ON_WRITE",
        6,
        CHECKPOINT_KEY,
        {
            "hoodie.index.type": "GLOBAL_SIMPLE",
            "hoodie.datasource.write.keygenerator.class": (
                "org.apache.hudi.keygen.ComplexKeyGenerator"
            ),
            "hoodie.write.complex.keygen.validation.enable": "false",
        },
    ),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: f"{job.table_type}-{job.version}")
def test_migrated_pipeline_continues_exactly_at_the_checkpoint(
    oracle: Oracle,
    kafka: Kafka,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    job: Job,
) -> None:
    topic, path = kafka.create_topic(partitions=2), tmp_path / "orders"
    # If the pipeline read a record before the checkpoint, it would replace a row.
    for partition, count in enumerate(READ):
        lost = [row(n, ts=99, v=-1) for n in range(count)]
        kafka.produce(topic, map(message, lost), partition)
    stored = [row(n, ts=1, v=n) for n in range(20)]
    write_as_the_job(oracle, path, stored, job, f"{topic},0:{READ[0]},1:{READ[1]}")

    config = migrate(kafka, topic, path, job, tmp_path)
    assert f"at {topic},0:5,1:3" in capsys.readouterr().err
    late, moved = row(3, ts=0, v=-2), {**row(4, ts=5, v=40), "region": "west"}
    sent = [row(n, ts=5, v=n * 10) for n in (1, 2, 30)]
    kafka.produce(topic, map(message, sent), 0)
    kafka.produce(topic, [*map(message, [late, moved]), (b"8", None)], 1)
    events: list[Event] = []
    with pipeline.build(config, events.append, DriverExchange(LocalRunner(2))) as built:
        built.loop.run()

    table = open_table(StorageLocation(str(path)))
    commits = [i for i in table.timeline.instants if i.is_completed and i.action.is_ingest]
    commit = table.store.read_commit(commits[-1]).extra_metadata
    assert str(decode(commit)) == f"{topic},0:8,1:6"
    assert commit[keys.SOURCE_START] == f"{topic},0:5,1:3"
    expected = {one["id"]: one for one in [*stored, *sent, moved]}
    rows = [*expected.values()]
    if not config.table.moves_rows:
        rows.append(stored[4])  # the key has a row in each of its partitions
    ours = lakemark.open(path).snapshot(COLUMNS).read_all().to_pylist()
    theirs = oracle.read(path).select(COLUMNS).to_pylist()
    assert ordered(ours) == ordered(theirs) == ordered(rows)


def row(number: int, ts: int, v: int) -> Row:
    return {"id": str(number), "region": ("north", "south")[number % 2], "ts": ts, "v": v}


def message(one: Row) -> tuple[bytes, bytes]:
    return one["id"].encode(), json.dumps(one).encode()


def ordered(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda one: (one["id"], one["region"]))


def properties_of(job: Job) -> dict[str, str]:
    """Return the properties that the writer and the command get."""
    return {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        **job.properties,
    }


def write_as_the_job(
    oracle: Oracle, path: Path, rows: list[Row], job: Job, checkpoint: str
) -> None:
    """Write rows with the properties of a job, and its checkpoint in the same commit."""
    extra = {
        **properties_of(job),
        "hoodie.datasource.write.commitmeta.key.prefix": job.checkpoint_key,
        job.checkpoint_key: checkpoint,
    }
    twin = ApacheTable(
        "orders",
        ["id"],
        ["region"],
        ["ts"],
        table_type=job.table_type,
        version=job.version,
        has_metadata=True,
        extra=extra,
    )
    oracle.write(path, pa.Table.from_pylist(rows), twin)


def migrate(kafka: Kafka, topic: str, path: Path, job: Job, folder: Path) -> PipelineConfig:
    """Translate the job with the command, and load the pipeline file."""
    kafka_properties = {
        "bootstrap.servers": kafka.bootstrap,
        "hoodie.deltastreamer.source.kafka.topic": topic,
        "hoodie.upsert.shuffle.parallelism": "2",
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
    out = folder / "orders.yaml"
    with out.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert main(["migrate", "--check-table", str(properties), "--", *words]) == OK
    return load(str(out), ["run.trigger_interval_s=0"])
