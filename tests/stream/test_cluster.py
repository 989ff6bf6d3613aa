"""A standalone cluster: executors with what was shipped to them, lost ones, and slow ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import streamer.__main__ as command_line
from checkpoints.codec import decode
from streamer.demo import expected_orders, produce
from table.hudi_table import open_table
from table.storage import StorageLocation, open_storage
from tests.fixtures.kafka import Kafka
from tests.fixtures.s3 import S3Server
from tests.stream import held_driver
from tests.stream.orders_pipeline import (
    assert_every_file_is_committed,
    assert_holds,
    assert_offsets_chain,
    pipeline_tree,
)
from tests.stream.packed_environment import SITE_PACKAGES, pack
from tests.stream.standalone_cluster import (
    WORKER_HOSTS,
    StandaloneCluster,
    spark_events,
    standalone_cluster,
)

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 9_000
KEYS = 700

#: Longer than the share of memory that a record of these batches may have in the driver.
LONG_BYTES = 200_000

END_WITHIN_S = 240
HELD_WITHIN_S = 180


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    # Not of pytest, which keeps folders: each executor unpacks an environment into its own.
    with (
        tempfile.TemporaryDirectory(prefix="lakemark-cluster-", ignore_cleanup_errors=True) as path,
        standalone_cluster(Path(path)) as cluster,
    ):
        yield cluster


@pytest.fixture
def orders(kafka: Kafka, s3_server: S3Server) -> Orders:
    """A topic of orders, and where its table is to be."""
    topic = kafka.create_topic(partitions=4)
    produce(kafka.bootstrap, topic, RECORDS, keys=KEYS)
    return Orders(kafka, topic, s3_server.location())


class Orders:
    """A topic of orders, and what must become of it."""

    def __init__(self, kafka: Kafka, topic: str, location: StorageLocation) -> None:
        self.topic, self.location = topic, location
        self.tree = pipeline_tree(
            kafka.bootstrap,
            topic,
            location.url,
            table={"storage": dict(location.options)},
            source={"max_records_per_batch": 3_000},
        )

    def pipeline_file(self, folder: Path) -> Path:
        file = folder / "orders.yaml"
        file.write_text(yaml.safe_dump(self.tree))
        return file

    def assert_landed(self, broken_more: int = 0) -> None:
        """Every record is in the table or in its dead letters, once, and no file is too many."""
        expected = expected_orders(RECORDS, keys=KEYS)
        dead_location = StorageLocation(f"{self.location.url}_dead_letters", self.location.options)
        assert_holds(self.location, expected)
        dead = open_table(dead_location).snapshot().read_all()
        assert dead.num_rows == expected.broken_count + broken_more
        newest = open_table(self.location).newest_metadata()
        checkpoint = decode(newest.extra_metadata) if newest else None
        assert checkpoint is not None
        assert sum(checkpoint.offsets.values()) == RECORDS + broken_more
        assert_offsets_chain(self.location, checkpoint)
        for location in (self.location, dead_location):
            assert_every_file_is_committed(location)
