"""The image of ``make image`` reads a topic into a mounted folder, as its users run it."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from lakemark.errors import SnapshotChanged, TableNotFound
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.broker.data_folder import free_ports
from tests.fixtures.kafka import Kafka, Message
from tests.fixtures.kafka_in_docker import BASE, LABEL
from tests.waiting import until

#: The build alone takes two minutes, and twice that on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
IMAGE = "lakemark:tests"
WITHIN_S = 300.0


def docker(*arguments: str, within_s: float = WITHIN_S) -> subprocess.CompletedProcess[str]:
    command = ["docker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s)


@pytest.fixture(scope="module")
def image() -> str:
    """The image, built as users build it.

    ``.ci/run`` sets ``LAKEMARK_DOCKER_BASE`` if there is Docker, so that these tests are not
    skipped there.
    """
    base = os.environ.get("LAKEMARK_DOCKER_BASE")
    try:
        answers = docker("info").returncode == 0
    except FileNotFoundError:
        answers = False
    if not answers and base is None:
        pytest.skip("Docker does not answer")
    options = [f"BASE={base or BASE}", f"TAG={IMAGE}", f"ARGS=--label {LABEL}"]
    built = subprocess.run(
        ["make", "image", *options], cwd=ROOT, capture_output=True, text=True, timeout=1500
    )
    assert built.returncode == 0, (built.stdout + built.stderr)[-3000:]
    return IMAGE


@pytest.fixture
def lake(kafka: Kafka, topic: str, tmp_path: Path) -> Path:
    """A folder to which the user of the image may write, and the pipeline file next to it."""
    kafka.create_topic(topic, partitions=2)
    (tmp_path / "pipeline.yaml").write_text(
        f"source: {{bootstrap_servers: '{kafka.bootstrap}', topic: {topic}}}\n"
        "decode: {schema: {id: string, n: bigint}}\n"
        "table: {path: /lake/orders, record_key: id, ordering: n}\n"
        "spark: {master: 'local[2]', conf: {spark.driver.memory: 1g}}\n"
        "run: {trigger_interval_s: 0.5}\n"
    )
    folder = tmp_path / "lake"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def in_container(lake: Path) -> list[str]:
    """Return options of ``docker run``: the network of this machine, the folder, the pipeline."""
    pipeline = lake.with_name("pipeline.yaml")
    mounts = [f"{lake}:/lake", f"{pipeline}:/etc/lakemark/pipeline.yaml:ro"]
    return ["--network", "host", *(word for mount in mounts for word in ("-v", mount))]


def messages(first: int, end: int) -> Iterator[Message]:
    for number in range(first, end):
        yield b"%d" % number, json.dumps({"id": str(number), "n": number}).encode()


def rows(lake: Path) -> dict[str, int]:
    table = open_table(StorageLocation(str(lake / "orders")))
    found = table.scan(columns=["id", "n"]).to_reader().read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["n"] for row in found}


def has_rows(lake: Path, expected: int) -> bool:
    try:
        return len(rows(lake)) >= expected
    except (SnapshotChanged, TableNotFound):
        return False


@pytest.fixture
def container() -> Iterator[str]:
    """The name of a container, which is removed at the end."""
    name = f"lakemark-tests-{uuid4().hex[:12]}"
    yield name
    docker("rm", "--force", name)


def test_the_image_reads_a_topic_into_a_table_and_ends_when_it_is_stopped(
    image: str, kafka: Kafka, topic: str, lake: Path, container: str
) -> None:
    pipeline = "/etc/lakemark/pipeline.yaml"
    kafka.produce(topic, messages(0, 100))
    once = docker("run", "--rm", *in_container(lake), image, "run", pipeline, "--once")
    assert once.returncode == 0, (once.stdout + once.stderr)[-3000:]
    assert rows(lake) == {str(number): number for number in range(100)}

    port = free_ports().broker
    command = ["run", pipeline, "--log-format", "json", "--set", f"metrics.port={port}"]
    options = ["--detach", "--name", container, *in_container(lake)]
    started = docker("run", *options, image, *command)
    assert started.returncode == 0, started.stderr
    kafka.produce(topic, messages(50, 150))
    until(lambda: has_rows(lake, 150), "the rows of the second run", WITHIN_S)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
        assert answer.status == 200
    assert docker("stop", "--time", "120", container).returncode == 0
    state = docker("inspect", "--format", "{{.State.ExitCode}} {{.Config.User}}", container)
    logs = docker("logs", container)
    assert state.stdout.split() == ["0", "lakemark"], (logs.stdout + logs.stderr)[-3000:]
    assert all(json.loads(line) for line in logs.stdout.splitlines())
    assert rows(lake) == {str(number): number for number in range(150)}
