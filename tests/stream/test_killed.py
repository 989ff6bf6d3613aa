"""A process is killed at random moments, again and again: each offset is written once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import yaml

from checkpoints.commit_keys import decode
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.demo import expected_orders, produce
from tests.depth import examples
from tests.fixtures.kafka import Kafka
from tests.short_lived import short_lived
from tests.stream.orders_pipeline import assert_holds, assert_offsets_chain, pipeline_tree

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(2400)]

#: At least two of each kind of pipeline; twenty from depth 1 on.
KILLS = max(8, min(20, examples(20)))
RECORDS_A_KILL = 2_500
KEYS = 900

#: A run is killed so long after so many of its events: while it starts, writes or compacts.
MOST_EVENTS = 14
LONGEST_PAUSE_S = 1.0

STARTS_WITHIN_S = 60.0

#: A run that has read everything emits no more events.
LONGEST_LIFE_S = 20.0


def test_after_many_kills_every_record_is_there_once(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.create_topic(partitions=3)
    tree = pipeline_tree(
        kafka.bootstrap,
        topic,
        str(tmp_path / "orders"),
        source={"max_records_per_batch": 900},
        run={"mode": "continuous"},
    )
    events = tmp_path / "events.jsonl"
    kinds = [*product(("inline", "async"), (True, False))]
    pipelines = [tmp_path / f"{number}.yaml" for number in range(len(kinds))]
    for pipeline, (mode, reads_ahead) in zip(pipelines, kinds, strict=True):
        tree["compaction"]["mode"] = mode
        tree["run"]["read_ahead"] = reads_ahead
        pipeline.write_text(yaml.safe_dump(tree))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for kill in range(KILLS):
        produce(kafka.bootstrap, topic, RECORDS_A_KILL, keys=KEYS, first=kill * RECORDS_A_KILL)
        events_to_see, pause_s = (
            moments.randint(1, MOST_EVENTS),
            moments.uniform(0, LONGEST_PAUSE_S),
        )
        _live_and_die(pipelines[kill % len(pipelines)], events, events_to_see, pause_s)
    _run(pipeline, events, "--once").check_returncode()

    sent = KILLS * RECORDS_A_KILL
    location = StorageLocation(str(tmp_path / "orders"))
    assert_holds(location, expected_orders(sent, keys=KEYS))
    table = open_table(location)
    assert not table.timeline.pending()
    newest = table.newest_metadata()
    assert newest is not None
    checkpoint = decode(newest.extra_metadata)
    assert checkpoint is not None
    assert sum(checkpoint.offsets_by_partition.values()) == sent
    assert_offsets_chain(location, checkpoint)
    dead = open_table(StorageLocation(f"{tmp_path / 'orders'}_dead_letters"))
    assert (
        dead.scan().to_reader().read_all().num_rows == expected_orders(sent, keys=KEYS).broken_count
    )


def _command(pipeline: Path, events: Path, *more: str) -> list[str]:
    run = [sys.executable, "-m", "lakemark", "run", str(pipeline)]
    return [*run, "--events", str(events), *more]


def _run(pipeline: Path, events: Path, *more: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(_command(pipeline, events, *more), check=False)


def _live_and_die(pipeline: Path, events: Path, events_to_see: int, pause_s: float) -> None:
    """Kill a run at a random moment after a number of events."""
    seen = _events(events)
    command = _command(pipeline, events)
    with subprocess.Popen(command, env=short_lived(), stdout=subprocess.DEVNULL) as process:
        try:
            _wait(lambda: _events(events) > seen, process, STARTS_WITHIN_S)
            _wait(lambda: _events(events) >= seen + events_to_see, process, LONGEST_LIFE_S)
            time.sleep(pause_s)
            assert process.poll() is None, "the run ended by itself"
        finally:
            process.kill()


def _events(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _wait(happened: Callable[[], bool], process: subprocess.Popen[bytes], longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while not happened() and time.monotonic() < deadline:
        assert process.poll() is None, "the run ended by itself"
        time.sleep(0.05)
