"""``python -m streamer.class_archive``: creates an archive of Spark's classes for faster starts.

When a JVM starts, it spends most of the time on reading and verifying about fifteen thousand
classes. It can map them from a file instead (class data sharing). The file is created once: Spark
runs the operations of a pipeline, and when its JVM exits, it archives the classes that it has
loaded. A JVM ignores the file if the times or sizes of Spark's jars differ from those in the file.
So each installation of Spark has its own file.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from lakemark.errors import HudiError
from streamer.submit_properties import SUBMIT_OPTIONS
from streamer.toolchain import (
    JavaHome,
    SparkDistribution,
    cache_home,
    find_java,
    find_spark,
    one_at_a_time,
)

#: The JVM logs messages about the archive to standard error, so that standard output is clean.
_LOG_OPTIONS = "-Xlog:disable -Xlog:all=warning:stderr"

_TIMEOUT_S = 300.0

#: An archive takes about 150 MB, and each new environment creates one. So only those that were used
#: most recently are kept.
_MAX_ARCHIVES = 4

_TEMPORARY_PREFIX = "making-"


def java_options(java: JavaHome, spark: SparkDistribution) -> str:
    """Return the JVM options that load the archive; "" if there is no archive."""
    archive = _path(java, spark)
    if not archive.exists():
        return ""
    with suppress(OSError):  # the file system may be read-only, as in a container image
        os.utime(archive)
    return f"{_LOG_OPTIONS} {shlex.quote(f'-XX:SharedArchiveFile={archive}')}"


def make(java: JavaHome, spark: SparkDistribution) -> Path | None:
    """Create the archive unless it exists; return its path, or None if it cannot be created."""
    archive = _path(java, spark)
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(archive.parent / ".making.lock"):
        if not archive.exists():
            _remove_unused(archive.parent)
            _make(archive)
    return archive if archive.exists() else None


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY_PREFIX, dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        _warm_up(f"{_LOG_OPTIONS} {shlex.quote(f'-XX:ArchiveClassesAtExit={made}')}")
        if not made.exists():
            return
        with made.open("rb") as file:
            os.fsync(file.fileno())  # a truncated archive crashes the JVM
        made.rename(archive)


def _remove_unused(folder: Path) -> None:
    """Delete the least recently used archives, and leftovers of interrupted attempts.

    A JVM that has mapped a deleted archive can still use it.
    """
    for leftover in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    archives = sorted(folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[_MAX_ARCHIVES - 1 :]:
        archive.unlink()


def _warm_up(options: str) -> None:
    """Run ``streamer.warm_up`` with these JVM options, and discard its output."""
    given = os.environ.get(SUBMIT_OPTIONS, "")
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            # -P keeps the working directory, which may contain a streamer.py, off the path.
            [sys.executable, "-P", "-m", "streamer.warm_up"],
            env={**os.environ, SUBMIT_OPTIONS: f"{given} {options}".strip()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
        )


def _path(java: JavaHome, spark: SparkDistribution) -> Path:
    """Return the path of the archive for this installation of Java and Spark."""
    location = _digest(f"{java.home} {spark.jars_folder}".encode())
    build = _digest(_build_id(java, spark))
    name = f"spark-{spark.version}-java-{java.version}-{location}-{build}.jsa"
    return cache_home() / "classes" / name


def _build_id(java: JavaHome, spark: SparkDistribution) -> bytes:
    """Return what identifies the build: Java's release, and names, sizes and times of Spark's jars.

    Times are in whole seconds, because the times in a container's layers have no fractions.
    """
    seen: list[bytes] = []
    for jar in sorted(spark.jars_folder.glob("*.jar")):
        with suppress(OSError):  # a dangling link
            at = jar.stat()
            seen += [os.fsencode(jar.name), f"{at.st_size} {int(at.st_mtime)}".encode()]
    with suppress(OSError):
        seen.append((java.home / "release").read_bytes())
    return b"\n".join(seen)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


def main() -> int:
    """Create the archive and print its path."""
    try:
        archive = make(find_java(), find_spark())
    except HudiError as error:
        print(error, file=sys.stderr)
        return 1
    failed = "could not be created; Spark runs without it, but starts slower"
    print(f"Archive of Spark's classes: {archive or failed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
