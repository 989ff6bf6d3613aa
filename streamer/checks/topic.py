"""Checks of the broker, the topic and the consumer group of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from streamer.checks.check import Check, Finding, NotChecked
from streamer.checks.sampled_sizes import SampledSizes
from streamer.config import settings
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.sources.errors import BrokerUnreachable
from streamer.sources.kafka_offsets import OffsetRange
from streamer.sources.librdkafka_settings import NotTranslatable
from streamer.sources.topic_client import TopicClient
from streamer.wording import counted, size_text

_DAY_MS = 86_400_000


def topic_check(source: KafkaSourceConfig) -> Check:
    """Return the check that the broker answers and has the topic, for a start."""

    def run() -> Finding:
        with topic_client(source) as client:
            client.describe()
        return Finding()

    return Check(topic_name(source), run)


def topic_name(source: KafkaSourceConfig) -> str:
    """Return the name of the check of the topic."""
    return f"topic {source.topic} at {source.bootstrap_servers}"


def reading_name(source: KafkaSourceConfig) -> str:
    """Return the name of the check that records of the topic can be read."""
    return f"reading topic {source.topic}"


@contextmanager
def topic_client(source: KafkaSourceConfig) -> Iterator[TopicClient]:
    """Yield a client with the properties of ``source.consumer``.

    Raises:
        NotChecked: librdkafka does not support a property.
        ConfigError: a secret cannot be found.
    """
    properties = settings.resolve(source.consumer, "source.consumer")
    try:
        yield TopicClient(source.bootstrap_servers, source.topic, properties)
    except NotTranslatable as reason:
        message = (
            "the client of this check (librdkafka) does not support a property of "
            f"source.consumer: {reason}"
        )
        raise NotChecked(message) from None


def read_ranges(source: KafkaSourceConfig, client: TopicClient) -> Mapping[int, OffsetRange]:
    """Return the offsets of each partition that a run can read."""
    return client.ranges(len(client.describe().partitions), source.isolation_level)


def source_checks(source: KafkaSourceConfig, sizes: SampledSizes) -> Iterator[Check]:
    """Yield the checks of the broker, the topic, the right to read, and the consumer group.

    Args:
        source: the settings of the source.
        sizes: receives the sizes of the records that are read.
    """
    broker = f"broker {source.bootstrap_servers}"
    yield Check(broker, lambda: _check_broker(source))
    yield Check(topic_name(source), lambda: _check_topic(source), (broker,))
    needs = (topic_name(source),)
    yield Check(reading_name(source), lambda: _check_reading(source, sizes), needs)
    if (group := source.commit_group) is not None:
        yield Check(f"consumer group {group}", lambda: _check_group(source, group), (broker,))


def _check_broker(source: KafkaSourceConfig) -> Finding:
    with topic_client(source) as client:
        count = client.count_brokers()
    protocol = settings.resolve(source.consumer, "source.consumer").get(
        "security.protocol", "PLAINTEXT"
    )
    return Finding(f"{counted(count, 'broker')}, security.protocol {protocol}")


def _check_topic(source: KafkaSourceConfig) -> Finding:
    with topic_client(source) as client:
        partitions = len(client.describe().partitions)
        found = client.settings()
    return Finding(f"{counted(partitions, 'partition')}, {_retention_text(found)}")


def _retention_text(found: Mapping[str, str] | None) -> str:
    if found is None:
        return "retention not known, because this client may not describe the topic's settings"
    if "delete" not in found.get("cleanup.policy", "delete"):
        return "compacted, without a time limit"
    limits = []
    if (limit_ms := int(found.get("retention.ms", -1))) >= 0:
        limits.append(f"{limit_ms / _DAY_MS:.3g} days")
    if (limit_bytes := int(found.get("retention.bytes", -1))) >= 0:
        limits.append(f"{size_text(limit_bytes)} per partition")
    return f"retention {' or '.join(limits) or 'without limit'}"


def _check_reading(source: KafkaSourceConfig, sizes: SampledSizes) -> Finding:
    with topic_client(source) as client:
        ranges = read_ranges(source, client)
        newest = client.read_newest(ranges, source.isolation_level)
    sizes.add(newest.sizes)
    held = sum(one.end - one.earliest for one in ranges.values())
    sizes.available = held
    read = counted(len(newest.sizes), "record")
    partitions = counted(newest.partitions, "partition")
    return Finding(f"{read} read from {partitions}; {counted(held, 'offset')} available")


def _check_group(source: KafkaSourceConfig, group: str) -> Finding:
    """Check the right to commit offsets.

    Raises:
        GroupRefused: this client may not commit offsets to the group.
        NotChecked: the cluster is so new that the group has no coordinator yet. The broker itself
            has already answered.
    """
    with topic_client(source) as client:
        try:
            client.check_group(group)
        except BrokerUnreachable as error:
            message = f"the coordinator of the group does not answer ({error.reason})"
            raise NotChecked(message) from None
    return Finding("offsets may be committed")
