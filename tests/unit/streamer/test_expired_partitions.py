"""A pipeline deletes expired partitions between two batches, and loses no batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

import lakemark
from checkpoints.checkpoint import KafkaCheckpoint
from lakemark.errors import StorageUnavailable, Unsupported
from lakemark.execution.runner import LocalRunner
from lakemark.model.action import Action
from lakemark.operations.compact import request_compaction
from lakemark.operations.table_writer import TableWriter
from lakemark.services.partition_lifetime import ExpireBy, PartitionLifetime
from lakemark.storage import Storage
from sinks.hudi.sink import HudiSink
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import Event, PartitionsExpired, ServiceFailed
from streamer.partition_expiry import PartitionExpiry
from streamer.pipeline import _partition_expiry, open_sink
from streamer.services import ServicePolicies, TableServices
from streamer.sources.kafka import KafkaSource
from tests.json_stream import InThisProcess, kafka_batch
from tests.storages import WatchedStorage
from tests.table_services import make_plain, new_storage
from tests.tables import Row, commit, contents, writer
from tests.unit.streamer.test_opened_sink import COLUMNS, Topic

LIFETIME = PartitionLifetime(timedelta(hours=1))
INTERVAL_S = 600.0
LATER = timedelta(hours=2)


@dataclass
class Clock:
    """The clock of an expiry, which only a test advances.

    Attributes:
        passed: the time that has passed since this machine's time.
    """

    passed: timedelta = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.passed

    def monotonic_s(self) -> float:
        return self.passed.total_seconds()


@dataclass
class Expiry:
    """The service on a table, and its events."""

    to: TableWriter
    clock: Clock = field(default_factory=Clock)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.service = PartitionExpiry(
            self.to,
            LIFETIME,
            INTERVAL_S,
            LocalRunner(1),
            self.events.append,
            self.clock.now,
            self.clock.monotonic_s,
        )

    def run(self, passed: timedelta = timedelta(0)) -> list[Event]:
        """Let time pass, run the service after a batch, and return its new events."""
        self.clock.passed += passed
        self.events.clear()
        self.service.run_if_due()
        assert not self.to.is_writing
        return list(self.events)


def table(wrap: Callable[[Storage], Storage] = lambda one: one) -> tuple[Storage, TableWriter]:
    storage = new_storage()
    make_plain(storage)
    return storage, writer(wrap(storage))


def paths(events: list[Event]) -> list[str]:
    (event,) = events
    assert isinstance(event, PartitionsExpired)
    return list(event.partitions)


# The pipeline


def config(folder: Path, **sections: Any) -> PipelineConfig:
    tables = {"path": str(folder / "rows"), "record_key": "id", "partition_by": "region"}
    return validated(
        {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": COLUMNS,
            **sections,
            "table": {**tables, **sections.get("table", {})},
        }
    )


def opened(pipeline: PipelineConfig) -> tuple[HudiSink, list[TableWriter]]:
    sink, writers = open_sink(pipeline, cast(KafkaSource, Topic()))
    sink.recover()
    sink.progress()
    return sink, writers


def rows_of(folder: Path) -> dict[str, str]:
    rows = lakemark.open(folder / "rows").scan(columns=["id", "region"]).to_table().to_pylist()
    return {row["id"]: row["region"] for row in rows}


def run(
    pipeline: PipelineConfig, clock: Clock, offset: int, *records: tuple[str, str]
) -> list[list[str]]:
    """Start a pipeline, which resumes at ``offset``, and write one batch.

    Returns:
        The partitions that the check at the start deleted, and those that were deleted later.
    """
    sink, writers = opened(pipeline)
    events: list[Event] = []
    runner = LocalRunner(1)
    expiry = PartitionExpiry(
        writers[0], LIFETIME, INTERVAL_S, runner, events.append, clock.now, clock.monotonic_s
    )
    services = TableServices(writers, ServicePolicies(), runner, events.append, None, [expiry])
    deleted = []
    services.run()
    deleted.append(events[:])
    assert sink.checkpoint() == (KafkaCheckpoint("orders", {0: offset}) if offset else None)
    rows = [{"id": name, "region": region} for name, region in records]
    sink.write(kafka_batch("orders", offset, rows), InThisProcess())
    clock.passed += LATER
    services.run()
    clock.passed -= LATER
    deleted.append(events[len(deleted[0]) :])
    return [
        [path for one in part if isinstance(one, PartitionsExpired) for path in one.partitions]
        for part in deleted
    ]


def test_pipeline_deletes_expired_partitions_and_continues_at_its_offsets(tmp_path: Path) -> None:
    pipeline, clock = config(tmp_path), Clock()
    assert run(pipeline, clock, 0, ("a", "north")) == [[], ["north"]]
    assert rows_of(tmp_path) == {}
    assert run(pipeline, clock, 1, ("b", "south")) == [[], ["south"]]
    sink, _ = opened(pipeline)
    late = [{"id": "a", "region": "north"}, {"id": "c", "region": "west"}]
    sink.write(kafka_batch("orders", 2, late), InThisProcess())
    assert rows_of(tmp_path) == {"a": "north", "c": "west"}
    clock.passed = LATER
    assert run(pipeline, clock, 4, ("d", "west")) == [["north", "west"], ["west"]]
    assert opened(pipeline)[0].checkpoint() == KafkaCheckpoint("orders", {0: 5})
    assert not lakemark.open(tmp_path / "rows").timeline.pending()


def test_pipeline_expires_partitions_only_as_its_settings_say(tmp_path: Path) -> None:
    _, writers = opened(config(tmp_path))
    assert _partition_expiry(config(tmp_path), writers[0], LocalRunner(1), print) is None
    settings = {"days": 0.5, "by": "creation", "check_every_minutes": 5}
    pipeline = config(tmp_path, partition_lifetime=settings)
    made = _partition_expiry(pipeline, writers[0], LocalRunner(1), print)
    assert made is not None
    assert made.writer.table.location.url.endswith("rows")
    assert pipeline.partition_lifetime.lifetime() == PartitionLifetime(
        timedelta(hours=12), ExpireBy.CREATION
    )


@pytest.mark.parametrize(
    ("table_settings", "lifetime", "setting", "reason"),
    [
        ({"partition_by": []}, {"days": 30}, "days", "needs table.partition_by"),
        ({"index": "consistent_hashing"}, {"days": 30}, "days", "consistent_hashing"),
        ({}, {"days": 0.001}, "check_every_minutes", "longer than the lifetime"),
        ({}, {"by": "creation"}, "by", "without partition_lifetime.days"),
        ({}, {"days": 0}, "days", "greater than 0"),
    ],
)
def test_contradicting_settings_are_refused(
    tmp_path: Path,
    table_settings: dict[str, Any],
    lifetime: dict[str, Any],
    setting: str,
    reason: str,
) -> None:
    with pytest.raises(ConfigError) as refused:
        config(tmp_path, table=table_settings, partition_lifetime=lifetime)
    assert f"partition_lifetime.{setting}" in str(refused.value)
    assert reason in str(refused.value)


def test_existing_table_whose_partitions_cannot_be_deleted_is_refused(tmp_path: Path) -> None:
    _, (rows, *_) = opened(config(tmp_path, table={"index": "consistent_hashing"}))
    assert rows.settings.first_ring_count
    sink, _ = opened(config(tmp_path, table={"index": "consistent_hashing"}))
    record = {"id": "a", "region": "north"}
    sink.write(kafka_batch("orders", 0, [record]), InThisProcess())
    with pytest.raises(Unsupported, match="hash rings name the file groups"):
        opened(config(tmp_path, partition_lifetime={"days": 30}))


# The service


def test_partitions_are_checked_at_the_start_and_then_at_the_interval() -> None:
    storage, to = table()
    commit(to, [Row("a", 1, 1), Row("b", 1, 1, region="south")])
    expiry = Expiry(to)
    assert expiry.run() == []
    assert expiry.run(timedelta(seconds=INTERVAL_S - 1)) == [], "not due yet"
    expiry.clock.passed = LATER
    (event,) = expiry.run()
    assert isinstance(event, PartitionsExpired)
    assert (event.partitions, event.files, event.rows) == (("north", "south"), 2, 2)
    assert event.bytes_expired > 0
    (replaced,) = writer(storage).table.timeline.completed(Action.REPLACE_COMMIT)
    assert event.instant == replaced.requested_at
    assert contents(storage) == {}
    assert expiry.run(LATER) == [], "there is no instant if nothing has expired"
    assert len(writer(storage).table.timeline.instants) == 2


def test_late_record_of_an_expired_partition_is_written_again() -> None:
    storage, to = table()
    commit(to, [Row("a", 5, 5), Row("b", 5, 5, region="south")])
    expiry = Expiry(to)
    assert paths(expiry.run(LATER)) == ["north", "south"]
    commit(to, [Row("a", 1, 1)])
    commit(to, [Row("a", 2, 2)])
    assert contents(storage) == {"a": (2, 2)}


@pytest.mark.parametrize(
    ("write", "error_type"),
    [
        (".replacecommit.requested", "StorageUnavailable"),
        (".replacecommit.inflight", "StorageUnavailable"),
        (".replacecommit", "OutcomeUnknown"),
    ],
)
def test_failure_is_reported_and_the_stream_continues(write: str, error_type: str) -> None:
    is_down = False

    def fail(method: str, path: str) -> None:
        if is_down and path.endswith(write) and method != "delete":
            message = "the store does not answer"
            raise StorageUnavailable(message)

    storage, to = table(lambda one: WatchedStorage(one, fail))
    commit(to, [Row("a", 1, 1)])
    expiry, is_down = Expiry(to), True
    for failures, pause_s in ((1, 60.0), (2, 120.0)):
        (event,) = expiry.run(LATER)
        assert isinstance(event, ServiceFailed)
        assert (event.service, event.error_type) == ("partition_expiry", error_type)
        assert (event.failures, event.pause_s) == (failures, pause_s)
        assert expiry.run() == [], "the next attempt is not due yet"
        assert not writer(storage).table.timeline.pending()
        commit(to, [Row("b", failures, failures, region="south")])
    is_down = False
    assert "north" in paths(expiry.run(timedelta(seconds=120)))


def test_failure_that_cannot_be_undone_restarts_the_stream() -> None:
    is_down = False

    def fail(method: str, path: str) -> None:
        nonlocal is_down
        is_down |= path.endswith(".inflight") and "replacecommit" in path
        if is_down and "/.locks/" not in path:  # otherwise the lock is held until its lease expires
            message = "the store does not answer"
            raise StorageUnavailable(message)

    storage, to = table(lambda one: WatchedStorage(one, fail))
    commit(to, [Row("a", 1, 1)])
    expiry = Expiry(to)
    expiry.clock.passed = LATER
    with pytest.raises(StorageUnavailable):
        expiry.service.run_if_due()
    restarted = writer(storage)
    restarted.recover()
    assert not restarted.table.timeline.pending()
    assert contents(storage) == {"a": (1, 1)}


def test_partition_in_a_pending_compaction_is_deleted_later() -> None:
    storage, to = table()
    for ts in (1, 2):
        commit(to, [Row("a", ts, ts)])
    planned = request_compaction(to.table)
    assert planned is not None
    commit(to, [Row("b", 1, 1, region="south")])
    expiry = Expiry(to)
    assert paths(expiry.run(LATER)) == ["south"]
    assert to.run_compaction(planned, LocalRunner(1))
    assert contents(storage) == {"a": (2, 2)}
    assert paths(expiry.run(LATER)) == ["north"]
    assert not writer(storage).table.timeline.pending()
