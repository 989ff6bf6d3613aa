"""Executors must run what the driver runs, or they would write other bytes than it expects."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Generic, TypeAlias, TypeVar

from lakemark.errors import Permanent

_PACKAGES = ("lakemark", "pyarrow", "numpy", "obstore", "fastavro")

#: Names, each with what a process has of it.
Versions: TypeAlias = tuple[tuple[str, str], ...]

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class ExecutorsDiffer(Permanent):
    """An executor has another Python, or other packages, than the driver."""

    def __init__(self, host: str, differences: str) -> None:
        super().__init__(
            f"the executor on {host} differs from the driver: {differences}; "
            "ship the driver's environment with spark-submit --archives"
        )
        self.host, self.differences = host, differences


@cache
def versions() -> Versions:
    """What this process runs: Python to its minor version, and the packages that write files."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("Python", python), *((name, _version(name)) for name in _PACKAGES))


def check_same(host: str, theirs: Versions, ours: Versions) -> None:
    """Pass when an executor would write the same bytes as the driver.

    Args:
        host: of the executor.
        theirs: the executor's.
        ours: the driver's.

    Raises:
        ExecutorsDiffer: it would not.
    """
    there = dict(theirs)
    differences = [
        f"{name} is {there.get(name) or 'absent'} there and {wanted} here"
        for name, wanted in ours
        if there.get(name) != wanted
    ]
    if differences:
        raise ExecutorsDiffer(host, "; ".join(differences))


@dataclass(frozen=True)
class SameVersions(Generic[Argument, Result]):
    """A function that executors run, unless they differ from the driver.

    They come and go while a stream runs, so it is not enough to look at a start. Each of their
    processes looks once.

    Attributes:
        function: theirs to run.
        drivers: what it was made by.
    """

    function: Callable[[Argument], Result]
    drivers: Versions = field(default_factory=versions)

    def __call__(self, argument: Argument) -> Result:
        """What the function makes of it.

        Raises:
            ExecutorsDiffer: this process would write other bytes than the driver expects.
        """
        _check_here(self.drivers)
        return self.function(argument)


@cache
def _check_here(drivers: Versions) -> None:
    check_same(platform.node(), versions(), drivers)


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return ""
