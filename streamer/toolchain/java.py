"""Finds the Java runtime that Spark and the embedded broker run on.

Spark 4 runs on Java 17 and 21 and asks for the module ``jdk.incubator.vector``, which cut-down
runtimes lack; from Java 24 on, Hadoop's user lookup inside Spark fails
(``Subject.getSubject`` is gone). So 17 to 23 are taken, and each refusal says why.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lakemark.errors import Permanent

OLDEST_VERSION = 17
NEWEST_VERSION = 23
NEEDED_MODULE = "jdk.incubator.vector"

#: Where package managers put Java; the last part of a match is a Java home.
USUAL_FOLDERS = (
    "/usr/lib/jvm/*",
    "/usr/java/*",
    "/opt/java/*",
    "~/.sdkman/candidates/java/*",
    "~/.jdks/*",
    "/opt/homebrew/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "/usr/local/opt/openjdk@*/libexec/openjdk.jdk/Contents/Home",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home",
)

_HOW_TO_INSTALL = """\
Install Java 17 or 21, for example:
  Debian, Ubuntu   sudo apt-get install openjdk-17-jre-headless
  Fedora, RHEL     sudo dnf install java-17-openjdk-headless
  macOS            brew install openjdk@17
  anywhere         curl -s https://get.sdkman.io | bash, then: sdk install java 17-tem
or point JAVA_HOME at one."""

_PROBE_TIMEOUT_S = 30


class JavaNotFound(Permanent):
    """No Java here that Spark can run on; the message says what was seen and how to get one."""

    def __init__(self, refused: Sequence[str]) -> None:
        seen = "".join(f"  {reason}\n" for reason in refused) or "  none was found\n"
        super().__init__(
            f"Java {OLDEST_VERSION} or 21 is needed. Looked at JAVA_HOME, PATH and the usual "
            f"folders:\n{seen}{_HOW_TO_INSTALL}"
        )
        self.refused = tuple(refused)


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java runtime that was started once and found fit."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The ``java`` command."""
        return self.home / "bin" / "java"


def find_java(
    environ: Mapping[str, str] = os.environ, usual_folders: Sequence[str] = USUAL_FOLDERS
) -> JavaHome:
    """The first fit Java of JAVA_HOME, PATH and the usual folders.

    Spark starts whatever JAVA_HOME names, so whoever starts Spark sets JAVA_HOME to the answer.

    Raises:
        JavaNotFound: none is fit; lists each one seen with the reason against it.
    """
    refused: list[str] = []
    for executable in _candidates(environ, usual_folders):
        found = _probe(executable)
        if isinstance(found, JavaHome):
            return found
        refused.append(f"{executable}: {found}")
    raise JavaNotFound(refused)


def _candidates(environ: Mapping[str, str], usual_folders: Sequence[str]) -> Iterator[Path]:
    """``java`` commands in the order of preference, each file once."""
    seen: set[Path] = set()
    for executable in _places(environ, usual_folders):
        if executable.is_file() and executable.resolve() not in seen:
            seen.add(executable.resolve())
            yield executable


def _places(environ: Mapping[str, str], usual_folders: Sequence[str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        yield Path(on_path)
    for pattern in usual_folders:
        folder = Path(pattern).expanduser()
        root = Path(folder.anchor)
        for home in sorted(root.glob(str(folder.relative_to(root)))):
            yield home / "bin" / "java"


def _probe(executable: Path) -> JavaHome | str:
    """The runtime behind ``executable``, or why it is not fit."""
    try:
        told = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start ({error})"
    settings = dict(re.findall(r"^\s+(java\.\S+) = (.*)$", told.stderr, re.MULTILINE))
    if told.returncode != 0 or "java.home" not in settings:
        return f"does not start ({told.stderr.strip()[-200:] or told.returncode})"
    return _judge(Path(settings["java.home"]), settings["java.specification.version"])


def _judge(home: Path, specification: str) -> JavaHome | str:
    version = int(specification.removeprefix("1."))  # 1.8 is Java 8
    if version < OLDEST_VERSION:
        return f"is Java {version}; Spark 4 and Kafka 4 need {OLDEST_VERSION} or newer"
    if version > NEWEST_VERSION:
        return f"is Java {version}; Spark runs on 17 and 21, not on 24 and newer"
    java = JavaHome(home, version)
    if NEEDED_MODULE not in _modules(java):
        return f"lacks the module {NEEDED_MODULE} (a cut-down runtime)"
    return java


def _modules(java: JavaHome) -> frozenset[str]:
    told = subprocess.run(
        [java.executable, "--list-modules"],
        capture_output=True,
        text=True,
        timeout=_PROBE_TIMEOUT_S,
    )
    return frozenset(line.split("@")[0] for line in told.stdout.split())
