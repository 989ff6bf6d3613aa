"""``python -m streamer.class_archive``: an archive of Spark's classes, with which it starts sooner.

Of the seconds that a start takes the JVM spends most on reading and checking some fifteen thousand
classes. It can map them from a file instead (class data sharing). That file is made once, by a
Spark that does what a pipeline does and writes down at its end what it has loaded. A JVM that finds
it unfit would start without it: it holds the times and sizes of the jars against those in the file,
so each installation of Spark has a file of its own.
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

#: What it says of an archive goes where its other complaints go, not among a command's answers.
_COMPLAINTS = "-Xlog:disable -Xlog:all=warning:stderr"

_MADE_WITHIN_S = 300.0

#: Each has some 150 MB, and each environment that is made anew gets one: those are kept that were
#: used last.
_KEPT = 4

_MAKING = "making-"


def java_options(java: JavaHome, spark: SparkDistribution) -> str:
    """The JVM's options for its archive; none unless that was made."""
    archive = _place(java, spark)
    if not archive.exists():
        return ""
    with suppress(OSError):  # in an image, which nobody may change
        os.utime(archive)
    return f"{_COMPLAINTS} {shlex.quote(f'-XX:SharedArchiveFile={archive}')}"


def make(java: JavaHome, spark: SparkDistribution) -> Path | None:
    """Make the archive, unless it is there; where it lies, or None when none can be made."""
    archive = _place(java, spark)
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(archive.parent / ".making.lock"):
        if not archive.exists():
            _remove_unused(archive.parent)
            _make(archive)
    return archive if archive.exists() else None


def _make(archive: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=_MAKING, dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        _warm_up(f"{_COMPLAINTS} {shlex.quote(f'-XX:ArchiveClassesAtExit={made}')}")
        if not made.exists():
            return
        with made.open("rb") as file:
            os.fsync(file.fileno())  # a JVM dies of one that is cut short
        made.rename(archive)


def _remove_unused(folder: Path) -> None:
    """Leave room for one archive more: those used last stay, and nothing half made.

    A JVM that has a removed one mapped keeps what it needs of it.
    """
    for left_by_the_dead in folder.glob(f"{_MAKING}*"):
        shutil.rmtree(left_by_the_dead, ignore_errors=True)
    archives = sorted(folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[_KEPT - 1 :]:
        archive.unlink()


def _warm_up(options: str) -> None:
    """A Spark of its own, whose JVM is given the options; what it prints tells users nothing."""
    given = os.environ.get(SUBMIT_OPTIONS, "")
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [sys.executable, "-m", "streamer.warm_up"],
            env={**os.environ, SUBMIT_OPTIONS: f"{given} {options}".strip()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_MADE_WITHIN_S,
        )


def _place(java: JavaHome, spark: SparkDistribution) -> Path:
    """Where the archive of this Java and this Spark lies, as they are installed now."""
    place = _digest(f"{java.home} {spark.jars_folder}".encode())
    name = f"spark-{spark.version}-java-{java.version}-{place}-{_digest(_built(java, spark))}.jsa"
    return cache_home() / "classes" / name


def _built(java: JavaHome, spark: SparkDistribution) -> bytes:
    """Which build of Java it is, where it says so, and what a JVM looks at in the jars.

    The times in seconds: those of a container's layers have no fractions.
    """
    seen: list[bytes] = []
    for jar in sorted(spark.jars_folder.glob("*.jar")):
        with suppress(OSError):  # a link to nowhere
            at = jar.stat()
            seen += [os.fsencode(jar.name), f"{at.st_size} {int(at.st_mtime)}".encode()]
    with suppress(OSError):
        seen.append((java.home / "release").read_bytes())
    return b"\n".join(seen)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:8]


def main() -> int:
    """Make the archive and print where it lies; without one everything works, only slower."""
    try:
        archive = make(find_java(), find_spark())
    except HudiError as error:
        print(error, file=sys.stderr)
        return 1
    none = "none could be made; Spark starts without, and takes longer"
    print(f"Archive of Spark's classes: {archive or none}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
