"""``lakemark shadow`` and ``lakemark run --props`` on a real broker, next to a job that goes on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyspark.sql import SparkSession

import lakemark
from checkpoints.common_position import reached_positions
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.cli import FAILED, MISUSED, OK, main
from tests.fixtures.kafka import Kafka, Message
from tests.unit.streamer.migration.jobs import SOURCES
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Row = dict[str, Any]


class Job:
    """A job that writes a table, and the second table next to it.

    Attributes:
        table: the table of the job.
        shadow: the second table.
        file: the pipeline file of the job.
    """

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self._kafka, self.topic = kafka, kafka.create_topic(partitions=2)
        self.table, self.shadow = folder / "orders", folder / "orders_shadow"
        self.file = folder / "orders.yaml"
        source = {
            "bootstrap_servers": kafka.bootstrap,
            "topic": self.topic,
            "max_records_per_batch": 7,  # so that the job ends within a batch of the second table
        }
        table = {"path": str(self.table), "record_key": "id", "ordering": "ts", "buckets": 2}
        columns = {"id": "string", "ts": "bigint", "v": "bigint"}
        decode = {"schema": columns, "tombstones": "delete"}
        run = {"mode": "once", "trigger_interval_s": 0}
        tree = {"source": source, "decode": decode, "table": table, "run": run}
        self.file.write_text(yaml.safe_dump(tree))

    def send(self, *rows: Row | str) -> None:
        """Send rows, and tombstones for the keys of rows to delete."""
        self._kafka.produce(self.topic, map(_message, rows))

    def run(self) -> None:
        assert main(["run", str(self.file)]) == OK

    def read_to(self, path: Path) -> str:
        table = open_table(StorageLocation(str(path)))
        return str(reached_positions(table)[0].position)


def _message(row: Row | str) -> Message:
    if isinstance(row, str):
        return row.encode(), None
    return row["id"].encode(), json.dumps(row).encode()


def rows(numbers: Iterable[int], ts: int) -> Iterator[Row]:
    return ({"id": str(n), "ts": ts, "v": n * ts} for n in numbers)


@pytest.fixture
def job(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> Job:
    return Job(kafka, tmp_path)


@pytest.mark.parametrize("options", [[], ["--from-topic"]], ids=["copied", "from topic"])
def test_tables_are_equal_at_the_offsets_of_the_job(
    job: Job, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    job.send(*rows(range(40), ts=5))
    job.run()
    command = ["shadow", str(job.file), "--to", str(job.shadow), *options]
    # The job is ahead of the copy, and the topic is ahead of the job.
    job.send(*rows((1, 2), ts=6), *rows((3, 4), ts=1), "5", "6", *rows((6,), ts=9))
    job.run()
    job.send(*rows((1, 50), ts=7), "7")
    capsys.readouterr()

    assert main(command) == OK
    printed = capsys.readouterr().out
    assert f"compared at {job.read_to(job.table)}:" in printed
    assert "equal rows: 39\n" in printed
    assert "the tables are equal" in printed
    assert job.read_to(job.shadow) == job.read_to(job.table)

    job.run()
    job.send(*rows((51,), ts=7))
    assert main(command) == OK
    assert "equal rows: 39\n" in capsys.readouterr().out
    assert job.read_to(job.shadow) == job.read_to(job.table)


def test_planted_differences_are_found_and_named(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.send(*rows(range(20), ts=5))
    job.run()
    command = ["shadow", str(job.file), "--to", str(job.shadow)]
    assert main(command) == OK
    shadow = lakemark.open(job.shadow)
    shadow.upsert(pa.Table.from_pylist([{"id": "3", "ts": 9, "v": -1}, *rows((77,), ts=5)]))
    shadow.delete(["4"])
    job.send(*rows((8,), ts=8))
    job.run()
    capsys.readouterr()

    assert main([*command, "--json"]) == FAILED
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == {"equal": 18, "only_old": 1, "only_new": 1, "different": 1}
    assert found["different_by_column"] == {"ts": 1, "v": 1}
    assert found["examples"]["only_old"] == [{"id": "4"}]
    assert found["examples"]["only_new"] == [{"id": "77"}]
    values = {"ts": {"old": 5, "new": 9}, "v": {"old": 15, "new": -1}}
    assert found["examples"]["different"] == [{"key": {"id": "3"}, "values": values}]
    assert found["position"] == job.read_to(job.table)

    assert main(["compare", str(job.table), str(job.shadow), "--ignore", "ts"]) == FAILED
    assert 'id="3": v 15 -> -1' in capsys.readouterr().out


def test_stopped_run_compares_nothing(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    job.send(*rows(range(5), ts=5))
    job.run()
    command = ["shadow", str(job.file), "--to", str(job.shadow)]
    assert main(command) == OK
    job.send(*rows((9,), ts=5))
    job.run()
    capsys.readouterr()
    before = signal.getsignal(signal.SIGTERM)

    def stop() -> None:
        until(lambda: signal.getsignal(signal.SIGTERM) != before)
        os.kill(os.getpid(), signal.SIGTERM)

    # No broker answers, so the run cannot end before it is stopped.
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(stop)
        unreachable = ["--set", "source.bootstrap_servers=127.0.0.1:1"]
        assert main([*command, *unreachable]) == FAILED
        stopping.result()
    printed = capsys.readouterr()
    assert "the tables are equal" not in printed.out
    assert "the run was stopped before" in printed.err
    assert main(command) == OK
    assert "equal rows: 6" in capsys.readouterr().out


def test_job_that_ends_runs_without_a_pipeline_file(
    job: Job, kafka: Kafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job.send(*rows(range(10), ts=5))
    properties = tmp_path / "orders.properties"
    properties.write_text(
        f"bootstrap.servers={kafka.bootstrap}\n"
        f"hoodie.streamer.source.kafka.topic={job.topic}\n"
        "hoodie.datasource.write.recordkey.field=id\n"
        "auto.offset.reset=earliest\n"
        "hoodie.archive.beyond.savepoint=true\n"
    )
    path = tmp_path / "of_job"
    options = {
        "--target-base-path": str(path),
        "--target-table": "orders",
        "--table-type": "COPY_ON_WRITE",
        "--source-class": f"{SOURCES}JsonKafkaSource",
        "--source-ordering-field": "ts",
    }
    words = [word for pair in options.items() for word in pair]
    command = ["run", "--set", "run.trigger_interval_s=0", "--props", str(properties), "--"]
    assert main([*command, *words]) == OK
    assert "hoodie.archive.beyond.savepoint=true: archival stops" in "".join(capfd.readouterr())
    assert lakemark.open(path).snapshot(["id"]).read_all().num_rows == 10

    job.send(*rows(range(10, 15), ts=5))
    assert main([*command, *words, "--payload-class", "com.example.Payload"]) == MISUSED
    assert "--payload-class com.example.Payload: " in capfd.readouterr().err
    assert lakemark.open(path).snapshot(["id"]).read_all().num_rows == 10


def test_run_ends_exactly_at_the_given_offsets(
    job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    job.send(*rows(range(40), ts=5))
    command = ["run", str(job.file), "--set"]
    assert main([*command, "source.ending_offsets={0: 9, 1: 3}"]) == OK
    assert job.read_to(job.table) == f"{job.topic},0:9,1:3"
    assert lakemark.open(job.table).snapshot(["id"]).read_all().num_rows == 12
    assert main([*command, "source.ending_offsets={0: 12}"]) == OK
    assert job.read_to(job.table) == f"{job.topic},0:12,1:3"
    capsys.readouterr()
    for ending, reason in {
        "{0: 11}": "has read partition 0",
        "{0: 500}": "ends at offset",
        "{2: 1}": "has no partition 2",
    }.items():
        assert main([*command, f"source.ending_offsets={ending}"]) == FAILED
        assert reason in capsys.readouterr().err
    job.run()
    assert lakemark.open(job.table).snapshot(["id"]).read_all().num_rows == 40
