from __future__ import annotations

import sys

import pytest
from pyspark.sql import SparkSession

from streamer.session import driver_memory_bytes, local_settings, log_file

GIB = 1024**3


@pytest.mark.parametrize(("machine_gib", "driver_gib"), [(1, 1), (4, 1), (8, 2), (16, 4), (256, 4)])
def test_the_driver_takes_a_quarter_of_the_machine_within_limits(
    machine_gib: int, driver_gib: int
) -> None:
    assert driver_memory_bytes(machine_gib * GIB) == driver_gib * GIB


def test_settings_of_the_pipeline_win_and_options_add_up() -> None:
    own = {
        "spark.driver.memory": "9g",
        "spark.jars": "/own.jar",
        "spark.driver.extraJavaOptions": "-Dmine=1",
    }
    settings = local_settings("orders", None, own)
    assert settings["spark.master"] == "local[*]"
    assert settings["spark.driver.memory"] == "9g"
    assert settings["spark.jars"].endswith(",/own.jar")
    assert "kafka-clients" in settings["spark.jars"]
    assert settings["spark.driver.extraJavaOptions"].endswith(" -Dmine=1")
    assert "log4j2.properties" in settings["spark.driver.extraJavaOptions"]


def test_a_cluster_is_not_told_to_call_back_to_this_machine_by_its_loopback() -> None:
    assert "spark.driver.host" in local_settings("orders", "local[2]", {})
    assert "spark.driver.host" not in local_settings("orders", "spark://master:7077", {})


@pytest.mark.spark
def test_a_session_works_in_utc_with_our_python_and_says_nothing(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    numbers = spark.sparkContext.parallelize([1], 1)
    assert numbers.map(lambda _: sys.executable).collect() == [sys.executable]
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    spark.sparkContext._jvm.org.apache.log4j.LogManager.getRootLogger().warn("told to the file")  # type: ignore[union-attr]
    assert capfd.readouterr() == ("", "")
    assert "told to the file" in log_file().read_text()
