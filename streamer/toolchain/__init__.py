"""Finds the Java runtime, and the jars of Spark's Kafka connector and of Kafka's broker."""

from __future__ import annotations

from streamer.toolchain.jars import (
    JarsNotFound,
    JarsUnavailable,
    SparkDistribution,
    cache_home,
    downloaded_spark_kafka_jars,
    find_spark,
    kafka_jars,
    one_at_a_time,
    resolve,
    spark_kafka_jars,
    spark_kafka_packages,
)
from streamer.toolchain.java import JavaHome, JavaNotFound, find_java

__all__ = [
    "JarsNotFound",
    "JarsUnavailable",
    "JavaHome",
    "JavaNotFound",
    "SparkDistribution",
    "cache_home",
    "downloaded_spark_kafka_jars",
    "find_java",
    "find_spark",
    "kafka_jars",
    "one_at_a_time",
    "resolve",
    "spark_kafka_jars",
    "spark_kafka_packages",
]
