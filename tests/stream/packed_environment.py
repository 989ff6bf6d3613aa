"""Packs the project and its dependencies for executors, as venv-pack does.

The archive is a virtual environment without links to the checkout: the interpreter is a link to
Python, and the packages are files. It lacks PySpark, which executors get from Spark itself.
"""

from __future__ import annotations

import io
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = "lakemark"
SITE_PACKAGES = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

_ROOT = Path(__file__).parents[2]
_LEFT_OUT = {"__pycache__", "tests", "include"}


def pack(archive: Path, version: str | None = None) -> None:
    """Write the archive.

    Args:
        archive: its path, ``*.tar.gz``; Spark does not accept a plain tar with links that lead out
            of it.
        version: the version of the project that the environment reports; None for the true one.
    """
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        _add_interpreter(tar)
        for one in _needed_by(PROJECT):
            _add_distribution(tar, one)
        _add_project(tar, version or distribution(PROJECT).version)


def pack_bare(archive: Path) -> None:
    """Write an archive of Python alone."""
    with tarfile.open(archive, "w:gz") as tar:
        _add_interpreter(tar)


def _add_interpreter(tar: tarfile.TarFile) -> None:
    """Add the link and the configuration that make a folder a virtual environment."""
    interpreter = Path(sys.executable).resolve()
    link = tarfile.TarInfo("bin/python")
    link.type, link.linkname = tarfile.SYMTYPE, str(interpreter)
    tar.addfile(link)
    _add(tar, "pyvenv.cfg", f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")


def _needed_by(project: str) -> Iterator[Distribution]:
    """Yield the transitive dependencies of a project with its extra ``streamer``, each once."""
    seen, waiting = {project, "pyspark"}, [project]
    while waiting:
        name = waiting.pop()
        extra = {"extra": "streamer" if name == project else ""}
        for needed in map(Requirement, distribution(name).requires or ()):
            is_wanted = needed.marker is None or needed.marker.evaluate(extra)
            if is_wanted and needed.name not in seen:
                seen.add(needed.name)
                waiting.append(needed.name)
                yield distribution(needed.name)


def _add_distribution(tar: tarfile.TarFile, one: Distribution) -> None:
    for file in one.files or ():
        if file.parts[0] != ".." and not _LEFT_OUT & set(file.parts):
            tar.add(str(file.locate()), f"{SITE_PACKAGES}/{file}")


def _add_project(tar: tarfile.TarFile, version: str) -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    for package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        tar.add(_ROOT / package, f"{SITE_PACKAGES}/{package}", filter=_without_caches)
    metadata = f"Metadata-Version: 2.1\nName: {PROJECT}\nVersion: {version}\n"
    _add(tar, f"{SITE_PACKAGES}/{PROJECT}-{version}.dist-info/METADATA", metadata)


def _add(tar: tarfile.TarFile, path: str, text: str) -> None:
    info = tarfile.TarInfo(path)
    info.size = len(text.encode())
    tar.addfile(info, io.BytesIO(text.encode()))


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info
