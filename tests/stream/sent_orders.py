"""Orders in a topic, and checks of the tables into which a pipeline wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from checkpoints.commit_keys import decode
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from streamer.demo import expected_orders, produce
from tests.fixtures.kafka import Kafka
from tests.stream.orders_pipeline import assert_holds, assert_offsets_chain, pipeline_tree
from tests.tables import data_files

KEYS = 700
PARTITIONS = 4


@dataclass
class SentOrders:
    """Orders that were sent to a new topic, and the location of their table.

    Attributes:
        kafka: the broker to which they are sent.
        location: location of the table.
        count: how many orders of the stream, from its first on.
        long_reject_bytes: size of an invalid record that is sent before the orders; 0 for none.
    """

    kafka: Kafka
    location: StorageLocation
    count: int
    long_reject_bytes: int = 0

    def __post_init__(self) -> None:
        self.topic = self.kafka.create_topic(partitions=PARTITIONS)
        if self.long_reject_bytes:
            self.kafka.produce(self.topic, [(b"", b"{" * self.long_reject_bytes)])
        produce(self.kafka.bootstrap, self.topic, self.count, keys=KEYS)

    def pipeline_file(self, folder: Path, **changes: Mapping[str, object]) -> Path:
        """Write the pipeline file for ``lakemark run``."""
        tree = pipeline_tree(self.kafka.bootstrap, self.topic, self.location.url, **changes)
        tree["table"]["storage"] = dict(self.location.options)
        file = folder / "orders.yaml"
        file.write_text(yaml.safe_dump(tree))
        return file

    def assert_landed(self) -> None:
        """Check that each record is once in the table or its dead letters, without extra files."""
        expected = expected_orders(self.count, keys=KEYS)
        more_rejects = min(self.long_reject_bytes, 1)
        assert_holds(self.location, expected)
        dead_letters = StorageLocation(f"{self.location.url}_dead_letters", self.location.options)
        dead = open_table(dead_letters).scan().to_reader().read_all()
        assert dead.num_rows == expected.broken_count + more_rejects
        newest = open_table(self.location).newest_metadata()
        checkpoint = decode(newest.extra_metadata) if newest else None
        assert checkpoint is not None
        assert sum(checkpoint.offsets_by_partition.values()) == self.count + more_rejects
        assert_offsets_chain(self.location, checkpoint)
        for location in (self.location, dead_letters):
            _assert_only_committed_files(location)


def _assert_only_committed_files(location: StorageLocation) -> None:
    """Check that nothing is pending, and that storage has exactly the files that commits name."""
    table = open_table(location)
    assert not table.timeline.pending()
    commits = [table.store.read_commit(instant) for instant in table.timeline.completed()]
    named = [stat.path for commit in commits for stat in commit.write_stats]
    assert sorted(map(str, named)) == data_files(open_storage(location))
