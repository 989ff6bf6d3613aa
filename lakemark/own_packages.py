"""Keeps modules of users from shadowing the packages of lakemark.

The distribution has top-level packages with common names, such as ``transforms``. A module of the
same name may come first on the path of Python: in the working directory, in ``PYTHONPATH``, or in a
file that ``spark-submit --py-files`` ships. In the processes that lakemark starts, its own packages
are imported nevertheless, and a warning names the other module.

``import lakemark`` in a program of a user changes nothing: there, ``import transforms`` imports the
module of the user.
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

#: The folder of the packages; in a zip file it is no folder, but Python imports from it too.
ROOT = str(Path(__file__).parents[1])


def prefer_own_packages() -> None:
    """Import lakemark's packages from ``ROOT``, whatever comes first on the path.

    Raises:
        InvalidConfig: a module of the same name was imported before.
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

    Another copy of lakemark is no clash: the first on the path is used, as always.
    """
    others = [entry for entry in sys.path if not Path(entry, "lakemark", "errors.py").exists()]
    for name in PACKAGES:
        spec = PathFinder.find_spec(name, others)
        # A folder without __init__.py has no origin, and never comes before a package.
        if spec is not None and spec.origin is not None and not _is_own(spec):
            yield f"{_describe(name, spec.origin)}; lakemark uses its own. {_REMEDY}"


class PreferOwnPackages:
    """Unpickling it calls ``prefer_own_packages``, if the process that pickled it had called it.

    It comes first in a task, so that it is unpickled before other packages are imported.
    """

    def __reduce__(self) -> tuple[object, tuple[bool]]:
        return _restore, (is_preferred(),)


def _restore(preferred: bool) -> PreferOwnPackages:
    if preferred:
        prefer_own_packages()
    return PreferOwnPackages()


class _OwnPackages:
    """A finder of lakemark's packages, before all others."""

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``importlib.abc.MetaPathFinder``."""
        return PathFinder.find_spec(name, [ROOT]) if name in PACKAGES else None


_REMEDY = "Rename your module, or take its folder off the path"


def _describe(name: str, file: str) -> str:
    return f"{file} has the name of lakemark's package {name}"


def _is_own(spec: ModuleSpec | None) -> bool:
    origin = spec.origin if spec is not None else None
    return origin is not None and Path(origin).is_relative_to(ROOT)
