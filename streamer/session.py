"""The Spark session: the one that ``spark-submit`` started, or a local one of our own.

A local session needs nothing but this project: Java is found, the Kafka connector comes as local
jars for the Spark that is installed, what the JVM prints goes to a file (``log_file``), and no
secret stands on its command line.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakemark.errors import Permanent
from lakemark.storage.scratch import scratch_of_this_process
from streamer import class_archive
from streamer.child_processes import ended_if_interrupted
from streamer.config import settings
from streamer.config.pipeline import PipelineConfig
from streamer.jvm_exit import jvm_end, log_file, output_file
from streamer.stopping import interrupts_kept
from streamer.stream_failure import told_by_spark
from streamer.submit_properties import (
    JAVA_OPTIONS,
    SUBMIT_OPTIONS,
    environment_variable,
    launch_files,
)
from streamer.toolchain import find_java, find_spark, spark_kafka_jars

_GIB = 1024**3
_LOG4J = Path(__file__).with_name("log4j2.properties")

#: What the stream relies on, in a session of any origin. The pipeline file may set others.
_STREAM_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Task counts are chosen for each batch; a plan that changes under way would undo that.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # Without it an idle topic still makes a batch from time to time.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The scratch folder is never read again, so nothing in it is worth keeping.
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # From 4.0 the limit in bytes ends a batch first; 3.5 knows only rows. Spark ends a batch once
    # it is over the limit, so half of the 64 MiB that one may have is left for the last record.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024**2),
}

#: What shares executors between batches and a compaction beside them; of a submitted session,
#: ``spark-submit --conf`` has to say it.
_FAIR_SETTINGS = {"spark.scheduler.mode": "FAIR"}

_QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
}
# No look-up of the machine's own name, which can take seconds, and no port open to others.
_THIS_MACHINE_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


_TEMPORARY_FOLDER = "java.io.tmpdir"
_OPTIONS_BEFORE_OURS = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


class SessionFailed(Permanent):
    """Spark did not start."""

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(f"Spark did not start: {reason}; its output is in {log}")
        self.reason, self.log = reason, log


def spark_session(config: PipelineConfig) -> SparkSession:
    """A session that can run the pipeline; the running one where there is one.

    Raises:
        ConfigError: a secret of ``spark.conf`` cannot be found.
        JavaNotFound: there is no Java that Spark runs on.
        JarsUnavailable: the Kafka connector is not here and cannot be fetched.
        SessionFailed: Spark did not start.
        JvmEnded, OutOfMemory: its JVM ended while it started.
    """
    own = settings.resolve(config.spark.conf, "spark.conf")
    if config.compaction.mode == "async":
        own = {**_FAIR_SETTINGS, **own}
    if is_submitted() or SparkSession.getActiveSession() is not None:
        with _told_as_failure("the driver's log"):
            spark = SparkSession.builder.appName(config.name).getOrCreate()
    else:
        spark = _start(local_settings(config.name, config.spark.master, own))
    for name, value in {**_STREAM_SETTINGS, **own}.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def plain_session(name: str) -> SparkSession:
    """A session without a pipeline: the submitted or running one, or one of this machine.

    Raises:
        JavaNotFound: there is no Java that Spark runs on.
        SessionFailed: Spark did not start.
    """
    if is_submitted() or SparkSession.getActiveSession() is not None:
        with _told_as_failure("the driver's log"):
            return SparkSession.builder.appName(name).getOrCreate()
    return _start(local_settings(name, None, {}))


def is_submitted() -> bool:
    """Whether ``spark-submit`` runs this process, and so decides master, memory and jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def local_settings(name: str, master: str | None, own: Mapping[str, str]) -> dict[str, str]:
    """Everything that a session of our own is started with.

    Args:
        name: of the application.
        master: of Spark; None for all cores of this machine.
        own: what the pipeline file sets; it wins.
    """
    master = master or "local[*]"
    jars = ",".join(map(str, spark_kafka_jars()))
    log_options = (
        f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}",
        f"-Dlakemark.log.file={log_file()}",
    )
    return {
        **_QUIET_SETTINGS,
        **(_THIS_MACHINE_SETTINGS if master.startswith("local") else {}),
        **_STREAM_SETTINGS,
        "spark.app.name": name,
        "spark.master": master,
        "spark.driver.memory": f"{driver_memory_bytes(_memory_bytes()) // 1024**2}m",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        **own,
        "spark.jars": ",".join(filter(None, (jars, own.get("spark.jars")))),
        JAVA_OPTIONS: " ".join(filter(None, (shlex.join(log_options), own.get(JAVA_OPTIONS)))),
    }


def driver_memory_bytes(machine_bytes: int) -> int:
    """A quarter of the machine, from 1 to 4 GiB: Arrow's memory lies outside of the heap."""
    return max(_GIB, min(4 * _GIB, machine_bytes // 4))


def _start(conf: Mapping[str, str]) -> SparkSession:
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    options = class_archive.java_options(java, find_spark()), conf[JAVA_OPTIONS]
    conf = {**conf, JAVA_OPTIONS: " ".join(filter(None, options))}
    # A worker of another interpreter would not find what this one has installed.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    log_file().parent.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    with (
        _output_to(output_file()),
        launch_files(conf),
        _scratch_of_jvm(),
        _told_as_failure(str(output_file())),
        ended_if_interrupted(),
    ):
        # First the JVM: a builder that has to launch it puts all settings on its command line.
        SparkContext._ensure_initialized()
        with interrupts_kept():
            SparkContext.getOrCreate(SparkConf().setAll(list(conf.items())))
        return builder.getOrCreate()


@contextmanager
def _scratch_of_jvm() -> Iterator[None]:
    """A JVM launched inside keeps what it unpacks, and what Spark shuffles, where we clear it away.

    One that is killed leaves 100 MB and more. Whoever names another folder for that, in any of the
    ways in which Spark and Java let them, is applied: of these options the last one counts.
    """
    if any(_TEMPORARY_FOLDER in os.environ.get(name, "") for name in _OPTIONS_BEFORE_OURS):
        yield
        return
    ours = shlex.quote(f"-D{_TEMPORARY_FOLDER}={scratch_of_this_process('spark')}")
    given = os.environ.get(SUBMIT_OPTIONS, "")
    with environment_variable(SUBMIT_OPTIONS, f"{ours} {given}".strip()):
        yield


@contextmanager
def _told_as_failure(log: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise jvm_end(error) or SessionFailed(told_by_spark(error), log) from error


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Processes started inside print to ``path``; the JVM keeps it for as long as it lives.

    Java warns of incubator modules before any logging is configured, so only its output can be
    redirected.
    """
    saved = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(target)


def _memory_bytes() -> int:
    """Memory of this machine, or of the container where that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return machine
    return min(machine, int(limit)) if limit.isdigit() else machine
