"""The Spark session that creates golden tables."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from streamer.toolchain import cache_home, resolve
from tests.golden.make.release import Release

_ROOT = Path(__file__).resolve().parents[3]

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def start_session(scratch: Path, release: Release, jars: Path | None = None) -> SparkSession:
    """Start a local session of two threads in UTC; Spark's own files are in ``scratch``.

    The release's jars are those in the folder ``jars``, or else those of its coordinates.
    """
    if not pyspark.__version__.startswith(f"{release.spark}."):
        message = f"Apache Hudi {release.number} needs pyspark {release.spark}"
        raise SystemExit(message)
    if release.spark in ("3.1", "3.2"):
        _replace_cloudpickle()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # workers unpickle functions of this package, wherever the process was started
    os.environ["PYTHONPATH"] = str(_ROOT)
    found = jars.glob("*.jar") if jars else resolve(release.coordinates, cache_home() / "jars")
    builder = SparkSession.builder.master("local[2]").appName("golden")
    settings = {
        **_SETTINGS,
        **release.settings,
        "spark.jars": ",".join(map(str, found)),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "spark"),
        _JAVA_OPTIONS: f"{release.settings[_JAVA_OPTIONS]} -XX:ErrorFile={scratch}/jvm.log",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if release.number == "0.10.0":
        _initialise_hbase(spark)
    return spark


def _initialise_hbase(spark: SparkSession) -> None:
    """Load a class of HBase 1 that writes metadata tables and knows Java only up to 9."""
    java: Any = spark._jvm
    system, key = java.java.lang.System, "java.version"
    version = system.setProperty(key, "1.8.0")
    assert java.org.apache.hadoop.hbase.util.ClassSize.ARRAY > 0
    system.setProperty(key, version)


def _replace_cloudpickle() -> None:
    """Replace the copy of cloudpickle in older pyspark, which fails in Python 3.11."""
    serializers = importlib.import_module("pyspark.serializers")
    vars(serializers)["cloudpickle"] = importlib.import_module("cloudpickle")
