"""Starts an attached or detached broker, and waits until it is ready."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lakemark.errors import Permanent
from streamer.broker import supervisor
from streamer.broker.data_folder import SETTINGS_FILE
from streamer.toolchain import find_java, kafka_jars

#: The longest time that a start may take. It usually takes about 4 s, more on a busy machine.
START_DEADLINE_S = 90.0

_STARTED = b"Kafka Server started"
_PORT_TAKEN = b"Address already in use"
_POLL_S = 0.05
_TAIL_LINES = 30

#: Flags that save processor time. A start plus two million records of 230 bytes, written once and
#: read twice, takes 8 s with these flags, 15 s with both compilers, and 20 s with Java's defaults
#: (one run of each on a busy machine).
_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",  # logs when it is ready
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)


class BrokerFailed(Permanent):
    """The broker did not start; the message contains the last lines of its log."""

    def __init__(self, reason: str, log: Path, tail: bytes = b"") -> None:
        lines = tail.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        super().__init__("\n".join([f"the broker {reason}; its log is {log}", *lines]))
        self.log = log
        self.port_was_taken = _PORT_TAKEN in tail


def broker_command(heap: str) -> list[str]:
    """Return the command that runs a broker in its working directory.

    Raises:
        JavaNotFound: no suitable Java was found.
        JarsUnavailable: Kafka's jars are missing and cannot be downloaded.
    """
    class_path = os.pathsep.join(map(str, kafka_jars()))
    java = [str(find_java().executable), f"-Xmx{heap}", *_FLAGS, *_LOGGING]
    return [*java, "-cp", class_path, "kafka.Kafka", SETTINGS_FILE]


def supervisor_command(how: list[str], command: list[str]) -> list[str]:
    """Return the command that runs ``command`` under the supervisor.

    The supervisor's Python ignores the environment variables and packages of the caller's Python.

    Args:
        how: the supervisor's mode: ``attached`` and the parent's process id, or ``detached``.
        command: the command and its arguments.
    """
    return [sys.executable, "-I", "-S", supervisor.__file__, *how, *command]


def wait_until_started(log: Path, since_byte: int, is_running: Callable[[], bool]) -> None:
    """Wait until the broker, whose output begins at ``since_byte`` of the log, is ready.

    Raises:
        BrokerFailed: the broker exited, or was not ready within ``START_DEADLINE_S``.
    """
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        ran = is_running()  # checked before the log is read, so that no last output is missed
        output = output_since(log, since_byte)
        if _STARTED in output:
            return
        if not ran:
            reason = "exited during its start"
            raise BrokerFailed(reason, log, output)
        time.sleep(_POLL_S)
    reason = f"was not ready after {START_DEADLINE_S:.0f} s"
    raise BrokerFailed(reason, log, output_since(log, since_byte))


def output_since(log: Path, since_byte: int) -> bytes:
    """Return the bytes of a log after the first ``since_byte``."""
    with log.open("rb") as file:
        file.seek(since_byte)
        return file.read()
