"""The checks report errors before Spark starts, and leave no files."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from lakemark.errors import HudiError, InvalidConfig, StorageUnavailable, Unsupported
from lakemark.operations.create import create_table
from streamer.checks import start
from streamer.checks.check import NotChecked
from streamer.checks.start import check_locally, check_start, remote_checks
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.sources import topic_client
from streamer.sources.errors import BrokerUnreachable
from streamer.table_setup import dead_letters_location, dead_letters_spec, table_spec
from tests.fixtures.kafka import Kafka
from tests.schema_registry import FaultyRegistry
from transforms.decode.schema_registry import RegistryRefused, RegistryUnavailable

AVRO = {"format": "avro", "schema": {"id": "string"}, "tombstone_key": "raw"}


@pytest.fixture(scope="module")
def closed() -> str:
    """The address of a port where nothing listens."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def registry() -> Iterator[FaultyRegistry]:
    with FaultyRegistry() as started:
        yield started


def config_of(folder: Path, **sections: Mapping[str, object]) -> PipelineConfig:
    tree: dict[str, Mapping[str, object]] = {
        "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
        "decode": {"schema": {"id": "string", "region": "string"}},
        "table": {"path": str(folder / "rows"), "record_key": "id"},
    }
    for name, values in sections.items():
        tree[name] = {**tree.get(name, {}), **values}
    return validated(tree)


def check(config: PipelineConfig, what: str) -> None:
    """Run the checks whose names have this prefix."""
    found = [one for one in remote_checks(config) if one.name.startswith(what)]
    assert found
    for one in found:
        one.run()


def files(folder: Path) -> list[str]:
    """All files and folders, except where content is prepared: a check tries to create a file."""
    paths = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return sorted(path for path in paths if ".aux" not in path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source.bootstrap_servers": "127.0.0.1:1"}, "no Kafka broker answered at 127.0.0.1:1: "),
        ({"table.path": "{folder}/file/rows"}, "{folder}/file is a file; name a folder"),
        ({"table.path": "{folder}/file"}, "{folder}/file is a file; name a folder"),
        ({"table.merger": "no.such:Merger"}, "no.such"),
    ],
    ids=["port", "below a file", "file", "merger"],
)
def test_command_reports_it_without_a_start_of_spark(
    settings: dict[str, str], message: str, tmp_path: Path, closed: str
) -> None:
    (tmp_path / "file").write_text("mine")
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(
        f"source: {{bootstrap_servers: '{closed}', topic: orders}}\n"
        "decode: {schema: {id: string}}\n"
        f"table: {{path: {tmp_path}/rows, record_key: id}}\n"
        "spark: {master: 'there is no such master'}\n"
    )
    home = tmp_path / "home"
    given = [f"--set={name}={value.format(folder=tmp_path)}" for name, value in settings.items()]
    program = "import sys; from streamer.cli import main; sys.exit(main())"
    ended = subprocess.run(
        [sys.executable, "-c", program, "run", str(pipeline), *given],
        env={**os.environ, "LAKEMARK_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    (line,) = ended.stderr.splitlines()
    assert message.format(folder=tmp_path) in line
    assert ended.returncode != 0
    assert not home.exists(), "nothing was looked up for Spark, and no JVM has a log"
    assert files(tmp_path) == ["file", "pipeline.yaml"]


@pytest.mark.kafka
def test_missing_topic_is_reported_and_not_created(
    kafka: Kafka, topic: str, tmp_path: Path
) -> None:
    config = config_of(tmp_path, source={"bootstrap_servers": kafka.bootstrap, "topic": topic})
    with pytest.raises(HudiError, match=f"there is no topic {topic} at {kafka.bootstrap}"):
        check_start(config)
    time.sleep(0.5)  # a topic that is created by a question shows a moment later
    assert topic not in AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics().topics
    kafka.create_topic(topic)
    check_start(config)
    assert files(tmp_path) == []


def test_checks_do_not_create_the_folder_of_a_new_table(tmp_path: Path) -> None:
    check(config_of(tmp_path), "table ")
    check(config_of(tmp_path), "dead-letter table ")
    assert files(tmp_path) == []


def test_new_table_with_partitions_by_a_timestamp_is_refused_before_spark(tmp_path: Path) -> None:
    config = config_of(
        tmp_path,
        decode={"schema": {"id": "string", "at": "timestamp"}},
        table={"partition_by": "at"},
    )
    with pytest.raises(ConfigError, match="'at' is of type timestamp"):
        check(config, "table ")
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["rows", "rows_dead_letters"])
def test_folder_that_is_not_a_table_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "notes.txt").write_text("mine")
    with pytest.raises(InvalidConfig, match=f"{name} is not empty and is not a Hudi table"):
        check(config_of(tmp_path), "table " if name == "rows" else "dead-letter table ")


def test_path_that_the_system_rejects_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / ("a" * 300))
    with pytest.raises(InvalidConfig, match=f"{path}: File name too long; "):
        check(config_of(tmp_path, table={"path": path}), "table ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(InvalidConfig, match=f"this user may not write to {tmp_path}"):
        check(config_of(tmp_path), "table ")


def test_table_that_does_not_fit_is_refused_and_one_that_does_stays_as_it_is(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path)
    create_table(config.table.location(), table_spec(config))
    create_table(dead_letters_location(config), dead_letters_spec(config, None))
    before = files(tmp_path)
    check(config, "table ")
    check(config, "dead-letter table ")
    with pytest.raises(InvalidConfig, match="record_key is id in the table and region"):
        check(config_of(tmp_path, table={"record_key": "region"}), "table ")
    assert files(tmp_path) == before


def test_partial_rows_are_refused_for_a_table_of_version_6(tmp_path: Path) -> None:
    old = config_of(tmp_path, table={"version": 6})
    create_table(old.table.location(), table_spec(old))
    with pytest.raises(Unsupported, match="version 6, which does not support partial rows"):
        check(config_of(tmp_path, table={"partial_update": "absent_fields"}), "table ")


def test_store_that_is_away_is_reported(tmp_path: Path, closed: str) -> None:
    storage: dict[str, object] = {
        "aws_endpoint": f"http://{closed}",
        "aws_access_key_id": "user",
        "aws_secret_access_key": "geheim",
        "retry_timeout_s": 0.1,
    }
    config = config_of(tmp_path, table={"path": "s3://lake/rows", "storage": storage})
    with pytest.raises(StorageUnavailable, match=r"s3://lake/rows/\.hoodie"):
        check(config, "table ")


def test_registry_is_asked(tmp_path: Path, registry: FaultyRegistry) -> None:
    decode = {**AVRO, "schema_registry": {"url": registry.url}}
    config = config_of(tmp_path, decode=decode)
    check(config, "schema registry")  # it lacks the subject, which a table with columns needs not
    assert registry.asked == ["/subjects/orders-value/versions/latest"]
    registry.failures = [403]
    check(config, "schema registry")
    registry.require("user", "password")
    with pytest.raises(RegistryRefused, match="status 401"):
        check(config, "schema registry")
    registry.stop()
    decode["schema_registry"] = {"url": registry.url, "retry_timeout_s": 0.2}
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        check(config_of(tmp_path, decode=decode), "schema registry")


def test_start_waits_for_a_registry_that_is_briefly_away(
    tmp_path: Path, registry: FaultyRegistry
) -> None:
    config = config_of(tmp_path, decode={**AVRO, "schema_registry": {"url": registry.url}})
    registry.failures = [503, 503]
    check(config, "schema registry")
    assert len(registry.asked) == 3


def test_broker_that_does_not_answer_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_client, "ANSWER_WITHIN_S", 0.3)
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        config = config_of(tmp_path, source={"bootstrap_servers": address})
        with pytest.raises(BrokerUnreachable, match=f"no Kafka broker answered at {address}: "):
            check_start(config)


def test_check_that_takes_longer_does_not_stop_the_start_and_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    registry: FaultyRegistry,
) -> None:
    registry.failures = [503] * 2
    config = config_of(tmp_path, decode={**AVRO, "schema_registry": {"url": registry.url}})
    slow = [one for one in remote_checks(config) if one.name.startswith("schema registry")]
    monkeypatch.setattr(start, "remote_checks", lambda *_, **__: slow)
    monkeypatch.setattr(start, "WITHIN_S", 0.1)
    check_start(config)
    again = f"schema registry {registry.url}: the run checks it again once Spark runs: no answer"
    assert f"{again} within 0 s" in caplog.text
    for thread in threading.enumerate():
        if thread.name.startswith("check of schema registry"):
            thread.join()  # its warnings would reach the standard error of a later test


def test_broker_check_is_skipped_if_librdkafka_cannot_connect(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    config = config_of(tmp_path, source={"consumer": consumer})
    with pytest.raises(NotChecked):
        check(config, "topic ")
    check_start(config)
    assert "topic orders at localhost:9092 is not checked before Spark starts" in caplog.text
    assert "sasl.mechanism OAUTHBEARER" in caplog.text


def test_merger_is_imported(tmp_path: Path) -> None:
    merger = "tests.stream.quantity_merger:QuantityMerger"
    config = config_of(tmp_path, table={"merger": merger, "merge_mode": "custom"})
    assert any("quantity_merger" in line for line in check_locally(config))
    missing = config_of(tmp_path, table={"merger": "no.such:Merger", "merge_mode": "custom"})
    with pytest.raises(InvalidConfig, match="No module named 'no'"):
        check_locally(missing)
