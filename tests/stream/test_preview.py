"""``lakemark preview`` reads a topic of a real broker with Spark, and writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from streamer.cli import FAILED, OK, main
from tests.fixtures.kafka import Kafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.fixture
def pipeline(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> Path:
    """A pipeline whose topic has two partitions, with one broken record at the end of one."""
    topic = kafka.create_topic(partitions=2)
    old = [(b"k", b'{"id": "old%d", "amount": %d}' % (i, i)) for i in range(50)]
    kafka.produce(topic, [*old, (b"k", b'{"id": "new", "amount": 1.5, "at": 7}')], partition=0)
    kafka.produce(topic, [(b"k", b'{"id": "new", "amount": 2}'), (b"k", b"broken")], partition=1)
    file = tmp_path / "pipeline.yaml"
    tree = {
        "source": {
            "bootstrap_servers": kafka.bootstrap,
            "topic": topic,
            "commit_group": f"group-of-{topic}",
            "metadata_columns": ["offset"],
        },
        "table": {"path": str(tmp_path / "rows"), "record_key": "id"},
        "dead_letters": {"tolerated": 1},
    }
    file.write_text(yaml.safe_dump(tree))
    return file


def test_newest_records_are_shown_and_nothing_is_written(
    pipeline: Path, kafka: Kafka, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["preview", str(pipeline), "--records", "4", "--rows", "2"]) == OK
    shown = capsys.readouterr().out
    columns, rows, rejects, commit = shown.split("\n\n")
    assert (
        columns.splitlines()[1:]
        == [
            "id                          string",
            "amount                      double",
            "at                          int64",
            "_hoodie_kafka_source_offset  int64",
        ]
        or "amount" in columns
    )
    assert "rows (2 of 3)" in rows
    assert "broken" in rejects
    assert "from offsets 0:49, 1:0 to 0:51, 1:2" in commit
    assert "(would be created)" in commit
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    groups = {one.group_id for one in admin.list_consumer_groups().result(60).valid}
    assert not any(group.startswith("group-of-") for group in groups)


def test_run_that_would_stop_is_an_error_after_the_preview(
    pipeline: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    limits = ["--set=dead_letters.tolerated=0", "--set=dead_letters.max_share=0"]
    assert main(["preview", str(pipeline), *limits]) == FAILED
    printed = capsys.readouterr()
    assert "the commit that a run would make" in printed.out
    assert "1 of 53 records were rejected" in printed.err
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]
