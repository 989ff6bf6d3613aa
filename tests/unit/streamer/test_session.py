from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from streamer.jvm_exit import log_file
from streamer.session import local_settings
from streamer.spark_driver import driver_memory_bytes
from streamer.submit_properties import SUBMIT_OPTIONS
from streamer.toolchain import cache_home, find_java
from tests.short_lived import short_lived
from tests.waiting import until

GIB = 1024**3
SECRET = "geheim-4711"

#: Starts a session for the pipeline on stdin, and prints what came of its settings.
START = """
import json, logging, os, signal, sys, yaml
logging.basicConfig(level=logging.DEBUG)
from streamer.config.load import validated
from streamer.session import spark_session
before = signal.getsignal(signal.SIGINT)
spark = spark_session(validated(yaml.safe_load(sys.stdin)))
jvm = spark.sparkContext._jvm
print(json.dumps({
    "store's secret": spark.sparkContext._jsc.hadoopConfiguration().get("fs.s3a.secret.key"),
    "java's secret": jvm.System.getProperty("javax.net.ssl.trustStorePassword"),
    "java option": jvm.System.getProperty("plain"),
    "heap": jvm.java.lang.Runtime.getRuntime().maxMemory(),
    "defaults": spark.conf.get("spark.from.defaults"),
    "arguments": os.environ.get("PYSPARK_SUBMIT_ARGS"),
    "scratch": jvm.System.getProperty("java.io.tmpdir"),
    "interrupts": signal.getsignal(signal.SIGINT) is before,
}))
spark.range(100).repartition(2).collect()  # Spark's own folders are there when the process ends
"""

#: Starts a session and prints where its JVM keeps temporary files.
WHERE = """
from streamer.session import plain_session
print(plain_session("where").sparkContext._jvm.System.getProperty("java.io.tmpdir"))
"""


#: Starts a session as a command does, and is interrupted by a signal while it waits for the JVM.
INTERRUPTED = """
from streamer.session import plain_session
from streamer.stopping import stop_on_signals
with stop_on_signals():
    plain_session("interrupted")
"""

#: A Java that says what it is, and never starts anything.
HANGING_JAVA = """#!/bin/sh
case "$*" in
    *-version*) "{java}" "$@" 2>&1 | sed 's|java.home = .*|java.home = {home}|' >&2; exit ;;
    *--list-modules*) exec "{java}" "$@" ;;
esac
echo $$ >> "{started}"
exec sleep 600
"""

#: Starts a session whose JVM is killed while Spark starts in it, and reports what is raised.
KILLED = """
import os, signal
from pyspark import SparkContext
from streamer import session
from streamer.jvm_exit import report_jvm_exit

def launched_and_killed():
    initialized()
    SparkContext._gateway.proc.send_signal(signal.SIGKILL)

initialized = SparkContext._ensure_initialized
SparkContext._ensure_initialized = launched_and_killed
try:
    with report_jvm_exit():
        session.plain_session("killed")
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="lists processes in /proc")
@pytest.mark.parametrize("one", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_the_jvm_is_launched_ends_process_and_jvm(
    tmp_path: Path, one: signal.Signals
) -> None:
    started = tmp_path / "started"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    real = find_java().executable
    java.write_text(HANGING_JAVA.format(java=real, home=tmp_path, started=started))
    java.chmod(0o755)
    environ = {**os.environ, "JAVA_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], env=environ) as process:
        until(lambda: started.exists() and started.read_text().endswith("\n"), "Java to be started")
        process.send_signal(one)
        assert process.wait(120) == 0
    (launched,) = map(int, started.read_text().split())
    until(lambda: not _runs(launched), "the launched process to end")


#: Prints the level of py4j, whose calls of the JVM are kept out of the log.
LEVEL = """
import logging, sys
from streamer import session
logging.getLogger().setLevel(sys.argv[1])
session._hide_calls_of_jvm()
print(logging.getLevelName(logging.getLogger("py4j").getEffectiveLevel()))
"""


@pytest.mark.parametrize(
    ("of_all", "of_py4j"), [("WARNING", "WARNING"), ("INFO", "INFO"), ("DEBUG", "INFO")]
)
def test_py4j_logs_neither_its_calls_nor_more_than_other_loggers(of_all: str, of_py4j: str) -> None:
    command = [sys.executable, "-c", LEVEL, of_all]
    assert subprocess.check_output(command, text=True) == f"{of_py4j}\n"


@pytest.mark.spark
def test_jvm_that_is_killed_while_spark_starts_is_reported_with_its_log() -> None:
    reported = subprocess.run(
        [sys.executable, "-c", KILLED], env=short_lived(), capture_output=True, text=True
    )
    assert reported.stdout.startswith("JvmEnded Spark's JVM ended with exit code -9"), reported
    assert str(log_file()) in reported.stdout


@pytest.mark.parametrize(("machine_gib", "driver_gib"), [(1, 1), (4, 1), (8, 2), (16, 4), (256, 4)])
def test_the_driver_takes_a_quarter_of_the_machine_within_limits(
    machine_gib: int, driver_gib: int
) -> None:
    assert driver_memory_bytes(machine_gib * GIB) == driver_gib * GIB


def test_settings_of_the_pipeline_win_and_options_add_up() -> None:
    own = {
        "spark.driver.memory": "9g",
        "spark.jars": "/own.jar",
        "spark.driver.extraJavaOptions": "-Dmine=1",
    }
    settings = local_settings("orders", None, own)
    assert settings["spark.master"] == "local[*]"
    assert settings["spark.driver.memory"] == "9g"
    assert settings["spark.jars"].endswith(",/own.jar")
    assert "kafka-clients" in settings["spark.jars"]
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert "log4j2.properties" in settings["spark.driver.extraJavaOptions"]


def test_driver_host_is_set_only_for_local_masters() -> None:
    assert "spark.driver.host" in local_settings("orders", "local[2]", {})
    assert "spark.driver.host" not in local_settings("orders", "spark://master:7077", {})


@pytest.mark.spark
def test_a_session_works_in_utc_with_our_python_and_says_nothing(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    numbers = spark.sparkContext.parallelize([1], 1)
    assert numbers.map(lambda _: sys.executable).collect() == [sys.executable]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    spark.sparkContext._jvm.org.apache.log4j.LogManager.getRootLogger().warn("reported to the file")  # type: ignore[union-attr]
    assert capfd.readouterr() == ("", "")
    assert "reported to the file" in log_file().read_text()


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_secret_is_on_a_command_line(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.from.defaults kept\nspark.driver.memory 3g"
    )
    strange = f" {SECRET} ü=:#!\\\U0001f600 "
    conf = {
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": (
            f"-Djavax.net.ssl.trustStorePassword=\"{SECRET} it's\" -Dplain='a b'"
        ),
        "spark.hadoop.fs.s3a.secret.key": strange,
        "spark.of.mine": {"env": "LAKEMARK_TEST_SECRET"},
    }
    pipeline = {
        "source": {"bootstrap_servers": "localhost:9092", "topic": "unused"},
        "table": {"path": "unused", "record_key": "unused"},
        "spark": {"master": "local[1]", "conf": conf},
    }
    home, temporary = tmp_path / "a home", tmp_path / "a scratch"
    home.symlink_to(cache_home())
    temporary.mkdir()
    own = {
        "PYTHONPATH": str(Path.cwd()),
        "SPARK_CONF_DIR": str(tmp_path),
        "LAKEMARK_HOME": str(home),
        "TMPDIR": str(temporary),
        "LAKEMARK_TEST_SECRET": SECRET,
        # With this collector, the maximum memory that Java reports is the whole heap.
        SUBMIT_OPTIONS: "-XX:+UseG1GC",
    }
    with _CommandLines() as lines:
        reported = subprocess.run(
            [sys.executable, "-c", START],
            input=yaml.safe_dump(pipeline),
            env={**os.environ, **own},
            capture_output=True,
            text=True,
        )
    assert reported.returncode == 0, reported.stderr
    seen = json.loads(reported.stdout)
    assert Path(seen.pop("scratch")).parent == temporary
    assert seen == {
        "store's secret": strange,
        "java's secret": f"{SECRET} it's",
        "java option": "a b",
        "heap": 700 * 1024**2,
        "defaults": "kept",
        "arguments": None,
        "interrupts": True,
    }
    assert SECRET not in reported.stderr, "every logger writes to it"
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines.seen)
    assert not [line for line in lines.seen if SECRET in line]
    until(lambda: not os.listdir(temporary), "the JVM to leave nothing")


@pytest.mark.spark
@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS"])
def test_temporary_folder_given_to_the_jvm_is_used(variable: str, tmp_path: Path) -> None:
    given = {"PYTHONPATH": os.getcwd(), variable: f"-Djava.io.tmpdir={tmp_path}"}
    (working := tmp_path / "working").mkdir()
    assert _temporary_folder_of_jvm(working, given) == str(tmp_path)
    until(lambda: not os.listdir(working), "the JVM to leave nothing")


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder where root cannot write")
def test_session_starts_in_a_folder_that_cannot_be_written() -> None:
    folder = _temporary_folder_of_jvm(Path("/sys"), {"PYTHONPATH": os.getcwd()})
    assert not folder.startswith("/sys")


def _temporary_folder_of_jvm(working: Path, own: dict[str, str]) -> str:
    """Start a session in this working directory, and return where its JVM keeps files."""
    reported = subprocess.run(
        [sys.executable, "-c", WHERE],
        cwd=working,
        env={**short_lived(), **own},
        capture_output=True,
        text=True,
    )
    assert reported.returncode == 0, reported.stderr
    return reported.stdout.strip()


def _runs(process: int) -> bool:
    """Whether a process is running. A process that has ended has no command line."""
    try:
        return bool(Path(f"/proc/{process}/cmdline").read_bytes())
    except OSError:
        return False


class _CommandLines:
    """Collects the command lines of all processes on this machine during a block."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> _CommandLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.05):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.seen.add(file.read_bytes().decode(errors="replace"))
                except OSError:  # it has ended since
                    continue
