"""A broker that runs only as long as the process that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType

from lakemark.errors import InvalidConfig
from streamer.broker.data_folder import LOG_FILE, Ports, free_ports, prepare
from streamer.broker.launch import (
    BrokerFailed,
    broker_command,
    supervisor_command,
    wait_until_started,
)
from streamer.broker.supervisor import GRACE_S

#: Attempts to start on free ports, because another process may take a port before the broker does.
_PORT_ATTEMPTS = 3

_GROUP_GONE_S = 5.0
_POLL_S = 0.02


class EmbeddedBroker:
    """A Kafka broker with one node (KRaft) on this machine; a context manager.

    The topics are kept in ``data_dir`` for the next start. The same object always starts on the
    same port. If this process exits or is killed, the broker exits within about a second. On Linux,
    the broker also exits if its supervisor is killed.
    """

    def __init__(self, data_dir: Path, port: int = 0, heap: str = "512m") -> None:
        """Create the broker without starting it.

        Args:
            data_dir: the folder of the broker's settings, log and topics; created if it does not
                exist.
            port: the port for clients on 127.0.0.1; 0 for any free port.
            heap: the heap of the JVM, as for ``-Xmx``.
        """
        self.data_dir = data_dir.absolute()
        self._port = port
        self._heap = heap
        self._ports: Ports | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """The file with the output of the broker."""
        return self.data_dir / LOG_FILE

    @property
    def bootstrap(self) -> str:
        """The address for clients, ``host:port``; only known after the first start."""
        if self._ports is None:
            message = f"the broker of {self.data_dir} was never started; call start() first"
            raise InvalidConfig(message)
        return self._ports.bootstrap

    @property
    def is_running(self) -> bool:
        """Whether the broker's process is running."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def start(self) -> str:
        """Start the broker unless it runs, wait until it is ready, and return ``bootstrap``.

        Raises:
            BrokerFailed: the broker did not start; the message contains the end of its log.
            JavaNotFound: no suitable Java was found.
            JarsUnavailable: Kafka's jars are missing and cannot be downloaded.
        """
        if self.is_running:
            return self.bootstrap
        command = broker_command(self._heap)
        for attempts_left in reversed(range(_PORT_ATTEMPTS)):
            ports = self._ports or self._free_ports()
            try:
                self._start_on(ports, command)
            except BrokerFailed as failed:
                self.kill()
                if self._port or self._ports or not failed.port_was_taken or not attempts_left:
                    raise
            else:
                self._ports = ports
                break
        return self.bootstrap

    def stop(self) -> None:
        """Stop the broker with SIGTERM, or kill it if that takes too long."""
        if self._supervisor is None:
            return
        self._supervisor.terminate()
        try:
            self._supervisor.wait(GRACE_S + 2)
        except subprocess.TimeoutExpired:
            self.kill()
        self._supervisor = None

    def kill(self) -> None:
        """Kill the broker, as a crash would; the next start finds all acknowledged records."""
        if self._supervisor is None:
            return
        if self._supervisor.poll() is None:
            os.killpg(self._supervisor.pid, signal.SIGKILL)
        self._supervisor.wait()
        _wait_until_group_is_gone(self._supervisor.pid)
        self._supervisor = None

    def __enter__(self) -> EmbeddedBroker:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _free_ports(self) -> Ports:
        try:
            return free_ports(self._port)
        except OSError as error:
            reason = f"cannot listen on port {self._port} ({error.strerror})"
            raise BrokerFailed(reason, self.log) from error

    def _start_on(self, ports: Ports, command: list[str]) -> None:
        prepare(self.data_dir, ports)
        with self.log.open("ab") as log:
            since_byte = log.tell()
            self._supervisor = subprocess.Popen(
                supervisor_command(["attached", str(os.getpid())], command),
                cwd=self.data_dir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that Ctrl-C reaches only the pipeline
            )
        wait_until_started(self.log, since_byte, lambda: self.is_running)


def _wait_until_group_is_gone(group: int) -> None:
    """Wait until the JVM has exited after its supervisor, and has released port and folder.

    The time is limited, because some containers do not reap processes.
    """
    deadline = time.monotonic() + _GROUP_GONE_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(_POLL_S)
