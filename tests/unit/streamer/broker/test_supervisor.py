"""A supervised command ends with the processes above it, in whatever way they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamer.broker.launch import supervisor_command
from streamer.broker.process import ProcessIdentity
from tests.waiting import until

#: Starts a supervised command in a thread that ends at once, prints both process ids, and waits.
_PARENT = """
import os, subprocess, sys, threading, time
from streamer.broker.launch import supervisor_command
def start():
    command = ["sh", "-c", "echo $$ > command.pid; exec sleep 600"]
    started = subprocess.Popen(supervisor_command(["attached", str(os.getpid())], command))
    print(started.pid, flush=True)
threading.Thread(target=start).start()
time.sleep(600)
"""


Family = tuple[ProcessIdentity, ProcessIdentity, ProcessIdentity]


@pytest.fixture
def family(tmp_path: Path) -> Family:
    """A parent, its supervisor and the command."""
    environ = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    supervisor = int(parent.stdout.readline())
    pid_file = tmp_path / "command.pid"
    until(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
    pids = (parent.pid, supervisor, int(pid_file.read_text()))
    identities = [ProcessIdentity.of(pid) for pid in pids]
    first, second, third = identities
    assert first and second and third
    return first, second, third


def test_the_command_outlives_the_thread_but_not_the_parent(family: Family) -> None:
    parent, supervisor, command = family
    time.sleep(0.3)
    assert command.is_running
    os.kill(parent.pid, signal.SIGKILL)
    until(lambda: not command.is_running and not supervisor.is_running)


def test_ending_the_supervisor_ends_the_command(family: Family) -> None:
    parent, supervisor, command = family
    os.kill(supervisor.pid, signal.SIGTERM)
    until(lambda: not command.is_running)
    parent.end(grace_s=5)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such signal")
def test_killing_the_supervisor_ends_the_command(family: Family) -> None:
    parent, supervisor, command = family
    os.kill(supervisor.pid, signal.SIGKILL)
    until(lambda: not command.is_running)
    parent.end(grace_s=5)


def test_a_detached_command_stays_and_answers_to_its_number(tmp_path: Path) -> None:
    command = ProcessIdentity.of(start_detached(tmp_path))
    assert command is not None
    assert command.is_running
    assert not ProcessIdentity(command.pid, "long ago").is_running
    command.end(grace_s=0.3)  # it ignores SIGTERM
    until(lambda: not command.is_running)


def start_detached(folder: Path) -> int:
    """Start a command that ignores SIGTERM, and return its process id."""
    deaf = "trap '' TERM; echo $$; while :; do sleep 1; done"
    with (folder / "log").open("wb") as log:
        reported = subprocess.run(
            supervisor_command(["detached"], ["sh", "-c", deaf]),
            stdout=subprocess.PIPE,
            stderr=log,
            timeout=120,
            check=True,
        )
    until(lambda: (folder / "log").read_bytes().endswith(b"\n"))
    assert (folder / "log").read_bytes() == reported.stdout
    return int(reported.stdout)
