"""The tutorial works: its files, commands and programs run in the order of the page."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.short_lived import short_lived

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text()

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PORT = "9092"
_FIRST_TERMINAL = "first terminal"
_ANSWER_WITHIN_S = 180


@dataclass(frozen=True)
class Block:
    """One block of the page: a file, a command, a program, or the output of the block before."""

    language: str
    title: str
    text: str


def blocks() -> list[Block]:
    """Return all blocks after the installation; the tests already have an environment."""
    after = PAGE[PAGE.index("\n## Start a broker") :]
    return [Block(*found) for found in _BLOCK.findall(after)]


def free_port() -> str:
    with closing(socket.socket()) as opened:
        opened.bind(("127.0.0.1", 0))
        return str(opened.getsockname()[1])


def shows(output: str, expected: str) -> bool:
    """Whether the output has the parts of an expected line in this order; ``…`` separates them."""
    parts = [re.escape(part.strip()) for part in expected.split("…")]
    return re.search(".*".join(parts), output) is not None


class Reader:
    """Follows the page in a folder, with a free port for the broker."""

    def __init__(self, folder: Path, environment: Mapping[str, str], port: str) -> None:
        self._folder, self._environment, self._port = folder, environment, port
        self._output = ""
        self._first_terminal: subprocess.Popen[str] | None = None

    def follow(self, block: Block) -> None:
        text = block.text.replace(_PORT, self._port)
        if block.language == "text":
            self._compare(text, self._shown_in(block.title))
        elif block.title == _FIRST_TERMINAL:
            self._type_in_first_terminal(text)
        elif block.title:
            (self._folder / block.title).write_text(text)
        elif block.language == "python":
            self._output = self._run([sys.executable, "-c", text])
        else:
            assert block.language == "sh", block
            self._output = self._run(["bash", "-euo", "pipefail", "-c", text])

    def end(self) -> None:
        """Stop the pipeline in the first terminal if it still runs after a failure."""
        if self._first_terminal is not None and self._first_terminal.poll() is None:
            self._first_terminal.kill()
            self._first_terminal.wait()

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_ANSWER_WITHIN_S,
        )
        assert done.returncode == 0, f"{command[-1]}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @property
    def _log(self) -> Path:
        return self._folder / "first_terminal.log"

    def _type_in_first_terminal(self, text: str) -> None:
        if "# Ctrl-C" in text:
            assert self._first_terminal is not None
            self._first_terminal.send_signal(signal.SIGINT)
            assert self._first_terminal.wait(_ANSWER_WITHIN_S) == 0, self._log.read_text()
            return
        with self._log.open("w") as log:
            self._first_terminal = subprocess.Popen(
                ["bash", "-c", f"exec {text.strip()}"],
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def _shown_in(self, terminal: str) -> Iterator[str]:
        """Yield the output of a terminal; for the first terminal again and again, as it grows."""
        if terminal != _FIRST_TERMINAL:
            yield self._output
            return
        until = time.monotonic() + _ANSWER_WITHIN_S
        while time.monotonic() < until:
            yield self._log.read_text()
            time.sleep(0.2)

    def _compare(self, text: str, shown: Iterator[str]) -> None:
        missing, output = text.splitlines(), ""
        for output in shown:
            missing = [line for line in missing if not shows(output, line)]
            if not missing:
                return
        pytest.fail(f"the output lacks {missing}:\n{output}")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    folders = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**short_lived(), "PATH": folders, "COLUMNS": "200"}
    reader = Reader(tmp_path, environment, free_port())
    try:
        yield reader
    finally:
        reader.end()
        with suppress(subprocess.SubprocessError):
            stop = ["bash", "-c", "lakemark broker stop --home broker-home"]
            subprocess.run(stop, cwd=tmp_path, env=environment, timeout=60, check=False)


def test_the_tutorial_works_as_it_is_written(reader: Reader) -> None:
    for block in blocks():
        reader.follow(block)


def test_an_output_that_differs_is_noticed() -> None:
    assert shows("12:00 batch 0: 4 records, 2 rows\n", "… batch 0: 4 records, …")
    assert not shows("12:00 batch 0: 5 records, 2 rows\n", "… batch 0: 4 records, …")
    assert not shows("batch\nstopped\n", "batch … stopped")
