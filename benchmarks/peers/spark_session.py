"""The session of every peer on Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def local_session(
    name: str,
    driver_memory: str,
    jars: Iterable[Path] = (),
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a session of two threads, in a JVM with this heap."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    common = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**common, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    return spark
