"""A broker that lives and dies with the process that started it."""

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

#: A port found free may be taken before the broker has it.
_PORT_ATTEMPTS = 3

_GROUP_GONE_S = 5.0
_LOOK_EVERY_S = 0.02


class EmbeddedBroker:
    """One Kafka node (KRaft) on this machine, from its jars; a context manager.

    Topics stay in ``data_dir``: a broker started there again has them. The same object starts
    again on the same port. When this process ends, even killed, the broker ends within a second
    or so (on Linux also when its supervisor is killed).
    """

    def __init__(self, data_dir: Path, port: int = 0, heap: str = "512m") -> None:
        """Nothing is started yet.

        Args:
            data_dir: folder of the broker's settings, log and topics; created when absent.
            port: where clients connect on 127.0.0.1; 0 takes a free one.
            heap: memory of the JVM, as ``-Xmx`` takes it.
        """
        self.data_dir = data_dir.absolute()
        self._port = port
        self._heap = heap
        self._ports: Ports | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """File with what the broker says."""
        return self.data_dir / LOG_FILE

    @property
    def bootstrap(self) -> str:
        """What clients connect to, ``host:port``; known once it was started."""
        if self._ports is None:
            message = f"the broker of {self.data_dir} was never started; call start() first"
            raise InvalidConfig(message)
        return self._ports.bootstrap

    @property
    def is_running(self) -> bool:
        """Whether the broker's process is there."""
        return self._supervisor is not None and self._supervisor.poll() is None

    def start(self) -> str:
        """Start, wait until clients are served, and return ``bootstrap``; harmless when running.

        Raises:
            BrokerFailed: it did not start; the message shows the end of its log.
            JavaNotFound: there is no fit Java.
            JarsUnavailable: Kafka's jars are not here and could not be fetched.
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
        """End it in order (SIGTERM), or by force when that takes long; harmless when stopped."""
        if self._supervisor is None:
            return
        self._supervisor.terminate()
        try:
            self._supervisor.wait(GRACE_S + 2)
        except subprocess.TimeoutExpired:
            self.kill()
        self._supervisor = None

    def kill(self) -> None:
        """End it at once, as a crash would; what it had acknowledged is there after a start."""
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
                start_new_session=True,  # a Ctrl-C is for the pipeline, which then stops this
            )
        wait_until_started(self.log, since_byte, lambda: self.is_running)


def _wait_until_group_is_gone(group: int) -> None:
    """Wait for the JVM too, which holds the port and the folder for a moment longer.

    Bounded, since in some containers nobody collects the dead.
    """
    deadline = time.monotonic() + _GROUP_GONE_S
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(_LOOK_EVERY_S)
