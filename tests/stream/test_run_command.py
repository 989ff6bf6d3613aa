"""``lakemark run`` as its users start it: a process, a pipeline file, signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.kafka import Kafka, Message
from tests.short_lived import short_lived

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_LAKEMARK = [sys.executable, "-c", "import sys; from streamer.cli import main; sys.exit(main())"]


def lakemark(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*_LAKEMARK, *map(str, arguments)]
    return subprocess.run(command, env=short_lived(), capture_output=True, text=True, timeout=300)


def orders(first: int, end: int) -> Iterator[Message]:
    for number in range(first, end):
        yield b"%d" % number, json.dumps({"id": str(number), "n": number}).encode()


@pytest.fixture
def pipeline(kafka: Kafka, topic: str, tmp_path: Path) -> Path:
    """A pipeline file on a topic with 100 good records and 1 bad one."""
    kafka.create_topic(topic, partitions=2)
    kafka.produce(topic, [*orders(0, 100), (b"bad", b"{")])
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"source: {{bootstrap_servers: '{kafka.bootstrap}', topic: {topic}}}\n"
        "decode: {schema: {id: string, n: bigint}}\n"
        f"table: {{path: {tmp_path}/orders, record_key: id, ordering: n}}\n"
        "spark: {master: 'local[2]', conf: {spark.driver.memory: 1g}}\n"
    )
    return file


def test_a_run_that_is_stopped_and_started_reads_each_record_once(
    kafka: Kafka, topic: str, pipeline: Path
) -> None:
    table = pipeline.with_name("orders")
    command = [*_LAKEMARK, "run", str(pipeline)]
    with subprocess.Popen(
        command, env=short_lived(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as continuous:
        assert continuous.stdout is not None
        assert continuous.stderr is not None
        for line in continuous.stdout:
            if "commit 2" in line:
                continuous.send_signal(signal.SIGTERM)
                break
        rest, complaints = continuous.stdout.read(), continuous.stderr.read()
    assert continuous.returncode == 0
    assert "stopped (interrupted): 1 batch," in rest
    assert rest.index(" stopping") < rest.index(" stopped")
    assert complaints == ""

    kafka.produce(topic, orders(50, 150))
    once = lakemark("run", pipeline, "--once")
    assert (once.returncode, once.stderr) == (0, "")
    assert f"resumes: {topic} [" in once.stdout
    assert "100 records" in once.stdout
    assert "stopped (caught up)" in once.stdout

    rows = lakemark("query", table, "--json").stdout.splitlines()
    assert sorted(json.loads(row)["n"] for row in rows) == list(range(150))
    dead = lakemark("query", f"{table}_dead_letters", "--json", "--columns", "topic,key,value")
    assert [json.loads(row) for row in dead.stdout.splitlines()] == [
        {"topic": topic, "key": "YmFk", "value": "ew=="}  # to be sent again as it came
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
@pytest.mark.parametrize("one", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after_s", [0.0, 2.0])
def test_a_run_that_is_stopped_while_spark_starts_ends_as_if_done(
    one: signal.Signals, after_s: float, pipeline: Path
) -> None:
    command = [*_LAKEMARK, "run", str(pipeline)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        while not children.read_text().strip():
            time.sleep(0.05)
        time.sleep(after_s)
        run.send_signal(one)
        out, complaints = run.communicate(timeout=300)
    assert (run.returncode, complaints) == (0, b""), out


def test_a_run_that_cannot_start_ends_with_one_message(pipeline: Path) -> None:
    failed = lakemark("run", pipeline, "--set", "source.topic=nowhere")
    assert failed.returncode == 1
    assert failed.stdout == ""
    (message,) = failed.stderr.splitlines()
    assert message.startswith("lakemark: there is no topic nowhere at ")
    assert not pipeline.with_name("orders").exists()


def test_session_that_cannot_start_reports_the_message_of_spark(pipeline: Path) -> None:
    failed = lakemark("run", pipeline, "--set", "spark.conf={spark.scheduler.mode: sideways}")
    assert (failed.returncode, failed.stdout) == (1, "")
    (message,) = failed.stderr.splitlines()
    assert message.startswith("lakemark: Spark did not start: org.apache.spark.SparkException: ")
    assert "SIDEWAYS" in message
