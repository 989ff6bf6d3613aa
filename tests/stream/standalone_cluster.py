"""A Spark cluster of this machine: a master, two workers, and programs submitted to it.

Each worker has its own address, because Spark never runs a second attempt of a task on the host of
the first. Neither the environment nor the folders of these processes lead to the project. So
executors have only the code that was shipped to them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamer.toolchain import find_java, find_spark, spark_kafka_jars

WORKER_HOSTS = ("127.0.0.2", "127.0.0.3")

_DRIVER_HOST = "127.0.0.1"
_START_S = 300.0
_POLL_S = 0.1
_MASTER_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_STARTED = re.compile(r"Successfully registered with master")

#: For Java processes that live for seconds.
_QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

#: Variables that would lead an executor to the checkout or to another interpreter, or keep Python
#: from leaving its caches where it imported from.
_LEFT_OUT = (
    "PYTHONPATH",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "VIRTUAL_ENV",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
)


@dataclass(frozen=True)
class StandaloneCluster:
    """A running master with its workers.

    Attributes:
        url: url of the master.
        folder: folder of the logs and the work folders.
    """

    url: str
    folder: Path

    @contextmanager
    def submitted(
        self,
        program: Path,
        arguments: Sequence[object],
        folder: Path,
        archive: Path,
        conf: Mapping[str, str] | None = None,
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program with ``spark-submit`` during the block; its output goes to files.

        Args:
            program: a Python file.
            arguments: arguments of the program.
            folder: a folder, which this creates, for the driver's output and Spark's event log. The
                driver runs in it.
            archive: a packed environment for the executors.
            conf: more Spark properties.
        """
        folder.mkdir()
        properties = {**_properties(folder), **(conf or {})}
        command: list[object] = [_spark_home() / "bin" / "spark-submit", "--master", self.url]
        command += ["--archives", f"{archive}#environment"]
        for item in properties.items():
            command += ["--conf", "=".join(item)]
        environment = _environment(_DRIVER_HOST)
        environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
        environment["PYSPARK_PYTHON"] = "./environment/bin/python"
        with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
            driver = subprocess.Popen(
                [str(part) for part in (*command, program, *arguments)],
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=err,
                start_new_session=True,  # Java and Python end together
            )
        try:
            yield driver
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


def spark_events(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return events, in order, of a program that was submitted with this folder and has ended.

    Args:
        folder: the folder with which it was submitted.
        kinds: kinds of events, such as ``SparkListenerTaskEnd``.
    """
    (log,) = (folder / "spark-events").iterdir()
    events = map(json.loads, log.read_text().splitlines())
    return [event for event in events if event["Event"] in kinds]


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[StandaloneCluster]:
    """Run a master and two workers of one core and 1 GiB each during the block."""
    with ExitStack() as stack:
        log = folder / "master.log"
        ports = ["--port", "0", "--webui-port", "0"]
        stack.enter_context(_daemon("master.Master", _DRIVER_HOST, ports, log))
        url = _awaited(log, _MASTER_STARTED)[1]
        for host in WORKER_HOSTS:
            log = folder / f"worker-{host}.log"
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{host}")]
            stack.enter_context(_daemon("worker.Worker", host, [*size, *ports[2:], url], log))
            _awaited(log, _WORKER_STARTED)
        yield StandaloneCluster(url, folder)


@contextmanager
def _daemon(name: str, host: str, arguments: Sequence[str], log: Path) -> Iterator[None]:
    """Run a process of Spark's standalone mode during the block; its executors end with it."""
    launch = [str(_spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    environment = _environment(host)
    environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _QUICK_START}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*launch, "--host", host, *arguments],
            cwd=log.parent,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _properties(folder: Path) -> dict[str, str]:
    """Return Spark properties: small executors, the Kafka connector, and a readable event log."""
    events = folder / "spark-events"
    events.mkdir()
    return {
        "spark.driver.host": _DRIVER_HOST,
        "spark.driver.bindAddress": _DRIVER_HOST,
        "spark.driver.memory": "512m",
        "spark.executor.memory": "640m",
        "spark.driver.extraJavaOptions": _QUICK_START,
        "spark.executor.extraJavaOptions": _QUICK_START,
        # Nothing runs before each worker has its executor, however late that starts.
        "spark.cores.max": str(len(WORKER_HOSTS)),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.jars": ",".join(map(str, spark_kafka_jars())),
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


def _environment(host: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    java, spark = str(find_java().home), str(_spark_home())
    return {**kept, "JAVA_HOME": java, "SPARK_HOME": spark, "SPARK_LOCAL_IP": host}


def _spark_home() -> Path:
    return find_spark().jars_folder.parent


def _awaited(log: Path, sign: re.Pattern[str]) -> re.Match[str]:
    """Wait for the first line of a log that matches."""
    deadline = time.monotonic() + _START_S
    while (found := sign.search(log.read_text())) is None:
        assert time.monotonic() < deadline, f"no {sign.pattern!r} in {log.read_text()[-2000:]}"
        time.sleep(_POLL_S)
    return found
