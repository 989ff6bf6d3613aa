"""The wheel and the sdist, and clean environments in which they are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.short_lived import short_lived

ROOT = Path(__file__).parents[2]

#: Variables that would lead a clean environment to this one.
_LEFT_OUT = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "SPARK_HOME")


@dataclass(frozen=True)
class Packages:
    """What a release would publish."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment of its own."""

    folder: Path

    def run(
        self, command: str, *arguments: object, cwd: Path, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the environment, as a user does in a folder."""
        return subprocess.run(
            [self.folder / "bin" / command, *map(str, arguments)],
            cwd=cwd,
            env=_clean(short_lived()),
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )


def build_packages(folder: Path) -> Packages:
    """Build the sdist, and the wheel from it."""
    _uv("build", "-q", "--out-dir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Packages(wheel, sdist)


def install(requirement: str, folder: Path, python: str = sys.executable) -> Environment:
    """Install a requirement into a new environment.

    The versions are those of the lock of the image, except for Spark: of that, the newest that the
    requirement accepts.
    """
    constraints = folder.with_suffix(".constraints")
    constraints.write_text("\n".join(_locked_versions()))
    _uv("venv", "-q", "--python", python, folder)
    _uv("pip", "install", "-q", "--python", folder, "-c", constraints, requirement)
    return Environment(folder)


def interpreters() -> dict[str, str]:
    """The supported interpreters of this machine, by version: this one, and those of pyenv."""
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for version in ("3.11", "3.12", "3.13"):
        for python in Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"):
            found.setdefault(version, str(python))
    return found


def _locked_versions() -> list[str]:
    lock = (ROOT / "requirements" / "image.lock").read_text()
    return [one for one in re.findall(r"^[\w.-]+==[\w.]+", lock, re.M) if "pyspark" not in one]


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in _LEFT_OUT}


def _uv(*arguments: object) -> None:
    """``make venv`` installs uv unless the machine has it."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    command = [uv, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=_clean(os.environ))
    assert done.returncode == 0, done.stderr[-5000:]
