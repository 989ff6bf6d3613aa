"""Several pipelines in one process: failures, turns, idle pipelines, and a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from checkpoints.commit_keys import decode
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.load import validated
from streamer.config.metrics import MetricsConfig
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, Listener, Retrying, RunStarted
from streamer.job.job import Job, PipelinesFailed
from streamer.job.plan import JobPlan
from streamer.job.shared_settings import SharedSettings
from streamer.metrics.server import RunMonitors
from streamer.shared_process import share_process
from streamer.sources.errors import BrokerUnreachable
from tests.fixtures.kafka import Kafka, Message, unused_topic
from tests.short_lived import short_lived
from tests.stream.monitoring import get
from tests.stream.orders_pipeline import assert_offsets_chain
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

COLUMNS = {"id": "string", "n": "bigint"}

#: Longer than a busy machine takes to start Spark and several pipelines, or to stop them.
WITHIN_S = 400.0


def orders(first: int, end: int) -> Iterator[Message]:
    for number in range(first, end):
        yield b"%d" % number, json.dumps({"id": str(number), "n": number}).encode()


def tree(kafka: Kafka, topic: str, path: Path, **changes: dict[str, Any]) -> dict[str, Any]:
    sections: dict[str, Any] = {
        "source": {"bootstrap_servers": kafka.bootstrap, "topic": topic},
        "decode": {"schema": COLUMNS},
        "table": {"path": str(path), "record_key": "id", "ordering": "n", "buckets": 1},
        "run": {"trigger_interval_s": 0.1, "retry": {"backoff_s": 0.1, "max_backoff_s": 0.2}},
    }
    for section, settings in changes.items():
        sections[section] = {**sections.get(section, {}), **settings}
    return sections


def rows_of(path: Path, column: str = "n") -> list[int]:
    """Return the numbers in a column of a table; none if it does not exist yet."""
    if not (path / ".hoodie" / "hoodie.properties").exists():
        return []
    table = open_table(StorageLocation(str(path)))
    if table.schema is None:
        return []
    return sorted(table.scan(columns=[column]).to_reader().read_all()[column].to_pylist())


def assert_read_once(path: Path, records: int) -> None:
    """Check that the commits cover each offset once, and that all rows are there."""
    location = StorageLocation(str(path))
    newest = open_table(location).newest_metadata()
    checkpoint = decode(newest.extra_metadata) if newest else None
    assert checkpoint is not None
    assert sum(checkpoint.offsets_by_partition.values()) == records
    assert_offsets_chain(location, checkpoint)
    assert rows_of(path) == list(range(records))


class RunningJob:
    """A job in a thread of this process, with the session of the tests."""

    def __init__(self, configs: Sequence[PipelineConfig], spark: SparkSession) -> None:
        self.events: dict[str, list[Event]] = {one.name: [] for one in configs}
        self.most_streams, self._spark = 0, spark
        self._of_others = {one.id for one in spark.streams.active}
        self._plan = JobPlan(list(configs), [], SharedSettings())
        self.failure: PipelinesFailed | None = None

    @contextmanager
    def running(self, num_streams: int) -> Iterator[Job]:
        with share_process(self._spark, 1, num_streams) as process:
            job = Job(self._plan, process, RunMonitors(MetricsConfig(), str), self._listener)
            thread = threading.Thread(target=self._run, args=(job,), daemon=True)
            thread.start()
            try:
                yield job
            finally:
                job.stop()
                thread.join(WITHIN_S)
            assert not job.has_unfinished_work

    def count_streams(self) -> int:
        """Return the number of active streams, without those that other tests have left."""
        return sum(one.id not in self._of_others for one in self._spark.streams.active)

    def _listener(self, name: str) -> Listener:
        def listen(event: Event, /) -> None:
            self.events[name].append(event)
            self.most_streams = max(self.most_streams, self.count_streams())

        return listen

    def _run(self, job: Job) -> None:
        try:
            job.run()
        except PipelinesFailed as error:
            self.failure = error


def test_pipelines_take_turns_and_idle_ones_have_no_stream(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Three pipelines share one stream; each reads what comes after it was idle."""
    names = ["a", "b", "c"]
    topics = {name: kafka.create_topic() for name in names}
    configs = [
        validated(tree(kafka, topics[name], tmp_path / name) | {"name": name}) for name in names
    ]
    kafka.produce(topics["b"], orders(0, 5))
    job = RunningJob(configs, spark)
    with job.running(num_streams=1) as running:
        for first, end in ((0, 10), (10, 20)):
            for name in names:
                kafka.produce(topics[name], orders(max(first, 5 * (name == "b")), end))
            for name in names:
                _until(lambda path=tmp_path / name, n=end: len(rows_of(path)) == n)  # type: ignore[misc]
            _until(lambda: not job.count_streams())
            assert all(one.result == "unfinished" for one in running.outcomes)
    assert job.failure is None
    assert job.most_streams == 1
    assert {one.result for one in running.outcomes} == {"interrupted"}
    for name in names:
        assert_read_once(tmp_path / name, 20)
        retried = [event for event in job.events[name] if isinstance(event, Retrying)]
        # A busy machine may let the broker answer late.
        assert {event.error_type for event in retried} <= {BrokerUnreachable.__name__}, retried
        starts = [event for event in job.events[name] if isinstance(event, RunStarted)]
        most = 1 + len(retried)
        assert 1 <= len(starts) <= most, "a stream that continues after a pause is no start"


def test_pipeline_whose_broker_is_away_is_retried_and_stops_no_other(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, orders(0, 10))
    once = {"mode": "once", "retry": {"max_attempts": 2, "backoff_s": 0.01}}
    away = {"bootstrap_servers": "127.0.0.1:1"}
    configs = [
        validated(tree(kafka, topic, tmp_path / "good", run={"mode": "once"})),
        validated(tree(kafka, topic, tmp_path / "away", run=once, source=away)),
    ]
    job = RunningJob(configs, spark)
    with job.running(num_streams=2) as running:
        _until(lambda: len(running.outcomes) == 2)
        _until(lambda: all(one.result != "unfinished" for one in running.outcomes))
    assert [one.result for one in running.outcomes] == ["caught up", "failed"]
    assert running.outcomes[1].error.startswith("BrokerUnreachable: ")
    (retrying,) = [event for event in job.events["away"] if isinstance(event, Retrying)]
    assert (retrying.attempt, retrying.max_attempts) == (1, 2)
    assert job.failure is not None
    assert job.failure.failed == ("away",)
    assert_read_once(tmp_path / "good", 10)


_LAKEMARK = [sys.executable, "-c", "import sys; from streamer.cli import main; sys.exit(main())"]
#: The number of invalid records in the topic of the failing pipeline: more than are tolerated.
BAD = 60
GOOD = ["t0", "t1", "t2", "t3", "t4"]


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_six_tables_of_a_pattern_of_which_one_fails_are_killed_and_run_again(
    kafka: Kafka, tmp_path: Path
) -> None:
    """A user's pattern: metrics, a new topic, kill -9, restart, exit codes and SIGTERM."""
    prefix, lake, events = unused_topic(), tmp_path / "lake", tmp_path / "events.jsonl"
    names = [f"{prefix}.{name}" for name in GOOD]
    bad, hidden, new = f"{prefix}.bad", f".{prefix}.hidden", f"{prefix}.new"
    for topic in (*names, bad, hidden):
        kafka.create_topic(topic, partitions=2)
    file, pattern = tmp_path / "shop.yaml", rf"\.?{prefix}\..*"
    refused = f"{file}: {hidden}"
    changes: dict[str, dict[str, Any]] = {
        "source": {
            "topic_pattern": pattern,
            "topic_interval_s": 0.5,
            "max_records_per_batch": 40,
        },
        "table": {"path": f"{lake}/{{topic}}"},
        "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "1g"}},
    }
    of_pattern = tree(kafka, "", lake, **changes)
    del of_pattern["source"]["topic"]
    file.write_text(yaml.safe_dump(of_pattern))
    command = [*_LAKEMARK, "run", str(file), "--events", str(events)]
    for name in names:
        kafka.produce(name, orders(0, 100))
    kafka.produce(bad, [(b"%d" % number, b"{") for number in range(BAD)])

    with _process([*command, "--set", "metrics.port=0", "--log-format", "json"]) as run:
        port = _port(run)
        _until(lambda: all(len(rows_of(lake / name)) == 100 for name in names))
        expected = {name: float(name in names) for name in (*names, bad, refused)}
        expected[f"{file}: topics {pattern}"] = 1.0
        _until(lambda: _samples(port, "lakemark_running") == expected)
        # A broker that is slow for a while makes others fail, too, but they are tried again.
        _until(lambda: _pipelines_with("RunFailed", events) == {bad, refused})
        assert _samples(port, "lakemark_failures_total").keys() >= {bad, refused}
        _until(lambda: not any(map(_samples(port, "lakemark_lag_records").get, names)))
        failures = [f"{refused}: failed: ConfigError", f"{bad}: failed: TooManyRejects"]
        health = 200, "\n".join(["5 of 7 pipelines are ready", *failures])
        _until(lambda: _health(port) == health)
        kafka.create_topic(new)
        kafka.produce(new, orders(0, 10))
        _until(lambda: len(rows_of(lake / new)) == 10)
        for name in names:  # wakes all of them
            kafka.produce(name, orders(100, 900))
        _until(lambda: any(len(rows_of(lake / name)) > 100 for name in names))
        run.kill()

    rest = [*command, "--once", "--set", "source.max_records_per_batch=1000"]
    once = subprocess.run(rest, env=short_lived(), capture_output=True, text=True, timeout=WITHIN_S)
    assert once.returncode == 1, once.stdout
    assert once.stderr.startswith(f"lakemark: 2 of 9 pipelines failed: {refused}, {bad}; ")
    summary = {line.split()[0]: line.split() for line in once.stdout.splitlines()}
    assert summary[bad][2] == "failed"
    assert summary[names[0]][1:4] == [names[0], "caught", "up"]
    assert f"{refused}: ConfigError: table.path: topic {hidden} would give" in once.stdout
    for name in names:
        assert_read_once(lake / name, 900)
    assert_read_once(lake / new, 10)

    with _process([*command, "--set", "dead_letters.max_share=1"]) as run:
        _until(lambda: len(rows_of(lake / f"{bad}_dead_letters", "offset")) == BAD)
        run.send_signal(signal.SIGTERM)
        out, complaints = run.communicate(timeout=WITHIN_S)
    assert (run.returncode, complaints.count("\n")) == (1, 1), out
    assert f"1 of 9 pipelines failed: {refused}; " in complaints
    assert _pipelines_with("RunStopped", events) >= {*names, bad, new}


def _until(is_so: Callable[[], bool]) -> None:
    until(is_so, within_s=WITHIN_S)


@contextmanager
def _process(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=short_lived(), **pipes) as run:
        try:
            yield run
        finally:
            run.kill()


def _port(run: subprocess.Popen[str]) -> int:
    """Return the port of the endpoint, which the first event contains."""
    assert run.stderr is not None
    event = json.loads(run.stderr.readline())
    assert event["event"] == "MetricsServed"
    threading.Thread(target=run.stderr.read, daemon=True).start()  # so that the run can write
    return int(event["port"])


def _pipelines_with(event: str, file: Path) -> set[str]:
    """Return the pipelines with such an event in a file, to which a job may still write."""
    written = map(json.loads, file.read_text().split("\n")[:-1])
    return {one["pipeline"] for one in written if one["event"] == event}


def _health(port: int) -> tuple[int, str]:
    status, text = get(port, "/health")
    return status, text.rstrip("\n")


def _samples(port: int, name: str) -> dict[str, float]:
    """Return the sum of the samples of each pipeline."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(get(port, "/metrics")[1]):
        for sample in family.samples:
            if sample.name == name:
                pipeline = sample.labels["pipeline"]
                found[pipeline] = found.get(pipeline, 0.0) + sample.value
    return found
