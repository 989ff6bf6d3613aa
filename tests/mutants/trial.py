"""Runs tests in a separate process, in which one file of the project is changed."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest
from hypothesis import Phase, settings

#: With these, most of what the tests import from other projects is there. A trial is a fork of a
#: process that has it.
_WARM = (
    "hypothesis.strategies",
    "streamer.cli",
    "tests.tables",
    "tests.table_services",
    "xdist.plugin",
)

#: A trial imports these again, because one of their files is changed.
_OWN = ("checkpoints", "lakemark", "sinks", "streamer", "tests", "transforms")

#: How long a test may take, and all tests of a trial: a change may make a loop endless.
TEST_LIMIT_S, TRIAL_LIMIT_S = 120, 300


@dataclass
class Outcome:
    """The outcome of the tests of a trial.

    Attributes:
        failed: node ids of the tests that failed; only the first, if the trial ends with it.
        broken: node ids that could not be collected.
        passed: how many tests passed.
        seconds: how long the trial took.
    """

    failed: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    passed: int = 0
    seconds: float = 0.0


@dataclass
class Trial:
    """A process that runs tests, from its start to its outcome."""

    pid: int
    folder: Path
    started_s: float

    @property
    def is_late(self) -> bool:
        """Whether it has taken longer than the limit of a trial."""
        return time.monotonic() - self.started_s > TRIAL_LIMIT_S

    def kill(self) -> None:
        """Kill its process, and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def outcome(self) -> Outcome:
        """Return the outcome of its tests. Call this after the process has ended."""
        seconds = time.monotonic() - self.started_s
        told = self.folder / "outcome.json"
        if told.exists():
            return replace(Outcome(**json.loads(told.read_text())), seconds=seconds)
        if self.is_late:
            return Outcome(failed=[f"(no test ended in {TRIAL_LIMIT_S} s)"], seconds=seconds)
        return Outcome(broken=["(the process ended before its tests)"], seconds=seconds)

    def output(self) -> str:
        """Return the output of pytest."""
        return (self.folder / "output.txt").read_text()


def warm_up() -> None:
    """Import the third-party modules that every trial needs; trials inherit them by a fork."""
    conftest = importlib.import_module("tests.conftest")
    for name in (*conftest.pytest_plugins, *_WARM):
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] in _OWN]:
        del sys.modules[name]


def start(
    tests: Sequence[str],
    folder: Path,
    *,
    change: tuple[Path, str] | None,
    to_the_end: bool = False,
) -> Trial:
    """Run tests in a new process, which ends at the first failure unless ``to_the_end`` is set.

    Args:
        tests: paths and node ids.
        folder: the folder for the output of the process, which must not exist.
        change: the file that is changed, and its changed text.
        to_the_end: whether tests go on after a failure.
    """
    folder.mkdir(parents=True)
    trial = Trial(os.fork(), folder, time.monotonic())
    if trial.pid:
        return trial
    os.setsid()
    try:
        _redirect_output(folder / "output.txt")
        _run(tests, folder, change, [] if to_the_end else ["-x"])
        sys.stdout.flush()
    finally:
        os._exit(0)


def _redirect_output(path: Path) -> None:
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _run(
    tests: Sequence[str], folder: Path, change: tuple[Path, str] | None, extra: list[str]
) -> None:
    if change is not None:
        _change_import(*change)
    recorder = _Recorder()
    options = [
        "-q",
        "--no-header",
        "--disable-warnings",
        "-p",
        "no:cacheprovider",
        "-o",
        f"timeout={TEST_LIMIT_S}",
    ]
    options += [f"--basetemp={folder / 'tmp'}", *extra]
    pytest.main([*options, *tests], plugins=[recorder])
    (folder / "outcome.json").write_text(json.dumps(vars(recorder.outcome)))


def _change_import(path: Path, text: str) -> None:
    """Make the import of a file use the changed text."""
    get_code: Callable[[SourceFileLoader, str], CodeType | None] = SourceFileLoader.get_code

    def get_changed_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if Path(loader.path) == path:
            return compile(text, path, "exec")
        return get_code(loader, name)

    SourceFileLoader.get_code = get_changed_code  # type: ignore[method-assign, assignment]


class _Recorder:
    """A plugin of pytest that records the outcome, and keeps Hypothesis from shrinking failures."""

    def __init__(self) -> None:
        self.outcome = Outcome()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        settings.register_profile(
            "mutants",
            settings.get_profile("lakemark"),
            database=None,
            phases=(Phase.explicit, Phase.generate),
            report_multiple_bugs=False,
        )
        settings.load_profile("mutants")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.outcome.broken.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.outcome.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.outcome.passed += 1
