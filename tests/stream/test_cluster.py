"""On a standalone cluster, lost or slow executors lose no row, and unlike executors are refused."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError
from zipfile import ZipFile

import pytest

import lakemark.__main__
from lakemark.storage import open_storage
from streamer.broker.data_folder import free_ports
from tests.fixtures.kafka import Kafka
from tests.fixtures.s3 import S3Server
from tests.stream import held_driver
from tests.stream.monitoring import get, scraped
from tests.stream.packed_environment import SITE_PACKAGES, pack, pack_bare
from tests.stream.sent_orders import SentOrders
from tests.stream.standalone_cluster import (
    WORKER_HOSTS,
    StandaloneCluster,
    spark_events,
    standalone_cluster,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]

RECORDS = 8_000
BATCHES = {"max_records_per_batch": 4_004}  # two, and some room where partitions are not even

#: Records of a batch that the driver could collect, and a driver with the memory for it.
LARGE_BATCH = 500_000
LARGE_DRIVER = {"spark.driver.memory": "1g"}

#: Where a task's metrics are in Spark's events.
_RECORDS_READ = ("Input Metrics", "Records Read")
_READ_FROM_SHUFFLE = ("Shuffle Read Metrics", "Total Records Read")
_WRITTEN_TO_SHUFFLE = ("Shuffle Write Metrics", "Shuffle Records Written")

#: More than the share of the driver's memory that a record of such a batch has.
LONG_BYTES = 100_000

END_WITHIN_S = 300

LAKEMARK = Path(lakemark.__main__.__file__)
HELD = Path(held_driver.__file__)

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "500ms",
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # Not one of pytest's, which it keeps: every executor unpacks an environment here.
    with tempfile.TemporaryDirectory(prefix="lakemark-cluster-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[StandaloneCluster]:
    with standalone_cluster(folder) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def environment(folder: Path) -> Path:
    archive = folder / "environment.tar.gz"
    pack(archive)
    return archive


@pytest.fixture
def orders(kafka: Kafka, s3_server: S3Server) -> SentOrders:
    return SentOrders(kafka, s3_server.location(), RECORDS)


def test_executors_need_nothing_but_what_is_shipped_to_them(
    cluster: StandaloneCluster,
    environment: Path,
    kafka: Kafka,
    s3_server: S3Server,
    tmp_path: Path,
) -> None:
    orders = SentOrders(kafka, s3_server.location(), RECORDS, LONG_BYTES)
    port = free_ports().broker
    pipeline = orders.pipeline_file(tmp_path, source=BATCHES, metrics={"port": port})
    arguments, driver_folder = ["run", pipeline, "--once"], tmp_path / "driver"
    with cluster.submitted(LAKEMARK, arguments, driver_folder, environment) as driver:
        _wait_for_metrics_of_a_batch(port, driver)
        assert _exit_code(driver, driver_folder) == 0
    orders.assert_landed()
    assert _shuffling_hosts(tmp_path / "driver") == set(WORKER_HOSTS)
    imported = f"work-*/*/*/environment/{SITE_PACKAGES}/sinks/hudi/__pycache__/spark_exchange.*"
    assert len(list(cluster.folder.glob(imported))) == len(WORKER_HOSTS)


def test_small_records_of_a_large_batch_are_decoded_and_written_on_executors(
    cluster: StandaloneCluster,
    environment: Path,
    kafka: Kafka,
    s3_server: S3Server,
    tmp_path: Path,
) -> None:
    """The records fit in the driver, but two executors are faster than its one core."""
    orders = SentOrders(kafka, s3_server.location(), LARGE_BATCH)
    pipeline = orders.pipeline_file(tmp_path, source={"max_records_per_batch": 2 * LARGE_BATCH})
    arguments, folder = ["run", pipeline, "--once"], tmp_path / "driver"
    with ExitStack() as stack:
        with _on_one_core():
            run = cluster.submitted(LAKEMARK, arguments, folder, environment, LARGE_DRIVER)
            driver = stack.enter_context(run)
        assert _exit_code(driver, folder) == 0
    orders.assert_landed()
    (written,) = (stage for stage in _stages(folder) if _total(stage, _READ_FROM_SHUFFLE))
    assert len(written) > 1, "several tasks wrote files"
    assert {task["Task Info"]["Host"] for task in written} == set(WORKER_HOSTS)
    shuffled = [stage for stage in _stages(folder) if _total(stage, _WRITTEN_TO_SHUFFLE)]
    (tasks,) = shuffled
    assert {task["Task Info"]["Host"] for task in tasks} == set(WORKER_HOSTS)
    assert _total(tasks, _RECORDS_READ) == LARGE_BATCH, "no task sent its records to the driver"
    returned = sum(task["Task Metrics"]["Result Size"] for task in (*tasks, *written))
    assert returned < LARGE_BATCH, "less than a byte of each record went to the driver"


def test_shipped_modules_of_users_hide_no_package_of_lakemark(
    cluster: StandaloneCluster,
    environment: Path,
    kafka: Kafka,
    s3_server: S3Server,
    tmp_path: Path,
) -> None:
    """A run works although Spark puts shipped modules in front of the executors' packages."""
    orders = SentOrders(kafka, s3_server.location(), RECORDS, LONG_BYTES)
    shipped = tmp_path / "shop.zip"
    with ZipFile(shipped, "w") as archive:
        for name in ("checkpoints", "sinks", "streamer", "transforms"):
            archive.writestr(f"{name}/__init__.py", "raise RuntimeError('of a user')")
    driver_folder, arguments = (
        tmp_path / "driver",
        ["run", orders.pipeline_file(tmp_path), "--once"],
    )
    conf = {"spark.submit.pyFiles": str(shipped)}
    assert _run(cluster, LAKEMARK, arguments, driver_folder, environment, conf) == 0
    orders.assert_landed()
    assert _shuffling_hosts(driver_folder)
    printed = " ".join((driver_folder / "stdout").read_text().split())
    assert "transforms/__init__.py has the name of lakemark's package transforms" in printed


def test_executors_with_another_version_of_the_project_are_refused(
    cluster: StandaloneCluster, folder: Path, orders: SentOrders, tmp_path: Path
) -> None:
    older = folder / "older.tar.gz"
    pack(older, version="0.0.9")
    message = _refusal(cluster, older, orders, tmp_path)
    assert message.startswith("lakemark: the executor on ")
    assert "differs from the driver: lakemark is 0.0.9 on the executor and " in message


def test_executors_without_the_project_are_refused(
    cluster: StandaloneCluster, folder: Path, orders: SentOrders, tmp_path: Path
) -> None:
    bare = folder / "bare.tar.gz"
    pack_bare(bare)
    message = _refusal(cluster, bare, orders, tmp_path)
    assert message.startswith("lakemark: executors cannot run the project: ModuleNotFoundError: ")
    assert "--archives" in message


def test_an_executor_that_is_lost_while_files_are_written_costs_nothing(
    cluster: StandaloneCluster, environment: Path, orders: SentOrders, tmp_path: Path
) -> None:
    pipeline = orders.pipeline_file(tmp_path, source=BATCHES)
    folder, arguments = tmp_path / "driver", [pipeline, tmp_path]
    with cluster.submitted(HELD, arguments, folder, environment) as driver:
        os.kill(_held_executor(tmp_path, driver), signal.SIGKILL)
        assert _exit_code(driver, folder) == 0
    orders.assert_landed()
    removed = spark_events(tmp_path / "driver", "SparkListenerExecutorRemoved")
    assert removed, "no executor was lost"
    stages = spark_events(tmp_path / "driver", "SparkListenerStageSubmitted")
    attempts = [stage["Stage Info"]["Stage Attempt ID"] for stage in stages]
    assert max(attempts) > 0, "its part of the first stage was not needed again"


def test_a_task_that_runs_twice_at_once_writes_its_files_once(
    cluster: StandaloneCluster, environment: Path, orders: SentOrders, tmp_path: Path
) -> None:
    pipeline = orders.pipeline_file(tmp_path, source=BATCHES, run={"read_ahead": False})
    arguments = [pipeline, tmp_path]
    assert _run(cluster, HELD, arguments, tmp_path / "driver", environment, SPECULATION) == 0
    orders.assert_landed()
    tasks = spark_events(tmp_path / "driver", "SparkListenerTaskStart")
    assert any(task["Task Info"]["Speculative"] for task in tasks)


def _run(
    cluster: StandaloneCluster,
    program: Path,
    arguments: Sequence[object],
    folder: Path,
    environment: Path,
    conf: Mapping[str, str] | None = None,
) -> int:
    """Submit a program, wait for its end, and return its exit code."""
    with cluster.submitted(program, arguments, folder, environment, conf) as driver:
        return _exit_code(driver, folder)


def _refusal(
    cluster: StandaloneCluster, environment: Path, orders: SentOrders, folder: Path
) -> str:
    """Return the output of a run that fails before it creates a table."""
    arguments = ["run", orders.pipeline_file(folder), "--once"]
    assert _run(cluster, LAKEMARK, arguments, folder / "driver", environment) == 1
    assert not open_storage(orders.location).list_tree("")
    # Spark lets the standard error of Python go the way of its standard output.
    (message,) = (folder / "driver" / "stdout").read_text().splitlines()
    return message


def _wait_for_metrics_of_a_batch(port: int, driver: subprocess.Popen[bytes]) -> None:
    """Wait until the driver reports over HTTP that it wrote a batch and is healthy."""
    deadline = time.monotonic() + END_WITHIN_S
    batches = 0.0
    while not batches:
        assert time.monotonic() < deadline, "no batch was written"
        with suppress(URLError, ConnectionError):  # it does not listen yet, or no more
            batches = scraped(port)["lakemark_batch_seconds_count"]
            assert get(port, "/health")[0] == 200
        assert driver.poll() is None, "the driver ended before it reported a batch"
        time.sleep(0.1)


def _held_executor(folder: Path, driver: subprocess.Popen[bytes]) -> int:
    """Wait for the first written file, and return the process id of the executor that wrote it."""
    deadline = time.monotonic() + END_WITHIN_S
    while not (folder / "first").exists():
        assert driver.poll() is None, _complaints(folder / "driver")
        assert time.monotonic() < deadline, "no file was written"
        time.sleep(held_driver.POLL_S)
    return int((folder / "first").read_text())


def _exit_code(driver: subprocess.Popen[bytes], folder: Path) -> int:
    code = driver.wait(END_WITHIN_S)
    print(_complaints(folder))  # shown when the test fails
    return code


def _complaints(folder: Path) -> str:
    return "".join((folder / name).read_text()[-5000:] for name in ("stderr", "stdout"))


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Processes that start in the block use one core."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def _stages(folder: Path) -> list[list[dict[str, Any]]]:
    """The tasks of each stage that have ended, as Spark reports them."""
    stages = defaultdict(list)
    for task in spark_events(folder, "SparkListenerTaskEnd"):
        stages[task["Stage ID"]].append(task)
    return [*stages.values()]


def _total(tasks: Sequence[Mapping[str, Any]], metric: tuple[str, str]) -> int:
    group, name = metric
    return sum(task["Task Metrics"][group][name] for task in tasks)


def _shuffling_hosts(folder: Path) -> set[str]:
    """Return the hosts on which tasks of the cluster's exchange ran.

    Only tasks of this exchange write data for a shuffle.
    """
    return {
        task["Task Info"]["Host"]
        for task in spark_events(folder, "SparkListenerTaskEnd")
        if task["Task Metrics"]["Shuffle Write Metrics"]["Shuffle Bytes Written"]
    }
