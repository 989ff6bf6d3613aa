"""Checks that executors have the same versions as the driver, so that they write equal files."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Generic, TypeAlias, TypeVar

from lakemark.errors import Permanent
from lakemark.own_packages import PreferOwnPackages

_PACKAGES = ("lakemark", "pyarrow", "numpy", "obstore", "fastavro")

#: Pairs of package name and version, for the packages in a process.
Versions: TypeAlias = tuple[tuple[str, str], ...]

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class ExecutorsDiffer(Permanent):
    """An executor has another version of Python or of a package than the driver."""

    def __init__(self, host: str, differences: str) -> None:
        super().__init__(
            f"the executor on {host} differs from the driver: {differences}; "
            "ship the driver's environment with spark-submit --archives"
        )
        self.host, self.differences = host, differences


@cache
def versions() -> Versions:
    """Return the versions of Python (major and minor) and of the packages that write files."""
    python = ".".join(platform.python_version_tuple()[:2])
    return (("Python", python), *((name, _version(name)) for name in _PACKAGES))


def report_versions(_: Iterable[object]) -> Iterator[tuple[str, Versions]]:
    """Yield the host and the versions of the process that runs this task."""
    yield platform.node(), versions()


def check_same(host: str, theirs: Versions, ours: Versions) -> None:
    """Check that an executor would write the same bytes as the driver.

    Args:
        host: host name of the executor.
        theirs: the executor's versions.
        ours: the driver's versions.

    Raises:
        ExecutorsDiffer: the versions differ.
    """
    there = dict(theirs)
    differences = [
        f"{name} is {there.get(name) or 'absent'} on the executor and {wanted} on the driver"
        for name, wanted in ours
        if there.get(name) != wanted
    ]
    if differences:
        raise ExecutorsDiffer(host, "; ".join(differences))


@dataclass(frozen=True)
class VersionCheckedTask(Generic[Argument, Result]):
    """A function that an executor runs only if its versions equal the driver's.

    Executors start and stop while a stream runs, so a check at the start is not enough. Instead,
    each process of an executor checks its versions once. If the driver prefers lakemark's packages
    (``own_packages``), the executor prefers them too.

    Attributes:
        function: the function to run.
        drivers: the driver's versions.
    """

    function: Callable[[Argument], Result]
    drivers: Versions = field(default_factory=versions)

    def __call__(self, argument: Argument) -> Result:
        """Call the function.

        Raises:
            ExecutorsDiffer: the versions of this process differ from the driver's.
        """
        _check_here(self.drivers)
        return self.function(argument)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        # PreferOwnPackages must come first: unpickling the function imports its package, and a
        # user's module may have the same name.
        return _restore_task, (PreferOwnPackages(), self.function, self.drivers)


def _restore_task(
    _: PreferOwnPackages, function: Callable[[Argument], Result], drivers: Versions
) -> VersionCheckedTask[Argument, Result]:
    return VersionCheckedTask(function, drivers)


@cache
def _check_here(drivers: Versions) -> None:
    check_same(platform.node(), versions(), drivers)


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return ""
