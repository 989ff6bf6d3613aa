"""The Spark session that creates golden tables."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

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


def start_session(scratch: Path, release: Release) -> SparkSession:
    """Start a local session of two threads in UTC; Spark's own files are in ``scratch``."""
    if not pyspark.__version__.startswith(f"{release.spark}."):
        message = f"Apache Hudi {release.number} needs pyspark {release.spark}"
        raise SystemExit(message)
    if release.spark == "3.1":
        _replace_cloudpickle()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # workers unpickle functions of this package, wherever the process was started
    os.environ["PYTHONPATH"] = str(_ROOT)
    jars = resolve(release.coordinates, cache_home() / "jars")
    builder = SparkSession.builder.master("local[2]").appName("golden")
    settings = {
        **_SETTINGS,
        **release.settings,
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "spark"),
        _JAVA_OPTIONS: f"{release.settings[_JAVA_OPTIONS]} -XX:ErrorFile={scratch}/jvm.log",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _replace_cloudpickle() -> None:
    """Replace the copy of cloudpickle in pyspark 3.1, which fails in Python 3.11."""
    serializers = importlib.import_module("pyspark.serializers")
    vars(serializers)["cloudpickle"] = importlib.import_module("cloudpickle")
