"""Downloads jars with their dependencies. It uses the Ivy in pyspark, so Maven is not needed.

Invariants:

- a folder of jars is complete, because it is written under a temporary name, renamed, and then
  never changed;
- one process downloads, and other processes that need the same jars wait for it;
- after the download, no network access is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

from lakemark.errors import InvalidConfig, Permanent, Retriable
from lakemark.extras import install_command
from streamer.toolchain.java import find_java

KAFKA_VERSION = "4.1.0"
KAFKA_COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",  # prints Kafka's log; must have the version of its slf4j-api
)

#: An environment variable with the path of an Ivy settings file, for a mirror of Maven Central.
IVY_SETTINGS_VARIABLE = "LAKEMARK_IVY_SETTINGS"

_MANIFEST = "manifest.txt"
_DOWNLOAD_TIMEOUT_S = 900
_JAR_NAME = re.compile(r"^(?P<module>.+?)-\d[^-]*(?:-.*)?\.jar$")
_IVY_ERRORS = ":::: ERRORS"
_NOT_FOUND = re.compile(r":: ([\w.-]+)#([\w.-]+);(\S+): not found")
_COORDINATE = re.compile(r"^[\w.-]+:[\w.-]+:[\w.-]+$")


class JarsUnavailable(Retriable):
    """Jars could not be downloaded. No incomplete folder is left behind."""

    def __init__(self, coordinates: Sequence[str], reason: str) -> None:
        super().__init__(
            f"could not download {', '.join(coordinates)} from Maven Central:\n{reason}\n"
            "The jars are downloaded only once. Try again with network access, set "
            f"JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=… behind a proxy, or set {IVY_SETTINGS_VARIABLE} "
            "to an Ivy settings file with your mirror."
        )
        self.coordinates = tuple(coordinates)


class JarsNotFound(Permanent):
    """The repository answered, but does not have the jars."""

    def __init__(self, coordinates: Sequence[str], missing: Sequence[str]) -> None:
        super().__init__(
            f"the repository (Maven Central, or the one in {IVY_SETTINGS_VARIABLE}) has no "
            f"{', '.join(missing)}, which {', '.join(coordinates)} needs. If this is the connector "
            "of your Spark, install a Spark whose connector is published: "
            f"{install_command('streamer')} chooses one."
        )
        self.coordinates, self.missing = tuple(coordinates), tuple(missing)


@dataclass(frozen=True, slots=True)
class SparkDistribution:
    """The Spark installation that pyspark starts.

    Attributes:
        jars_folder: the folder of Spark's jars.
        version: the version of Spark, such as ``4.0.0``.
        scala: the binary version of Spark's Scala, ``2.12`` or ``2.13``.
    """

    jars_folder: Path
    version: str
    scala: str


def cache_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the cache: $LAKEMARK_HOME, $XDG_CACHE_HOME/lakemark or ~/.cache/lakemark."""
    if environ.get("LAKEMARK_HOME"):
        return Path(environ["LAKEMARK_HOME"]).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lakemark"


def find_spark(environ: Mapping[str, str] = os.environ) -> SparkDistribution:
    """Find the Spark in $SPARK_HOME or, if this is not set, the Spark inside pyspark.

    Raises:
        InvalidConfig: the folder contains no Spark.
    """
    jars_folder = _spark_home(environ) / "jars"
    for jar in jars_folder.glob("spark-core_*.jar"):
        scala, version = jar.stem.removeprefix("spark-core_").split("-", 1)
        return SparkDistribution(jars_folder, version, scala)
    message = f"no spark-core jar in {jars_folder}; unset SPARK_HOME or install pyspark again"
    raise InvalidConfig(message)


def spark_kafka_packages(spark_version: str, scala: str) -> str:
    """Return the Maven coordinate of Spark's Kafka connector, for ``spark.jars.packages``."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark_version}"


def spark_kafka_jars(folder: Path | None = None) -> list[Path]:
    """Return local jars of the Kafka connector for the installed Spark, for ``spark.jars``.

    Jars that Spark itself contains are omitted, so about four remain.

    Raises:
        JarsUnavailable: jars are missing and cannot be downloaded.
        JarsNotFound: the repository does not have the jars.
    """
    coordinates, excluded_modules = _connector()
    return resolve(coordinates, folder or cache_home() / "jars", excluded_modules)


def downloaded_spark_kafka_jars(folder: Path | None = None) -> list[Path] | None:
    """Return the jars of ``spark_kafka_jars`` if they need not be downloaded, and else None."""
    coordinates, excluded_modules = _connector()
    ivy_file = _ivy_file(coordinates, excluded_modules)
    return _complete_jars((folder or cache_home() / "jars") / _folder_name(coordinates, ivy_file))


def _connector() -> tuple[list[str], list[str]]:
    """Return the Maven coordinate of the connector, and the artifacts that Spark contains."""
    spark = find_spark()
    return [spark_kafka_packages(spark.version, spark.scala)], _modules_of(spark)


def kafka_jars(folder: Path | None = None) -> list[Path]:
    """Return local jars of the Kafka broker and its command line tools.

    Raises:
        JarsUnavailable: jars are missing and cannot be downloaded.
        JarsNotFound: the repository does not have the jars.
    """
    return resolve(KAFKA_COORDINATES, folder or cache_home() / "jars")


def resolve(
    coordinates: Sequence[str], folder: Path, excluded_modules: Collection[str] = ()
) -> list[Path]:
    """Return local jars of Maven coordinates and of their run-time dependencies, sorted by name.

    Args:
        coordinates: each ``group:artifact:version``.
        folder: the parent folder, in which each set of coordinates has its own folder.
        excluded_modules: the names of artifacts to omit.

    Raises:
        InvalidConfig: a coordinate does not have this form.
        JarsUnavailable: jars are missing and cannot be downloaded.
        JarsNotFound: the repository does not have the jars.
    """
    ivy_file = _ivy_file(coordinates, excluded_modules)
    target = folder / _folder_name(coordinates, ivy_file)
    jars = _complete_jars(target)
    if jars is not None:
        return jars
    folder.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder / f".{target.name}.lock"):
        return _complete_jars(target) or _download(coordinates, ivy_file, target)


def _spark_home(environ: Mapping[str, str]) -> Path:
    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"])
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        message = "pyspark is not installed; install lakemark's requirements"
        raise InvalidConfig(message)
    return Path(package.origin).parent


def _modules_of(spark: SparkDistribution) -> list[str]:
    """Return the names of the artifacts that a Spark distribution contains."""
    matches = (_JAR_NAME.match(jar.name) for jar in spark.jars_folder.glob("*.jar"))
    return sorted({match["module"] for match in matches if match})


def _ivy_file(coordinates: Sequence[str], excluded_modules: Collection[str]) -> str:
    excludes = "".join(f"<exclude module={quoteattr(m)}/>" for m in sorted(excluded_modules))
    dependencies = "".join(_dependency(coordinate) for coordinate in coordinates)
    return (
        '<ivy-module version="2.0"><info organisation="lakemark" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}{excludes}</dependencies></ivy-module>\n"
    )


def _dependency(coordinate: str) -> str:
    if not _COORDINATE.match(coordinate):
        message = f"not a Maven coordinate (group:artifact:version): {coordinate!r}"
        raise InvalidConfig(message)
    group, artifact, version = map(quoteattr, coordinate.split(":"))
    return f'<dependency org={group} name={artifact} rev={version} conf="default-&gt;default"/>'


def _folder_name(coordinates: Sequence[str], ivy_file: str) -> str:
    _, artifact, version = coordinates[0].split(":")
    return f"{artifact}-{version}-{hashlib.sha256(ivy_file.encode()).hexdigest()[:8]}"


def _complete_jars(folder: Path) -> list[Path] | None:
    """Return the jars of a complete folder; None if the folder or one of its jars is missing."""
    manifest = folder / _MANIFEST
    if not manifest.is_file():
        return None
    entries = [line.rsplit(" ", 1) for line in manifest.read_text().splitlines()]
    whole = all(
        (folder / name).is_file() and (folder / name).stat().st_size == int(size_bytes)
        for name, size_bytes in entries
    )
    return [folder / name for name, _ in entries] if whole else None


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Lock a file against other processes; the system releases it if this process dies."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(coordinates: Sequence[str], ivy_file: str, target: Path) -> list[Path]:
    prefix = f".{target.name}.fetch-"
    for leftover in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, dir=target.parent) as scratch:
        prepared = Path(scratch, "jars")
        (Path(scratch) / "ivy.xml").write_text(ivy_file)
        _run_ivy(coordinates, Path(scratch), prepared)
        jars = sorted(prepared.glob("*.jar"))
        if not jars:
            raise JarsUnavailable(coordinates, "the repository returned no jar")
        manifest = "".join(f"{jar.name} {jar.stat().st_size}\n" for jar in jars)
        (prepared / _MANIFEST).write_text(manifest)
        shutil.rmtree(target, ignore_errors=True)  # remove an incomplete folder
        prepared.rename(target)
    return [target / jar.name for jar in jars]


def _run_ivy(coordinates: Sequence[str], scratch: Path, target: Path) -> None:
    ivy = next(find_spark().jars_folder.glob("ivy-*.jar"), None)
    if ivy is None:
        message = f"no Ivy jar in {find_spark().jars_folder}; install pyspark again"
        raise InvalidConfig(message)
    command: list[str | Path] = [find_java().executable, "-XX:+UseSerialGC"]
    command += ["-XX:TieredStopAtLevel=1", "-cp", ivy, "org.apache.ivy.Main"]
    settings = os.environ.get(IVY_SETTINGS_VARIABLE)
    command += ["-settings", settings] if settings else []
    command += ["-cache", scratch / "cache", "-ivy", scratch / "ivy.xml", "-confs", "default"]
    command += ["-types", "jar", "bundle", "-warn"]
    command += ["-retrieve", f"{target}/[artifact]-[revision].[ext]"]
    try:
        ivy_run = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        reason = f"no answer within {_DOWNLOAD_TIMEOUT_S} s"
        raise JarsUnavailable(coordinates, reason) from error
    if ivy_run.returncode != 0:
        raise _failure(coordinates, (ivy_run.stdout + ivy_run.stderr).strip())


def _failure(coordinates: Sequence[str], output: str) -> JarsUnavailable | JarsNotFound:
    """Return the error for the output of Ivy, which lists network problems under ERRORS."""
    _, has_errors, errors = output.partition(_IVY_ERRORS)
    missing = [":".join(found) for found in _NOT_FOUND.findall(output)]
    if missing and not has_errors:
        return JarsNotFound(coordinates, missing)
    return JarsUnavailable(coordinates, (errors if has_errors else output[-2000:]).strip())
