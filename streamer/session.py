"""The Spark session: the session of ``spark-submit``, or a new local session.

A local session needs only this project: it finds Java, and uses local jars of the Kafka connector
that fits the installed Spark. It writes the output of the JVM to files (``log_file``), and passes
no secret on the command line.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakemark.errors import Permanent
from lakemark.execution.limits import usable_memory_bytes, usable_threads
from lakemark.storage.scratch import scratch_of_this_process
from streamer import class_archive
from streamer.child_processes import kill_children_on_interrupt
from streamer.config import settings
from streamer.config.pipeline import PipelineConfig
from streamer.jvm_exit import jvm_failure, log_file, output_file
from streamer.spark_driver import driver_memory_bytes, is_submitted
from streamer.stopping import keep_interrupt_handler
from streamer.stream_failure import spark_message
from streamer.submit_properties import (
    JAVA_OPTIONS,
    SUBMIT_OPTIONS,
    environment_variable,
    submit_properties,
)
from streamer.toolchain import find_java, find_spark, spark_kafka_jars

_LOG4J = Path(__file__).with_name("log4j2.properties")

#: Settings that the stream relies on, in every session. The pipeline file may override them.
_STREAM_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # The sink chooses the number of tasks for each batch; adaptive plans would change this number.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.metricsEnabled": "false",
    # Otherwise an idle topic still produces a batch from time to time.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # The scratch folder is never read again, so few batches need to be kept.
    "spark.sql.streaming.minBatchesToRetain": "2",
    # Spark's other class starts a process (``chmod``) four times for each file that it writes, and
    # a batch writes two files. They took 59 ms of each batch; with this class, they take 19 ms.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Since Spark 4.0, the limit in bytes usually ends an Arrow batch; Spark 3.5 only counts rows. A
    # batch ends when it exceeds the limit. So half of the allowed 64 MiB is reserved for the last
    # record.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024**2),
}

#: Lets several pipelines share the executors, and batches and an asynchronous compaction. If
#: ``spark-submit`` runs the process, this must be set with its ``--conf``.
_FAIR_SETTINGS = {"spark.scheduler.mode": "FAIR"}

_QUIET_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.ui.enabled": "false",
}
# With these settings, Spark opens no port to other machines. It also does not look up the name of
# this machine, which can take seconds.
_THIS_MACHINE_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A larger result of a task passes through Spark's block store and a socket, even within one
    # process. This takes 8 % of the CPU time of large batches. Messages are limited to 128 MiB.
    "spark.task.maxDirectResultSize": "120m",
}


_TEMPORARY_FOLDER = "java.io.tmpdir"
_ARTIFACTS = "artifacts"
_OPTION_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")


class SessionFailed(Permanent):
    """Spark did not start."""

    def __init__(self, reason: str, log: str) -> None:
        super().__init__(f"Spark did not start: {reason}; its output is in {log}")
        self.reason, self.log = reason, log


def spark_session(config: PipelineConfig, *, is_shared: bool = False) -> SparkSession:
    """Return a session that can run the pipeline: the running session, or a new one.

    Args:
        config: the configuration of the pipeline.
        is_shared: whether several pipelines share the session, so that it schedules jobs fairly.

    Raises:
        ConfigError: a secret of ``spark.conf`` cannot be found.
        JavaNotFound: no suitable Java was found.
        JarsUnavailable: the jars of the Kafka connector are missing and cannot be downloaded.
        SessionFailed: Spark did not start.
        JvmEnded, OutOfMemory: the JVM exited while Spark started.
    """
    _hide_calls_of_jvm()
    own = settings.resolve(config.spark.conf, "spark.conf")
    if is_shared or config.compaction.mode == "async":
        own = {**_FAIR_SETTINGS, **own}
    if is_submitted() or SparkSession.getActiveSession() is not None:
        with _translate_start_failure("the driver's log"):
            spark = SparkSession.builder.appName(config.name).getOrCreate()
    else:
        spark = _start(local_settings(config.name, config.spark.master, own))
    for name, value in {**_STREAM_SETTINGS, **own}.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    return spark


def plain_session(name: str) -> SparkSession:
    """Return a session without a pipeline: the submitted or running one, or a new local one.

    Raises:
        JavaNotFound: no suitable Java was found.
        SessionFailed: Spark did not start.
    """
    _hide_calls_of_jvm()
    if is_submitted() or SparkSession.getActiveSession() is not None:
        with _translate_start_failure("the driver's log"):
            return SparkSession.builder.appName(name).getOrCreate()
    return _start(local_settings(name, None, {}))


def local_settings(name: str, master: str | None, own: Mapping[str, str]) -> dict[str, str]:
    """Return all settings of a new local session.

    Args:
        name: the name of the application.
        master: the Spark master; None to use all cores of this machine.
        own: the settings of the pipeline file, which override the other settings.
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
        "spark.driver.memory": f"{driver_memory_bytes(usable_memory_bytes()) // 1024**2}m",
        "spark.sql.shuffle.partitions": str(usable_threads()),
        **own,
        "spark.jars": ",".join(filter(None, (jars, own.get("spark.jars")))),
        JAVA_OPTIONS: " ".join(filter(None, (shlex.join(log_options), own.get(JAVA_OPTIONS)))),
    }


def _start(conf: Mapping[str, str]) -> SparkSession:
    java = find_java()
    os.environ["JAVA_HOME"] = str(java.home)
    options = class_archive.java_options(java, find_spark()), conf[JAVA_OPTIONS]
    conf = {**conf, JAVA_OPTIONS: " ".join(filter(None, options))}
    # The workers must use this interpreter, because they need its packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    _leave_working_directory_off_path()
    log_file().parent.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder
    for name, value in conf.items():
        builder = builder.config(name, value)
    with (
        _output_to(output_file()),
        submit_properties(conf),
        _folders_of_jvm(),
        _no_folder_left_by_spark(),
        _translate_start_failure(str(output_file())),
        kill_children_on_interrupt(),
    ):
        # Launch the JVM first: the builder would pass all settings on its command line.
        SparkContext._ensure_initialized()
        with keep_interrupt_handler():
            SparkContext.getOrCreate(SparkConf().setAll(list(conf.items())))
        return builder.getOrCreate()


def _hide_calls_of_jvm() -> None:
    """Keep the arguments of calls of the JVM out of the log, even if all others log at ``DEBUG``.

    They contain the settings of Kafka and of the stores, with their secrets. Unless all loggers log
    at a lower level, py4j logs only warnings: it reports each socket that Ctrl-C closes.
    """
    logger = logging.getLogger("py4j")
    logger.setLevel(max(logger.getEffectiveLevel(), logging.INFO))


def _leave_working_directory_off_path() -> None:
    """Keep the working directory off the workers' path, unless this process imports from it.

    Workers are started with ``python -m``, which puts the working directory first on the path. So a
    file such as ``json.py`` in this directory would break the workers.
    """
    if not {"", os.getcwd()} & set(sys.path):
        os.environ["PYTHONSAFEPATH"] = "1"


@contextmanager
def _folders_of_jvm() -> Iterator[None]:
    """Make the JVM use a temporary folder of this process, which is deleted later.

    Otherwise a JVM that is killed leaves 100 MB or more of unpacked and shuffled files behind. The
    user may set another folder in any of the ways that Spark and Java offer. That folder has
    priority, because the user's option comes later among the JVM's options.

    Spark 4.0 also creates a folder ``artifacts`` in its working directory, and does not start if it
    cannot (SPARK-52396). In this case the temporary folder is the working directory of the JVM,
    too, so relative paths in ``spark.conf`` and in properties of Kafka are not found.
    """
    scratch = scratch_of_this_process("spark")
    ours = []
    if not any(_TEMPORARY_FOLDER in os.environ.get(name, "") for name in _OPTION_VARIABLES):
        ours.append(f"-D{_TEMPORARY_FOLDER}={scratch}")
    if pyspark.__version__.startswith("4.0.") and not _can_write_working_directory():
        ours.append(f"-Duser.dir={scratch}")
    given = os.environ.get(SUBMIT_OPTIONS, "")
    with environment_variable(SUBMIT_OPTIONS, f"{shlex.join(ours)} {given}".strip()):
        yield


def _can_write_working_directory() -> bool:
    try:
        TemporaryDirectory(dir=os.getcwd()).cleanup()
    except OSError:
        return False
    return True


@contextmanager
def _no_folder_left_by_spark() -> Iterator[None]:
    """Make the JVM delete the folder ``artifacts`` that Spark 4.0 creates, when the JVM exits.

    Java deletes it only if it is empty, and after Spark has deleted what it created in it.
    """
    is_from_others = Path(_ARTIFACTS).exists()
    yield
    context = SparkContext._active_spark_context
    if context is not None and not is_from_others:
        context._jvm.java.io.File(_ARTIFACTS).deleteOnExit()  # type: ignore[union-attr]


@contextmanager
def _translate_start_failure(log: str) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        raise jvm_failure(error) or SessionFailed(spark_message(error), log) from error


@contextmanager
def _output_to(path: Path) -> Iterator[None]:
    """Redirect the standard error of processes that start in the block to ``path``.

    The whole output must be redirected, because Java prints a warning about incubator modules
    before logging is configured. The JVM keeps the redirection until it exits.
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
