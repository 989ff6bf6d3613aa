"""Single questions to a broker, by the Kafka client of a running session."""

from __future__ import annotations

from contextlib import closing

from pyspark.sql import SparkSession

from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources.consumer_properties import read_consumer
from streamer.sources.kafka_admin import KafkaAdmin
from streamer.sources.kafka_offsets import OffsetRange


def list_topics(spark: SparkSession, source: KafkaSourceConfig) -> list[str]:
    """Return the names of all topics that the client of this source may see.

    Raises:
        SourceError: the broker does not answer, or refuses the client.
    """
    with closing(_open(spark, source, "")) as admin:
        return admin.topic_names()


def topic_ranges(spark: SparkSession, source: KafkaSourceConfig) -> dict[int, OffsetRange]:
    """Return the range of offsets of each partition of the topic of this source.

    Raises:
        SourceError: the topic cannot be read; see the subclasses.
    """
    with closing(_open(spark, source, source.topic)) as admin:
        return admin.ranges()


def _open(spark: SparkSession, source: KafkaSourceConfig, topic: str) -> KafkaAdmin:
    return KafkaAdmin(spark, read_consumer(source), topic)
