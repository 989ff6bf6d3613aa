"""The releases of Apache Hudi that write golden tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.interop.oracle_server import HUDI_COORDINATE, HUDI_SETTINGS, JAVA_SETTINGS

_KRYO = {"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}

#: Packages of Java 17 that Spark before 3.3 and Hudi before 0.12 use although they are internal.
_OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.math",
    "java.net",
    "java.nio",
    "java.text",
    "java.time",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "jdk.internal.ref",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar",
)


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Apache Hudi.

    Attributes:
        number: the release.
        coordinates: its jars, as Maven coordinates; if there are none, the caller has the jars.
        spark: the version of pyspark with which it runs, as ``major.minor``.
        settings: the settings of a Spark session that uses it.
    """

    number: str
    coordinates: tuple[str, ...]
    spark: str
    settings: Mapping[str, str] = field(default_factory=dict)


CURRENT = Release("1.2.0", (HUDI_COORDINATE,), "3.5", HUDI_SETTINGS)


def _older(number: str, spark: str, *coordinates: str) -> Release:
    opened = (f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED)
    quick_start = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    options = {"spark.driver.extraJavaOptions": " ".join([*JAVA_SETTINGS, *quick_start, *opened])}
    return Release(number, coordinates, spark, _KRYO | options)


_AVRO_OF_SPARK_3_1 = "org.apache.spark:spark-avro_2.12:3.1.3"

#: The releases of table versions 2, 3, 4 and 5. The bundle of 0.11 does not resolve; its parts do.
OLDER = (
    _older("0.9.0", "3.1", "org.apache.hudi:hudi-spark3-bundle_2.12:0.9.0", _AVRO_OF_SPARK_3_1),
    _older("0.10.0", "3.1", "org.apache.hudi:hudi-spark3-bundle_2.12:0.10.0", _AVRO_OF_SPARK_3_1),
    _older("0.11.1", "3.1"),
    _older("0.13.1", "3.2", "org.apache.hudi:hudi-spark3.2-bundle_2.12:0.13.1"),
)

RELEASES = {release.number: release for release in (CURRENT, *OLDER)}
