"""A pipeline from Kafka announces its commits to every kind of hook."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pyspark.sql import SparkSession

from streamer import pipeline
from streamer.config.load import validated
from streamer.demo import produce
from streamer.events import BatchWritten, Event, HookDropped, HookFailed
from tests.fixtures.kafka import Kafka
from tests.fixtures.webhook import run_webhook
from tests.stream.orders_pipeline import pipeline_tree

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def read(kafka: Kafka, topic: str, count: int) -> list[dict[str, Any]]:
    """Read a number of messages from the only partition of a topic."""
    settings: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap, "group.id": topic}
    found: list[dict[str, Any]] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while len(found) < count:
            message = consumer.poll(120)
            assert message is not None, "the broker does not answer"
            assert message.error() is None, message.error()
            found.append(json.loads(message.value() or b""))
    return found


def test_every_kind_of_hook_announces_every_commit(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic, feed = kafka.create_topic(partitions=2), kafka.create_topic()
    with run_webhook() as jobs, run_webhook() as lineage, run_webhook() as traces:
        hooks = [
            {"kind": "http", "options": {"url": jobs.url}},
            {"kind": "kafka", "options": {"bootstrap_servers": kafka.bootstrap, "topic": feed}},
            {"kind": "openlineage", "options": {"url": lineage.url}},
            {"kind": "opentelemetry", "options": {"url": traces.url}},
        ]
        tree = pipeline_tree(kafka.bootstrap, topic, str(tmp_path / "orders"))
        config = validated({**tree, "hooks": hooks})
        produce(kafka.bootstrap, topic, 6_000, keys=500)  # two batches
        events: list[Event] = []
        with pipeline.build(config, events.append) as built:
            built.loop.run()
        commits = [one for one in events if isinstance(one, BatchWritten)]
        assert len(commits) == 2
        assert not [one for one in events if isinstance(one, HookFailed | HookDropped)]

        messages = jobs.messages
        assert read(kafka, feed, 2) == messages
        assert [one["instant"] for one in messages] == [one.instant for one in commits]
        next_offsets = {"0": 0, "1": 0}
        for message, written in zip(messages, commits, strict=True):
            assert message["source"]["kind"] == "kafka"
            assert message["source"]["name"] == topic
            assert message["records_read"] == written.records_read
            assert message["rows_written"] == written.rows_written
            assert message["rows_deleted"] == written.rows_deleted
            assert message["bytes_written"] == written.bytes_written
            for partition, offsets in message["source"]["offsets"].items():
                assert offsets["from"] == next_offsets[partition]
                next_offsets[partition] = offsets["to"]
        assert sum(next_offsets.values()) == 6_000

        states = [one["eventType"] for one in lineage.messages]
        assert states == ["START", "RUNNING", "RUNNING", "COMPLETE"]
        for one in lineage.messages:
            assert one["inputs"][0]["namespace"] == f"kafka://{kafka.bootstrap}"
            assert one["inputs"][0]["name"] == topic
        fields = lineage.messages[1]["outputs"][0]["facets"]["schema"]["fields"]
        assert "amount" in [one["name"] for one in fields]

        for body, written in zip(traces.bodies, commits, strict=True):
            (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
            names = [span.name for span in resource.scope_spans[0].spans]
            assert names == ["batch", *written.stage_s]
            assert {"read", "write", "commit"} <= set(names)
