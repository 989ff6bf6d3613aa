"""Starting a broker and waiting for it: what the attached and the detached one share."""

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

#: How long a start may take; four seconds when nothing else runs, more on a busy machine.
START_DEADLINE_S = 90.0

_STARTED = b"Kafka Server started"
_PORT_TAKEN = b"Address already in use"
_LOOK_EVERY_S = 0.05
_TAIL_LINES = 30

#: To start, take two million records of 230 bytes and serve them twice costs 8 s of processor time
#: so, 15 s with both compilers, 20 s with what Java chooses (one run of each on a busy machine).
_FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

_LOGGING = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",  # says when it is ready
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)


class BrokerFailed(Permanent):
    """The broker did not start; the message ends with the last lines of its log."""

    def __init__(self, reason: str, log: Path, tail: bytes = b"") -> None:
        said = tail.decode(errors="replace").strip().splitlines()[-_TAIL_LINES:]
        super().__init__("\n".join([f"the broker {reason}; its log is {log}", *said]))
        self.log = log
        self.port_was_taken = _PORT_TAKEN in tail


def broker_command(heap: str) -> list[str]:
    """The command that runs a broker in the folder that it is started in.

    Raises:
        JavaNotFound: there is no fit Java.
        JarsUnavailable: Kafka's jars are not here and could not be fetched.
    """
    class_path = os.pathsep.join(map(str, kafka_jars()))
    java = [str(find_java().executable), f"-Xmx{heap}", *_FLAGS, *_LOGGING]
    return [*java, "-cp", class_path, "kafka.Kafka", SETTINGS_FILE]


def supervisor_command(how: list[str], command: list[str]) -> list[str]:
    """``command`` under the supervisor, isolated from the caller's Python settings."""
    return [sys.executable, "-I", "-S", supervisor.__file__, *how, *command]


def wait_until_started(log: Path, since_byte: int, is_running: Callable[[], bool]) -> None:
    """Return when the broker, whose words begin at ``since_byte`` of the log, serves clients.

    Raises:
        BrokerFailed: it ended, or was not ready within ``START_DEADLINE_S``.
    """
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        ran = is_running()  # asked before the log is read: its last words are in what is read
        said = output_since(log, since_byte)
        if _STARTED in said:
            return
        if not ran:
            reason = "ended while it was starting"
            raise BrokerFailed(reason, log, said)
        time.sleep(_LOOK_EVERY_S)
    reason = f"was not ready after {START_DEADLINE_S:.0f} s"
    raise BrokerFailed(reason, log, output_since(log, since_byte))


def output_since(log: Path, since_byte: int) -> bytes:
    """What was added to a log after its first ``since_byte`` bytes."""
    with log.open("rb") as file:
        file.seek(since_byte)
        return file.read()
