"""Keeps a user's modules from shadowing lakemark's packages.

The distribution has top-level packages with common names, such as ``transforms``. A user's module
of the same name may come first on ``sys.path``: from the working directory, from ``PYTHONPATH``, or
from a file that ``spark-submit --py-files`` ships. Even then, processes that lakemark starts import
lakemark's packages, and log a warning that names the user's module.

A user's program that only runs ``import lakemark`` is not affected. In such a program, ``import
transforms`` imports the user's module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from lakemark.errors import InvalidConfig

#: The top-level packages of the distribution.
PACKAGES = ("checkpoints", "lakemark", "sinks", "streamer", "transforms")

#: The folder that contains the packages. If the packages are in a zip file, this is a path inside
#: the zip file, from which Python can import too.
ROOT = str(Path(__file__).parents[1])


def prefer_own_packages() -> None:
    """Make Python import lakemark's packages from ``ROOT``, regardless of ``sys.path``.

    Raises:
        InvalidConfig: another module with the name of one of the packages was imported before.
    """
    if is_preferred():
        return
    for name in PACKAGES:
        imported = sys.modules.get(name)
        if imported is not None and not _is_own(imported.__spec__):
            file = getattr(imported, "__file__", "built in")
            message = f"{_describe(name, str(file))}; it was imported first. {_REMEDY}"
            raise InvalidConfig(message)
    sys.meta_path.insert(0, _OwnPackages())


def is_preferred() -> bool:
    """Return whether ``prefer_own_packages`` was called in this process."""
    return any(isinstance(finder, _OwnPackages) for finder in sys.meta_path)


def find_clashes() -> Iterator[str]:
    """Yield a warning for each module on the path that has the name of one of lakemark's packages.

    Another copy of lakemark is not a clash, because Python uses the first copy on the path.
    """
    others = [entry for entry in sys.path if not Path(entry, "lakemark", "errors.py").exists()]
    for name in PACKAGES:
        spec = PathFinder.find_spec(name, others)
        # A folder without __init__.py has no origin. Python prefers a package to such a folder.
        if spec is not None and spec.origin is not None and not _is_own(spec):
            yield f"{_describe(name, spec.origin)}; lakemark uses its own package. {_REMEDY}"


class PreferOwnPackages:
    """On unpickling, calls ``prefer_own_packages`` if the pickling process had called it, too.

    The object comes first in a task, so that it is unpickled before the task's imports.
    """

    def __reduce__(self) -> tuple[object, tuple[bool]]:
        return _restore, (is_preferred(),)


def _restore(preferred: bool) -> PreferOwnPackages:
    if preferred:
        prefer_own_packages()
    return PreferOwnPackages()


class _OwnPackages:
    """Finds lakemark's packages; it is the first finder in ``sys.meta_path``."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        return PathFinder.find_spec(name, [ROOT]) if name in PACKAGES else None


_REMEDY = "Rename your module, or remove its folder from the path"


def _describe(name: str, file: str) -> str:
    return f"{file} has the name of lakemark's package {name}"


def _is_own(spec: ModuleSpec | None) -> bool:
    origin = spec.origin if spec is not None else None
    return origin is not None and Path(origin).is_relative_to(ROOT)
