"""A replay that dies at any write is repeated, next to a pipeline that emits no heartbeats.

The replay is opened from the file of the pipeline, so that the checks of this start are included.
``test_every_write`` checks the replay itself, without these checks.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from lakemark.operations.open_table import open_table
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.transaction.heartbeat import HeartbeatPolicy
from sinks.hudi.replay import LetterReplay
from streamer.config.load import validated
from streamer.pipeline import open_sink
from streamer.replay import open_replay
from streamer.sources.kafka import KafkaSource
from tests.depth import sample
from tests.json_stream import InThisProcess, kafka_batch
from tests.storages import WatchedStorage
from tests.unit.streamer.test_opened_sink import Topic

RECORDS = ({"id": "a", "n": 1}, {"id": "b", "n": -1}, b"no JSON")
RULE = {"rule": "n > 0", "otherwise": "dead_letter"}


@dataclass(frozen=True)
class ExpiredAtStart(HeartbeatPolicy):
    """For a process that starts so late that all earlier heartbeats have expired."""

    interval_s: float = 3600.0
    started_s: float = field(default_factory=time.time)

    @property
    def expires_after_s(self) -> float:
        return time.time() - self.started_s


def pipeline(folder: Path, *rules: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of a pipeline whose table keeps every row that is written."""
    return {
        "source": {"bootstrap_servers": "b:1", "topic": "orders"},
        "decode": {"schema": {"id": "string", "n": "int"}},
        "expect": rules,
        "table": {
            "path": str(folder / "rows"),
            "record_key": [],
            "operation": "insert",
            "metadata_table": False,
        },
        "dead_letters": {"tolerated": 100},
        "concurrency": {"mode": "single_writer", "clock_skew_ms": 0},
    }


def replay(folder: Path) -> LetterReplay:
    return open_replay(validated(pipeline(folder)))


def rows(folder: Path) -> list[str]:
    table = open_table(StorageLocation(str(folder / "rows")))
    return sorted(table.scan(columns=["id"]).to_table().column("id").to_pylist())


def test_replay_that_died_at_any_write_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.config.concurrency.HeartbeatPolicy", lambda *_: ExpiredAtStart())
    folder, deaths = tmp_path / "lake", list[Path]()
    sink = open_sink(validated(pipeline(folder, RULE)), cast(KafkaSource, Topic()))[0]
    sink.checkpoint()
    sink.write(kafka_batch("orders", 0, RECORDS), InThisProcess())

    def before_write(method: str, path: str) -> None:
        deaths.append(tmp_path / f"dead_before_write_{len(deaths)}")
        shutil.copytree(folder, deaths[-1])

    def watched(location: StorageLocation) -> Storage:
        return WatchedStorage(open_storage(location), before_write)

    with monkeypatch.context() as patch:
        patch.setattr("lakemark.operations.open_table.open_storage", watched)
        assert replay(folder).run(None).passed == 1
    assert rows(folder) == ["a", "b"]
    for died in sample(deaths, one_in=4):
        for lock in died.glob("*/.hoodie/.locks"):
            shutil.rmtree(lock)  # its lease has expired, too
        replay(died).run(None)
        assert rows(died) == ["a", "b"], died
