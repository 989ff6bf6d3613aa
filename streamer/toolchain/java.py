"""Finds the Java runtime for Spark and the embedded broker.

Spark 4 runs on Java 17 and 21, and needs the module ``jdk.incubator.vector``, which reduced
runtimes lack. Since Java 24, Hadoop's user lookup inside Spark fails, because
``Subject.getSubject`` was removed. So versions 17 to 23 are accepted. For each Java that is
refused, the reason is reported.
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

#: Folders in which package managers install Java. Each match is the home folder of a Java.
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
or set JAVA_HOME to an existing installation."""

_PROBE_TIMEOUT_S = 30


class JavaNotFound(Permanent):
    """No suitable Java was found. The message lists what was found and how to install Java."""

    def __init__(self, refused: Sequence[str]) -> None:
        seen = "".join(f"  {reason}\n" for reason in refused) or "  no Java was found\n"
        super().__init__(
            f"Java {OLDEST_VERSION} or 21 is needed. Searched JAVA_HOME, PATH and the usual "
            f"folders:\n{seen}{_HOW_TO_INSTALL}"
        )
        self.refused = tuple(refused)


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A suitable Java runtime, which was started once to check it."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The ``java`` command."""
        return self.home / "bin" / "java"


def find_java(
    environ: Mapping[str, str] = os.environ, usual_folders: Sequence[str] = USUAL_FOLDERS
) -> JavaHome:
    """Find the first suitable Java in JAVA_HOME, PATH and the usual folders.

    Spark starts the Java in JAVA_HOME, so the caller must set JAVA_HOME to the result.

    Raises:
        JavaNotFound: no Java is suitable. The error lists each Java and the reason.
    """
    refused: list[str] = []
    for executable in _candidates(environ, usual_folders):
        found = _probe(executable)
        if isinstance(found, JavaHome):
            return found
        refused.append(f"{executable}: {found}")
    raise JavaNotFound(refused)


def _candidates(environ: Mapping[str, str], usual_folders: Sequence[str]) -> Iterator[Path]:
    """Yield ``java`` commands in order of preference, each file only once."""
    seen: set[Path] = set()
    for executable in _paths(environ, usual_folders):
        if executable.is_file() and executable.resolve() not in seen:
            seen.add(executable.resolve())
            yield executable


def _paths(environ: Mapping[str, str], usual_folders: Sequence[str]) -> Iterator[Path]:
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
    """Return the Java runtime of ``executable``, or the reason why it is not suitable."""
    try:
        probe = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start ({error})"
    settings = dict(re.findall(r"^\s+(java\.\S+) = (.*)$", probe.stderr, re.MULTILINE))
    if probe.returncode != 0 or "java.home" not in settings:
        return f"does not start ({probe.stderr.strip()[-200:] or probe.returncode})"
    return _check(Path(settings["java.home"]), settings["java.specification.version"])


def _check(home: Path, specification: str) -> JavaHome | str:
    version = int(specification.removeprefix("1."))  # 1.8 is Java 8
    if version < OLDEST_VERSION:
        return f"is Java {version}; Spark 4 and Kafka 4 need {OLDEST_VERSION} or newer"
    if version > NEWEST_VERSION:
        return f"is Java {version}; Spark runs on 17 and 21, not on 24 and newer"
    java = JavaHome(home, version)
    if NEEDED_MODULE not in _modules(java):
        return f"lacks the module {NEEDED_MODULE} (a reduced runtime)"
    return java


def _modules(java: JavaHome) -> frozenset[str]:
    listing = subprocess.run(
        [java.executable, "--list-modules"],
        capture_output=True,
        text=True,
        timeout=_PROBE_TIMEOUT_S,
    )
    return frozenset(line.split("@")[0] for line in listing.stdout.split())
