"""The Spark session that creates golden tables."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from streamer.toolchain import cache_home, resolve
from tests.interop.oracle_server import HUDI_COORDINATE, HUDI_SETTINGS

_ROOT = Path(__file__).resolve().parents[3]

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"

_SETTINGS = {
    **HUDI_SETTINGS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def start_session(scratch: Path) -> SparkSession:
    """Start a local session of two threads in UTC; Spark's own files are in ``scratch``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # workers unpickle functions of this package, wherever the process was started
    os.environ["PYTHONPATH"] = str(_ROOT)
    jars = resolve([HUDI_COORDINATE], cache_home() / "jars")
    builder = SparkSession.builder.master("local[2]").appName("golden")
    settings = {
        **_SETTINGS,
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "spark"),
        _JAVA_OPTIONS: f"{HUDI_SETTINGS[_JAVA_OPTIONS]} -XX:ErrorFile={scratch}/jvm.log",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
