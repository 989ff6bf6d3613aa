"""The exit of the JVM is reported, regardless of the error of the failed call."""

from __future__ import annotations

import logging
import subprocess
import sys
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from streamer import jvm_exit
from streamer.jvm_exit import JvmEnded, OutOfMemory, report_jvm_exit
from streamer.stopping import StopRequested
from streamer.stream_failure import StreamFailed, translate

_CUT_OFF = "An error occurred while calling None.None"
_NO_ANSWER = Py4JNetworkError("Answer from Java side is empty")


class Unanswered(PySparkException):
    """A Java exception whose message only the JVM has."""

    def __str__(self) -> str:
        raise _NO_ANSWER


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Replace the JVM by a process that is about to exit."""
    ending = f"import time; time.sleep(0.5); raise SystemExit({request.param})"
    process = subprocess.Popen([sys.executable, "-c", ending])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    monkeypatch.setattr(jvm_exit, "_EXIT_WITHIN_S", 120.0)  # a busy machine's Python takes longer


@pytest.mark.parametrize("exits", [52], indirect=True)
@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("empty"), Unanswered("x")],
    ids=repr,
)
@pytest.mark.usefixtures("exits")
def test_out_of_memory_is_reported_with_the_settings_to_change(error: Exception) -> None:
    reported = translate(error)
    assert type(reported) is OutOfMemory
    for setting in ("spark.driver.memory", "max.poll.records", "max_records_per_batch"):
        assert setting in str(reported)


@pytest.mark.parametrize("exits", [3], indirect=True)
@pytest.mark.usefixtures("exits")
def test_unrelated_errors_of_a_block_are_not_replaced(caplog: pytest.LogCaptureFixture) -> None:
    with (
        pytest.raises(JvmEnded, match=r"ended with exit code 3.* is in its log /"),
        report_jvm_exit(),
    ):
        bridge = logging.LogRecord("root", 40, "/lib/py4j/gateway.py", 1, "Exception", None, None)
        logging.getLogger().handle(bridge)
        raise Py4JError(_CUT_OFF)
    assert caplog.records == []


def test_interrupted_call_does_not_wait_for_the_jvm_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = SimpleNamespace(proc=SimpleNamespace(poll=lambda: None, wait=pytest.fail))
    monkeypatch.setattr(SparkContext, "_gateway", running)
    with pytest.raises(Py4JError, match=_CUT_OFF), report_jvm_exit():
        try:
            raise StopRequested
        except StopRequested:
            raise Py4JError(_CUT_OFF)  # noqa: B904


def test_while_it_lives_errors_stay_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    alive = SimpleNamespace(proc=SimpleNamespace(poll=lambda: None))
    monkeypatch.setattr(SparkContext, "_gateway", alive)
    with pytest.raises(KeyError), report_jvm_exit():
        raise KeyError
    assert type(translate(PySparkException("odd"))) is StreamFailed
    memory = translate(PySparkException("x\nCaused by: java.lang.OutOfMemoryError: Java heap\n"))
    assert type(memory) is OutOfMemory
    assert "(java.lang.OutOfMemoryError: Java heap)" in str(memory)
