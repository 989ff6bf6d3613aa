"""Fetches jars with their dependencies, through the Ivy that pyspark ships; no Maven is needed.

Invariants:

- a folder of jars appears whole (prepared beside its place, then renamed) and is then only read;
- one process fetches, others that want the same jars wait for it and take what it fetched;
- once fetched, nothing here touches the network again.
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

from lakemark.errors import InvalidConfig, Retriable
from streamer.toolchain.java import find_java

KAFKA_VERSION = "4.1.0"
KAFKA_COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",  # prints what Kafka logs; the version of its slf4j-api
)

#: Names an Ivy settings file, for those who reach Maven Central only through a mirror.
IVY_SETTINGS_VARIABLE = "LAKEMARK_IVY_SETTINGS"

_MANIFEST = "manifest.txt"
_FETCH_TIMEOUT_S = 900
_JAR_NAME = re.compile(r"^(?P<module>.+?)-\d[^-]*(?:-.*)?\.jar$")
_COORDINATE = re.compile(r"^[\w.-]+:[\w.-]+:[\w.-]+$")


class JarsUnavailable(Retriable):
    """Jars could not be fetched; nothing was left half done."""

    def __init__(self, coordinates: Sequence[str], reason: str) -> None:
        super().__init__(
            f"could not fetch {', '.join(coordinates)} from Maven Central:\n{reason}\n"
            "They are fetched once and kept. Try again with network access, set "
            f"JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=… behind a proxy, or name an Ivy settings file "
            f"with your mirror in {IVY_SETTINGS_VARIABLE}."
        )
        self.coordinates = tuple(coordinates)


@dataclass(frozen=True, slots=True)
class SparkDistribution:
    """The Spark that pyspark starts.

    Attributes:
        jars_folder: where its jars lie.
        version: of Spark, such as ``4.0.0``.
        scala: binary version of Scala that it was built for, ``2.12`` or ``2.13``.
    """

    jars_folder: Path
    version: str
    scala: str


def cache_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Where downloads are kept: $LAKEMARK_HOME, $XDG_CACHE_HOME/lakemark or ~/.cache/lakemark."""
    if environ.get("LAKEMARK_HOME"):
        return Path(environ["LAKEMARK_HOME"]).expanduser()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "lakemark"


def find_spark(environ: Mapping[str, str] = os.environ) -> SparkDistribution:
    """The Spark of $SPARK_HOME, as pyspark looks for it, or else the one inside pyspark.

    Raises:
        InvalidConfig: there is no Spark in that place.
    """
    jars_folder = _spark_home(environ) / "jars"
    for jar in jars_folder.glob("spark-core_*.jar"):
        scala, version = jar.stem.removeprefix("spark-core_").split("-", 1)
        return SparkDistribution(jars_folder, version, scala)
    message = f"no spark-core jar in {jars_folder}; unset SPARK_HOME or install pyspark again"
    raise InvalidConfig(message)


def spark_kafka_packages(spark_version: str, scala: str) -> str:
    """Coordinate of Spark's Kafka connector, as ``spark.jars.packages`` wants it."""
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark_version}"


def spark_kafka_jars(folder: Path | None = None) -> list[Path]:
    """Local jars of the Kafka connector for the installed Spark, for ``spark.jars``.

    Those that Spark has itself are left out, so four or so remain.

    Raises:
        JarsUnavailable: they are not here yet and could not be fetched.
    """
    spark = find_spark()
    coordinate = spark_kafka_packages(spark.version, spark.scala)
    return resolve([coordinate], folder or cache_home() / "jars", _modules_of(spark))


def kafka_jars(folder: Path | None = None) -> list[Path]:
    """Local jars of the Kafka broker and its command line tools.

    Raises:
        JarsUnavailable: they are not here yet and could not be fetched.
    """
    return resolve(KAFKA_COORDINATES, folder or cache_home() / "jars")


def resolve(
    coordinates: Sequence[str], folder: Path, excluded_modules: Collection[str] = ()
) -> list[Path]:
    """Local jars of Maven coordinates and of all they depend on at run time, sorted by name.

    Args:
        coordinates: each ``group:artifact:version``.
        folder: where jars are kept; each set of coordinates gets a folder of its own in it.
        excluded_modules: names of artifacts that are not wanted, wherever they are asked for.

    Raises:
        InvalidConfig: a coordinate is not of that form.
        JarsUnavailable: they are not here yet and could not be fetched.
    """
    ivy_file = _ivy_file(coordinates, excluded_modules)
    place = folder / _folder_name(coordinates, ivy_file)
    jars = _kept(place)
    if jars is not None:
        return jars
    folder.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(folder / f".{place.name}.lock"):
        return _kept(place) or _fetch(coordinates, ivy_file, place)


def _spark_home(environ: Mapping[str, str]) -> Path:
    if environ.get("SPARK_HOME"):
        return Path(environ["SPARK_HOME"])
    package = importlib.util.find_spec("pyspark")
    if package is None or package.origin is None:
        message = "pyspark is not installed; install lakemark's requirements"
        raise InvalidConfig(message)
    return Path(package.origin).parent


def _modules_of(spark: SparkDistribution) -> list[str]:
    """Names of the artifacts that a Spark distribution holds."""
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


def _kept(place: Path) -> list[Path] | None:
    """The jars of a finished folder; None when there is none, or when jars were lost from it."""
    manifest = place / _MANIFEST
    if not manifest.is_file():
        return None
    entries = [line.rsplit(" ", 1) for line in manifest.read_text().splitlines()]
    whole = all(
        (place / name).is_file() and (place / name).stat().st_size == int(size_bytes)
        for name, size_bytes in entries
    )
    return [place / name for name, _ in entries] if whole else None


@contextmanager
def one_at_a_time(lock: Path) -> Iterator[None]:
    """Hold ``lock`` against other processes; the system lets go of it when this one dies."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(coordinates: Sequence[str], ivy_file: str, place: Path) -> list[Path]:
    prefix = f".{place.name}.fetch-"
    for left_by_the_dead in place.parent.glob(f"{prefix}*"):
        shutil.rmtree(left_by_the_dead, ignore_errors=True)
    with TemporaryDirectory(prefix=prefix, dir=place.parent) as scratch:
        prepared = Path(scratch, "jars")
        (Path(scratch) / "ivy.xml").write_text(ivy_file)
        _run_ivy(coordinates, Path(scratch), prepared)
        jars = sorted(prepared.glob("*.jar"))
        if not jars:
            raise JarsUnavailable(coordinates, "the repository answered with no jar at all")
        manifest = "".join(f"{jar.name} {jar.stat().st_size}\n" for jar in jars)
        (prepared / _MANIFEST).write_text(manifest)
        shutil.rmtree(place, ignore_errors=True)  # a damaged one; a whole one ended this earlier
        prepared.rename(place)
    return [place / jar.name for jar in jars]


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
        told = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        reason = f"no answer within {_FETCH_TIMEOUT_S} s"
        raise JarsUnavailable(coordinates, reason) from error
    if told.returncode != 0:
        raise JarsUnavailable(coordinates, (told.stdout + told.stderr).strip()[-2000:])
