"""``lakemark doctor`` reports every fault of a pipeline at once, and changes nothing."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Event, main_thread
from typing import Any, cast

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from lakemark.operations.create import create_table
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.s3_policy import minimal_policy
from lakemark.transaction.heartbeat import HEARTBEAT_FOLDER
from streamer.checks.machine import memory_check
from streamer.checks.sampled_sizes import SampledSizes
from streamer.checks.topic import topic_client as topic_client_of
from streamer.cli import FAILED, INTERRUPTED, MISUSED, OK, main
from streamer.config.load import load
from streamer.sources import topic_client
from streamer.table_setup import table_spec
from tests.fixtures.kafka import Kafka
from tests.fixtures.s3 import S3Server
from tests.json_stream import JsonStream
from tests.schema_registry import FaultyRegistry
from tests.unit.storage.http_servers import answering, losing_answers, serving

pytestmark = pytest.mark.usefixtures("patient")

#: The check by its name, and its status and text.
Report = Mapping[str, Mapping[str, Any]]
Doctor = Callable[..., tuple[int, Report]]

COLUMNS = {"id": "string", "ts": "bigint", "n": "int"}


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a port where nothing listens; a check waits for it only briefly."""
    monkeypatch.setattr(topic_client, "_CONNECT_WITHIN_S", 0.3)
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[..., str]:
    """A function that writes a pipeline file, with changes of its sections."""

    def write(bootstrap: str, topic: str, **changes: Mapping[str, object]) -> str:
        tree: dict[str, Mapping[str, object]] = {
            "source": {"bootstrap_servers": bootstrap, "topic": topic},
            "decode": {"schema": COLUMNS},
            "table": {
                "path": str(tmp_path / "rows"),
                "record_key": "id",
                "ordering": "ts",
                "buckets": 2,
            },
        }
        for name, values in changes.items():
            tree[name] = {**tree.get(name, {}), **values}
        file = tmp_path / "pipeline.yaml"
        file.write_text(yaml.safe_dump(tree))
        return str(file)

    return write


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """A function that runs the command, and returns its exit code and its report."""

    def run(file: str, *options: str) -> tuple[int, Report]:
        code = main(["doctor", file, "--json", *options])
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return code, {row["check"]: row for row in rows}

    return run


def status(report: Report, begin: str) -> str:
    """Return the status of the first check whose name begins like this."""
    return str(next(row["status"] for name, row in report.items() if name.startswith(begin)))


def text(report: Report, begin: str) -> str:
    """Return the text of the first check whose name begins like this."""
    return str(next(row["text"] for name, row in report.items() if name.startswith(begin)))


def contents(folder: Path) -> dict[str, tuple[bytes, int] | None]:
    """Return the content and the time of each file, and the folders."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


@pytest.mark.kafka
def test_suitable_pipeline_passes_and_nothing_is_left(
    kafka: Kafka, topic: str, pipeline: Callable[..., str], doctor: Doctor, tmp_path: Path
) -> None:
    kafka.create_topic(topic, partitions=2, settings={"retention.ms": str(7 * 86_400_000)})
    kafka.produce(topic, [(b"a", b'{"id": "a", "ts": 1}')])
    source = {"commit_group": "monitoring"}
    file = pipeline(kafka.bootstrap, topic, source=source, metrics={"port": 0})
    before = contents(tmp_path)
    code, report = doctor(file)
    assert code == OK, [row for row in report.values() if row["status"] == "failed"]
    assert {row["status"] for row in report.values()} <= {"ok", "warning"}
    assert contents(tmp_path) == before
    assert text(report, "topic") == "2 partitions, retention 7 days"
    assert text(report, "reading") == "1 record read from 1 partition; 1 offset available"
    # On a slow machine, a new broker may not have a coordinator for groups yet.
    assert status(report, "consumer group monitoring") in ("ok", "warning")
    assert text(report, "table") == "does not exist yet; the first run creates it"
    assert "a batch of 1 record takes about 21 B" in text(report, "memory")


@pytest.mark.kafka
def test_existing_table_is_described_and_not_changed(
    kafka: Kafka, topic: str, pipeline: Callable[..., str], doctor: Doctor, tmp_path: Path
) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, [(b"a", b'{"id": "a", "ts": 1}')] * 3)
    stream = JsonStream(StorageLocation(str(tmp_path / "rows")), topic=topic)
    stream.write([{"id": "a", "ts": 1}])
    file = pipeline(kafka.bootstrap, topic)
    before = contents(tmp_path)
    code, report = doctor(file)
    assert code == OK, [row for row in report.values() if row["status"] == "failed"]
    assert contents(tmp_path) == before
    (commit,) = stream.rows.table.timeline.completed()
    assert text(report, "table") == (
        "version 9, merge-on-read, merge mode EVENT_TIME_ORDERING, "
        f"newest commit {commit.requested_at}"
    )
    assert text(report, "columns and keys") == "3 columns, record key: id"
    assert text(report, "offsets") == f"{topic},0:1; 2 unread offsets"

    kafka.delete_before(topic, 2)
    code, report = doctor(file)
    assert code == FAILED
    assert "partition 0 lost offsets 1 to 1" in text(report, "offsets")
    code, report = doctor(file, "--set=source.on_offset_out_of_range=earliest")
    assert (code, status(report, "offsets")) == (OK, "warning")
    write_checkpoint(open_table(stream.location), "", KafkaCheckpoint("another", {0: 0}))
    code, report = doctor(file)
    assert "belongs to another topic" in text(report, "offsets")


@pytest.mark.kafka
def test_topic_that_was_created_again_is_refused_even_if_it_has_the_offsets(
    kafka: Kafka, topic: str, pipeline: Callable[..., str], doctor: Doctor, tmp_path: Path
) -> None:
    records = [(b"a", b'{"id": "a", "ts": 1}')] * 3
    kafka.create_topic(topic)
    kafka.produce(topic, records)
    file = pipeline(kafka.bootstrap, topic)
    with topic_client_of(load(file).kafka) as client:
        topic_id = client.topic_id()
    stream = JsonStream(StorageLocation(str(tmp_path / "rows")), topic=topic)
    stream.sink.commit_start(KafkaCheckpoint(topic, {0: 1}), topic_id)
    assert text(doctor(file)[1], "offsets") == f"{topic},0:1; 2 unread offsets"

    kafka.delete(topic)
    kafka.create_again(topic)
    kafka.produce(topic, records)
    code, report = doctor(file)
    assert (code, status(report, "offsets")) == (FAILED, "failed")
    assert f"topic {topic} was created again" in text(report, "offsets")
    code, report = doctor(file, "--set=source.on_offset_out_of_range=latest")
    assert (code, status(report, "offsets")) == (OK, "warning")
    assert text(report, "offsets").startswith(f"{topic},0:1; 0 unread offsets; ")


@pytest.mark.kafka
def test_offsets_of_the_first_run_are_compared_with_the_topic(
    kafka: Kafka, topic: str, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    kafka.create_topic(topic)
    kafka.produce(topic, [(b"a", b'{"id": "a", "ts": 1}')] * 3)
    kafka.delete_before(topic, 2)

    def report(starting: object, **source: str) -> Report:
        given = {"starting_offsets": starting, **source}
        return doctor(pipeline(kafka.bootstrap, topic, source=given))[1]

    assert status(report({0: 2}), "offsets") == "ok"
    assert status(report({"timestamp": 0}), "offsets") == "ok"
    assert f"names partition 1 of topic {topic}" in text(report({0: 2, 1: 0}), "offsets")
    lost = report({0: 1})
    assert status(lost, "offsets") == "failed"
    assert "partition 0 lost offsets 1 to 1" in text(lost, "offsets")
    assert status(report({0: 1}, on_offset_out_of_range="earliest"), "offsets") == "warning"


def test_every_other_check_is_made_if_the_broker_is_away(
    closed: str, pipeline: Callable[..., str], doctor: Doctor, tmp_path: Path
) -> None:
    code, report = doctor(pipeline(closed, "orders"))
    assert code == FAILED
    assert f"no Kafka broker answered at {closed}: " in text(report, "broker")
    skipped = {name for name, row in report.items() if row["status"] == "skipped"}
    assert skipped == {
        f"topic orders at {closed}",
        "reading topic orders",
        "offsets to resume from",
        "memory for a batch",
    }
    assert text(report, "topic") == f"needs: broker {closed}"
    assert status(report, "rights on") == status(report, "columns and keys") == "ok"
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


@pytest.mark.kafka
def test_missing_topic_is_reported_and_not_created(
    kafka: Kafka, topic: str, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    code, report = doctor(pipeline(kafka.bootstrap, topic))
    assert code == FAILED
    assert (status(report, "broker"), status(report, "topic")) == ("ok", "failed")
    assert "correct source.topic, or create the topic" in text(report, "topic")
    assert topic not in AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics().topics


def test_properties_that_only_java_supports_are_a_warning(
    closed: str, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    consumer = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    code, report = doctor(pipeline(closed, "orders", source={"consumer": consumer}))
    assert (code, status(report, "broker"), status(report, "topic")) == (OK, "warning", "skipped")
    assert "sasl.mechanism OAUTHBEARER" in text(report, "broker")


def test_missing_rights_on_s3_are_listed_with_a_policy(
    closed: str,
    s3_server: S3Server,
    pipeline: Callable[..., str],
    doctor: Doctor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    location = s3_server.own_bucket()
    table = {"path": location.url, "storage": s3_server.options}
    file = pipeline(closed, "orders", table=table)
    config = load(file)
    create_table(config.table.location(), table_spec(config))
    before = open_storage(location).list_tree("")
    s3_server.deny(location, "s3:PutObject", "s3:DeleteObject")
    _, report = doctor(file)
    rights = report[f"rights on {location.url}"]
    assert rights["text"].startswith(f"{location.url}: not allowed: delete")
    assert rights["policy"]["Statement"][1]["Resource"].endswith("/rows/*")
    assert text(report, "lock provider").startswith("needs: rights on ")
    assert status(report, f"table {location.url}") == "ok", "it can be read"
    assert open_storage(location).list_tree("") == before

    main(["doctor", file])
    printed = capsys.readouterr()
    policy = printed.out[printed.out.index("{") :]
    resources = [one["Resource"] for one in json.loads(policy)["Statement"]]
    assert f"arn:aws:s3:::{location.url.removeprefix('s3://')}/*" in resources
    assert f"arn:aws:s3:::{location.url.removeprefix('s3://')}_dead_letters/*" in resources
    assert s3_server.options["secret_access_key"] not in printed.out + printed.err
    assert printed.err.startswith("lakemark: ")


def test_nothing_is_left_if_the_command_is_interrupted_during_a_trial(
    closed: str, s3_server: S3Server, pipeline: Callable[..., str]
) -> None:
    """The signal of Ctrl-C arrives while the answer to the first put is pending."""
    location, written = s3_server.location(), Event()
    forwarding = losing_answers(s3_server.endpoint, [])

    class Interrupting(forwarding):  # type: ignore[misc, valid-type]  # a class made by a function
        def send_response(self, code: int, message: str | None = None) -> None:
            if self.command == "PUT" and not written.is_set():
                written.set()
                signal.pthread_kill(cast(int, main_thread().ident), signal.SIGINT)
                time.sleep(0.5)
            super().send_response(code, message)

    with serving(Interrupting) as url:
        storage = {**s3_server.options, "endpoint": url}
        file = pipeline(closed, "orders", table={"path": location.url, "storage": storage})
        # This process may have another handler, or ignore the signal as a background process.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            assert main(["doctor", file]) == INTERRUPTED
        finally:
            signal.signal(signal.SIGINT, handler)
        left = [one.path for one in open_storage(location).list_tree("")]
    assert left == []


def test_policy_in_the_documentation_is_the_printed_one() -> None:
    page = (Path(__file__).parents[4] / "docs" / "operating.md").read_text()
    shown = page.partition("```json\n")[2].partition("```")[0]
    assert json.loads(shown) == minimal_policy(["s3://lake/orders"])


def test_unknown_credentials_are_reported_without_a_policy(
    closed: str, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    with serving(answering(403, "<Error><Code>InvalidAccessKeyId</Code></Error>")) as url:
        storage = {
            "endpoint": url,
            "access_key_id": "AKIATESTKEYIDENT",
            "secret_access_key": "geheim",
        }
        table = {"path": "s3://lake/rows", "storage": {**storage, "region": "x"}}
        code, report = doctor(pipeline(closed, "orders", table=table))
    assert "check the credentials" in report["storage s3://lake/rows"]["text"]
    assert not any("policy" in row for row in report.values())
    assert "geheim" not in json.dumps(dict(report))
    assert code == FAILED


def test_code_is_that_of_a_wrong_setting_if_every_failure_is_one(
    closed: str, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    consumer = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        port = listening.getsockname()[1]
        sections = {"source": {"consumer": consumer}, "metrics": {"port": port}}
        code, report = doctor(pipeline(closed, "orders", **sections))
    assert code == MISUSED
    assert text(report, "metrics port").endswith(
        "name another port, 0 for a free port, or omit the setting"
    )


def test_missing_secret_is_named_once_and_does_not_stop_other_checks(
    closed: str, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    secret = {"ssl.key.password": {"env": "LAKEMARK_NO_SUCH_VARIABLE"}}
    code, report = doctor(pipeline(closed, "orders", source={"consumer": secret}))
    assert "LAKEMARK_NO_SUCH_VARIABLE" in text(report, "pipeline file")
    assert status(report, "rights on") == "ok"
    assert code == MISUSED


def test_transforms_and_merger_are_imported(
    closed: str, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    steps = [{"step": "add", "columns": {"twice": "n * 2"}}]
    table = {"merger": "no.such:Merger", "merge_mode": "custom"}
    file = pipeline(closed, "orders", table=table)
    tree = yaml.safe_load(Path(file).read_text())
    Path(file).write_text(yaml.safe_dump({**tree, "transform": steps}))
    _, report = doctor(file)
    assert text(report, "transform") == "1 step; columns after the last: id, n, ts, twice"
    assert "No module named 'no'" in text(report, "merger no.such:Merger")


@pytest.fixture
def registry() -> Iterator[FaultyRegistry]:
    with FaultyRegistry() as started:
        yield started


def test_subject_is_needed_only_for_columns_that_are_not_declared(
    closed: str, registry: FaultyRegistry, pipeline: Callable[..., str], doctor: Doctor
) -> None:
    decode: dict[str, object] = {"format": "avro", "schema_registry": {"url": registry.url}}
    file = pipeline(closed, "orders", decode=decode)
    _, report = doctor(file)
    assert (status(report, "schema registry"), status(report, "subject")) == ("ok", "warning")
    _, report = doctor(file, "--set=decode.schema=infer")
    assert status(report, "subject orders-value") == "failed"
    assert status(report, "columns and keys") == "skipped"
    registry.answers["/subjects/orders-value/versions/latest"] = {
        "schema": json.dumps(
            {
                "type": "record",
                "name": "order",
                "fields": [{"name": "id", "type": "string"}, {"name": "ts", "type": "long"}],
            }
        )
    }
    _, report = doctor(file, "--set=decode.schema=infer")
    assert text(report, "subject") == "newest schema with 2 columns"
    assert text(report, "columns and keys") == "2 columns, record key: id"


def test_active_and_dead_writers_of_the_table_are_a_warning(
    closed: str, pipeline: Callable[..., str], doctor: Doctor, tmp_path: Path
) -> None:
    stream = JsonStream(StorageLocation(str(tmp_path / "rows")))
    stream.write([{"id": "a", "ts": 1}])
    stream.rows.begin()
    (pending,) = stream.rows.table.store.load().pending()
    file = pipeline(closed, "orders")
    _, report = doctor(file)
    assert f"pending without a heartbeat: {pending}" in text(report, "table")
    heartbeat = f"{HEARTBEAT_FOLDER}/{pending.requested_at}"
    open_storage(stream.location).put(heartbeat, b"")
    _, report = doctor(file)
    assert f"heartbeat of instant {pending.requested_at}" in text(report, "table")
    assert status(report, "table") == "warning"


def test_batches_that_do_not_fit_in_the_driver_are_a_warning(
    closed: str, pipeline: Callable[..., str]
) -> None:
    spark = {"conf": {"spark.driver.memory": "900t"}}
    sizes = SampledSizes(available=10_000_000)
    sizes.add([1 << 20])
    config = load(pipeline(closed, "orders", spark=spark))
    heap, batch = memory_check(config, sizes, ()).run().warnings
    assert heap.startswith("spark.driver.memory leaves little memory outside the heap")
    assert "set source.max_records_per_batch to " in batch
