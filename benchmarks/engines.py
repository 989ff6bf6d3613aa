"""The measured programs; each runs in its own process, on Spark 3.5 or on this Python."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.interop.oracle import oracle_python

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that executes a task: its module, its flags, and whether it runs on Spark 3.5."""

    module: str
    flags: tuple[str, ...] = ()
    on_spark35: bool = True

    def run(self, task_json: str, scratch: Path, *flags: str) -> None:
        """Run a task, which names the file of the answer; keep task and log in ``scratch``.

        Args:
            task_json: the text of the task file.
            scratch: the folder of the engine.
            flags: further flags of this run.

        Raises:
            RuntimeError: the program failed.
        """
        command = [*self.command(task_json, scratch), *flags]
        with (scratch / "engine.log").open("wb") as log:
            ended = subprocess.run(
                command,
                cwd=ROOT,
                stdout=log,
                stderr=log,
                check=False,
            )
        if ended.returncode != 0:
            tail = (scratch / "engine.log").read_text(errors="replace")[-4000:]
            message = f"{scratch.name} ended with {ended.returncode}:\n{tail}"
            raise RuntimeError(message)

    def command(self, task_json: str, scratch: Path) -> list[str]:
        """Write a task to ``scratch``, and return the command that executes it."""
        python = str(oracle_python()) if self.on_spark35 else sys.executable
        (scratch / "task.json").write_text(task_json)
        return [python, "-m", self.module, str(scratch / "task.json"), *self.flags]


def add_options(
    parser: argparse.ArgumentParser,
    engines: Mapping[str, object],
    groups: Mapping[str, object] | None = None,
) -> None:
    """Add the options of benchmarks that compare engines."""
    add_report_options(parser, groups)
    parser.add_argument("--engines", type=names_of(engines), default=list(engines))
    parser.add_argument("--driver-memory", default="4g")


def add_report_options(
    parser: argparse.ArgumentParser, groups: Mapping[str, object] | None = None
) -> None:
    """Add the options for groups and for the report."""
    if groups is not None:
        parser.add_argument("--only", type=names_of(groups), default=list(groups))
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--keep", type=Path, help="work in this new folder, and keep it")


@contextmanager
def work_folder(kept: Path | None) -> Iterator[Path]:
    """Create the folder of tables and logs; delete it afterwards unless it shall be kept."""
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="lakemark-benchmark-") as name:
        yield Path(name)


def machine() -> dict[str, object]:
    """Describe the machine and the settings of a run."""
    return {"cpus": os.cpu_count(), "system": platform.platform()}


def names_of(known: Mapping[str, object]) -> Callable[[str], list[str]]:
    """Return a parser of comma-separated names of the command line."""

    def parse(text: str) -> list[str]:
        names = text.split(",")
        unknown = set(names) - set(known)
        if unknown:
            message = f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}"
            raise argparse.ArgumentTypeError(message)
        return names

    return parse
