"""A broker that keeps running after the command that started it: ``lakemark broker start``.

Invariant: ``broker.json`` identifies the process by its id and its start time, because the system
may give the id to another process later. The file is kept after the broker has stopped, so that the
next start uses the same ports.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from lakemark.errors import InvalidConfig
from streamer.broker.data_folder import LOG_FILE, Ports, free_ports, prepare
from streamer.broker.launch import (
    BrokerFailed,
    broker_command,
    supervisor_command,
    wait_until_started,
)
from streamer.broker.process import ProcessIdentity
from streamer.broker.supervisor import GRACE_S
from streamer.toolchain import one_at_a_time

_INFO_FILE = "broker.json"
_LOCK_FILE = "broker.lock"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A detached broker.

    Attributes:
        pid: the id of the broker's process.
        bootstrap: the address for clients, ``host:port``.
        data_dir: the folder of the broker's settings, log and topics.
        log: the file with the broker's output.
    """

    pid: int
    bootstrap: str
    data_dir: Path
    log: Path

    @property
    def port(self) -> int:
        """The port for clients."""
        return int(self.bootstrap.rpartition(":")[2])


@dataclass(frozen=True, slots=True)
class _Record:
    """The content of ``broker.json``."""

    process: ProcessIdentity
    ports: Ports


def start_detached(home: Path, port: int = 0, heap: str = "512m") -> BrokerInfo:
    """Start a broker with its data in ``home``, unless it already runs there.

    Args:
        home: the folder of the broker; created if it does not exist.
        port: the port for clients on 127.0.0.1; 0 for the previous port, or any free port.
        heap: the heap of the JVM, as for ``-Xmx``.

    Raises:
        InvalidConfig: the broker already runs on another port.
        BrokerFailed: the broker did not start; the message contains the end of its log.
        JavaNotFound: no suitable Java was found.
        JarsUnavailable: Kafka's jars are missing and cannot be downloaded.
    """
    home = home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(home / _LOCK_FILE):
        running = status(home)
        if running is None:
            return _start(home, _choose_ports(home, port), heap)
        if port not in (0, running.port):
            message = (
                f"the broker of {home} already runs on port {running.port}; stop it first to start "
                f"it on port {port}, or omit the port"
            )
            raise InvalidConfig(message)
        return running


def stop_detached(home: Path) -> BrokerInfo | None:
    """Stop the broker of ``home`` and wait until it has exited; return None if no broker runs."""
    home = home.absolute()
    running = status(home)
    if running is None:
        return None
    with one_at_a_time(home / _LOCK_FILE):
        record = _read_record(home)
        if record is not None:
            record.process.end(GRACE_S)
    return running


def status(home: Path) -> BrokerInfo | None:
    """Return the running broker of ``home``, or None."""
    home = home.absolute()
    record = _read_record(home)
    if record is None or not record.process.is_running:
        return None
    return _info(home, record)


def _info(home: Path, record: _Record) -> BrokerInfo:
    return BrokerInfo(record.process.pid, record.ports.bootstrap, home, home / LOG_FILE)


def _choose_ports(home: Path, port: int) -> Ports:
    record = _read_record(home)
    if port == 0 and record is not None:
        try:
            return free_ports(record.ports.broker, record.ports.controller)
        except OSError:
            return free_ports()
    try:
        return free_ports(port)
    except OSError as error:
        reason = f"cannot listen on port {port} ({error.strerror})"
        raise BrokerFailed(reason, home / LOG_FILE) from error


def _start(home: Path, ports: Ports, heap: str) -> BrokerInfo:
    command = broker_command(heap)
    prepare(home, ports)
    log = home / LOG_FILE
    with log.open("ab") as opened:
        since_byte = opened.tell()
        supervisor = subprocess.run(
            supervisor_command(["detached"], command),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=opened,
            check=True,
        )
    process = ProcessIdentity.of(int(supervisor.stdout))
    if process is None:
        reason = "exited at once"
        raise BrokerFailed(reason, log)
    record = _Record(process, ports)
    _write_record(home, record)
    try:
        wait_until_started(log, since_byte, lambda: process.is_running)
    except BaseException:
        process.end(GRACE_S)
        raise
    return _info(home, record)


def _read_record(home: Path) -> _Record | None:
    """Read the record of the last broker; None if the file is missing or incomplete."""
    try:
        found = json.loads((home / _INFO_FILE).read_text())
        return _Record(ProcessIdentity(**found["process"]), Ports(**found["ports"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def _write_record(home: Path, record: _Record) -> None:
    prepared = home / f".{_INFO_FILE}"
    prepared.write_text(json.dumps(asdict(record)))
    prepared.replace(home / _INFO_FILE)
