"""Installs each emulator once, into the folder in which the toolchain keeps its downloads.

Invariants:

- an emulator is never visible in part: it is installed next to its path, and then renamed;
- no cache of npm or go remains: both are deleted with the temporary folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from streamer.toolchain import cache_home, one_at_a_time

_INSTALL_WITHIN_S = 900


class NotInstalled(Exception):
    """An emulator is not on this machine; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """A program that answers like a cloud's object store.

    Attributes:
        name: name of the program.
        version: the version for which the tests were written.
        installer: the program that installs it.
        program: path of the program, relative to its folder.
        install: installs it into the first folder; files in the second are deleted afterwards.
    """

    name: str
    version: str
    installer: str
    program: str
    install: Callable[[Path, Path], None]

    @property
    def folder(self) -> Path:
        """The folder of this version."""
        return cache_home() / "emulators" / f"{self.name}-{self.version}"

    def path(self) -> Path:
        """Path of the installed program.

        Raises:
            NotInstalled: it is not on this machine.
        """
        if not (self.folder / self.program).is_file():
            message = f"{self.name} {self.version} is not installed; run make emulators"
            raise NotInstalled(message)
        return self.folder / self.program


def installed(emulator: Emulator) -> Path:
    """Return the path of an emulator; install it if it is not on this machine yet.

    Raises:
        NotInstalled: it cannot be installed.
    """
    folder = emulator.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder.parent / f".{folder.name}.lock"):
        if not (folder / emulator.program).is_file():
            _install(emulator)
    return emulator.path()


def _install(emulator: Emulator) -> None:
    if shutil.which(emulator.installer) is None:
        message = (
            f"{emulator.name} cannot be installed: {emulator.installer} is not on this machine"
        )
        raise NotInstalled(message)
    folder = emulator.folder
    with TemporaryDirectory(prefix=f".{folder.name}.install-", dir=folder.parent) as scratch:
        prepared = Path(scratch, "prepared")
        prepared.mkdir()
        emulator.install(prepared, Path(scratch))
        shutil.rmtree(folder, ignore_errors=True)
        prepared.rename(folder)


def _install_azurite(folder: Path, scratch: Path) -> None:
    command = ["npm", "install", "--prefix", str(folder), "--cache", str(scratch / "cache")]
    command += [
        "--ignore-scripts",
        "--omit=optional",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    _run([*command, f"azurite@{AZURITE.version}"])


def _install_fake_gcs(folder: Path, scratch: Path) -> None:
    folders = {"GOBIN": folder, "GOPATH": scratch / "go", "GOCACHE": scratch / "cache"}
    module = f"github.com/fsouza/fake-gcs-server@v{FAKE_GCS.version}"
    # Without -modcacherw the folder could not be deleted.
    command = ["go", "install", "-modcacherw", "-ldflags=-s -w", module]
    _run(command, {**{name: str(path) for name, path in folders.items()}, "GOMODCACHE": ""})


def _run(command: list[str], environment: Mapping[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_INSTALL_WITHIN_S,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{' '.join(command)} did not end within {_INSTALL_WITHIN_S} s"
        raise NotInstalled(message) from error
    if done.returncode != 0:
        message = f"{' '.join(command)} failed: {(done.stdout + done.stderr).strip()[-1000:]}"
        raise NotInstalled(message)


#: Later versions need a later Node than distributions of today have.
AZURITE = Emulator(
    "azurite", "3.35.0", "npm", "node_modules/azurite/dist/src/blob/main.js", _install_azurite
)
#: The first version whose simple uploads look at their condition is 1.56.
FAKE_GCS = Emulator("fake-gcs-server", "1.56.1", "go", "fake-gcs-server", _install_fake_gcs)
