"""One topic of a real broker, routed to six tables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from lakemark.errors import Retriable
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation
from streamer.config.load import load_tree
from streamer.events import BatchWritten, Event, Listener, Retrying, RunFailed
from streamer.routing import run as routed_run
from streamer.routing.opened_table import OpenedTable
from streamer.routing.run import RoutedRun, TablesSetAside, open_routed
from streamer.routing.template import RouteTemplate
from streamer.sources.kafka import KafkaSource
from tests.fixtures.kafka import Kafka, Message
from tests.routed_stream import Killed, Process, watched
from tests.short_lived import short_lived
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

_KINDS = 6


def orders(first: int, end: int) -> Iterator[Message]:
    for number in range(first, end):
        row = {"id": str(number), "kind": f"kind{number % _KINDS}", "n": number}
        yield b"%d" % number, json.dumps(row).encode()


def write_pipeline(kafka: Kafka, topic: str, folder: Path, **changes: Mapping[str, object]) -> Path:
    sections: dict[str, Any] = {
        "source": {
            "bootstrap_servers": kafka.bootstrap,
            "topic": topic,
            "max_records_per_batch": 30,
        },
        "route": {"field": "kind"},
        "decode": {"schema": {"id": "string", "kind": "string", "n": "bigint"}},
        "table": {
            "path": f"{folder / 'lake'}/{{value}}",
            "record_key": "id",
            "operation": "insert",
        },
        "run": {
            "mode": "once",
            "trigger_interval_s": 0,
            "retry": {"backoff_s": 0.1, "max_backoff_s": 0.2},
        },
    }
    for section, settings in changes.items():
        sections[section] = {**sections.get(section, {}), **settings}
    path = folder / "shop.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def rows_of(folder: Path, kind: int) -> list[int]:
    """Return the sorted numbers of a table; none if there is no table."""
    path = folder / "lake" / f"kind{kind}"
    if not (path / ".hoodie" / "hoodie.properties").exists():
        return []
    table = open_table(StorageLocation(str(path)))
    if table.schema is None:
        return []
    return sorted(table.scan(columns=["n"]).to_reader().read_all()["n"].to_pylist())


def run(pipeline: Path, spark: SparkSession, events: list[tuple[str, Event]]) -> RoutedRun:
    """Run a pipeline in this process, with the session of the tests."""

    def output(name: str) -> Listener:
        return lambda event: events.append((name, event))

    template = RouteTemplate.of(load_tree(str(pipeline)))
    with open_routed(template, output, spark) as opened:
        opened.run()
    return opened


def test_five_tables_go_on_while_the_sixth_fails_and_it_catches_up_after_the_mend(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, orders(0, 90))
    foreign = tmp_path / "lake" / "kind3"
    foreign.mkdir(parents=True)
    (foreign / "of_another_program").write_text("no table")
    pipeline = write_pipeline(kafka, topic, tmp_path)
    command = [sys.executable, "-m", "lakemark", "run", str(pipeline)]
    done = subprocess.run(command, env=short_lived(), capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "1 of 6 tables were set aside: kind3" in done.stderr
    assert f"{topic}/kind3" in done.stdout
    assert re.search(r"[1-9]\d* rows written to 5 tables", done.stdout)
    assert re.search(r"stopped \(caught up\): \d+ batches, 75 rows in", done.stdout)
    for kind in range(_KINDS):
        assert rows_of(tmp_path, kind) == ([] if kind == 3 else [*range(kind, 90, _KINDS)])

    kafka.produce(topic, orders(90, 120))
    events = list[tuple[str, Event]]()
    with pytest.raises(TablesSetAside, match="kind3"):
        run(pipeline, spark, events)
    failed = [name for name, event in events if isinstance(event, RunFailed)]
    assert failed[0] == f"{topic}/kind3"

    shutil.rmtree(foreign)
    assert run(pipeline, spark, events).outcome.rows == 20, "all rows of the table, and no others"
    for kind in range(_KINDS):
        assert rows_of(tmp_path, kind) == [*range(kind, 120, _KINDS)]


def test_run_that_dies_between_the_commits_of_two_tables_writes_each_record_once(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, orders(0, 60))
    pipeline = write_pipeline(kafka, topic, tmp_path)
    for dies_at in (4, 9):
        with watched(Process(dies_at)), pytest.raises(Killed):
            run(pipeline, spark, [])
    run(pipeline, spark, [])
    for kind in range(_KINDS):
        assert rows_of(tmp_path, kind) == [*range(kind, 60, _KINDS)]


def test_long_records_are_read_in_pieces(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, orders(0, 60))
    row = {"id": "60", "kind": "kind0", "n": 60, "note": "x" * 4_000}
    kafka.produce(topic, [(b"60", json.dumps(row).encode())])
    kafka.produce(topic, orders(61, 90))
    pipeline = write_pipeline(kafka, topic, tmp_path, source={"max_records_per_batch": 1_000})
    monkeypatch.setattr(routed_run, "collect_budget_bytes", lambda _, copies: 360_000 // copies)
    monkeypatch.setattr(KafkaSource, "_most_records", lambda _: 1_000)
    events = list[tuple[str, Event]]()
    run(pipeline, spark, events)
    assert [isinstance(e, BatchWritten) and name == topic for name, e in events].count(True) == 1
    for kind in range(_KINDS):
        assert rows_of(tmp_path, kind) == [*range(kind, 90, _KINDS)]


def test_continuous_run_catches_a_table_up_that_had_failed_for_a_while(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, orders(0, 60))
    pipeline = write_pipeline(kafka, topic, tmp_path, run={"mode": "continuous"})
    real, is_broken = OpenedTable.write, threading.Event()
    is_broken.set()

    def write(table: OpenedTable, *arguments: Any) -> Any:
        if is_broken.is_set() and table.name.endswith("kind2"):
            message = "the store does not answer"
            raise Retriable(message)
        return real(table, *arguments)

    monkeypatch.setattr(OpenedTable, "write", write)
    events = list[tuple[str, Event]]()
    template = RouteTemplate.of(load_tree(str(pipeline)))
    with open_routed(template, lambda name: lambda e: events.append((name, e)), spark) as opened:
        thread = threading.Thread(target=opened.run)
        thread.start()
        try:
            until(lambda: rows_of(tmp_path, 5) == [*range(5, 60, _KINDS)], "the other tables")
            until(lambda: any(isinstance(event, Retrying) for _, event in events))
            assert rows_of(tmp_path, 2) == []
            is_broken.clear()
            until(lambda: rows_of(tmp_path, 2) == [*range(2, 60, _KINDS)], "the table to catch up")
        finally:
            opened.stop()
            thread.join()
    assert [one.result for one in opened.outcomes] == ["interrupted"] * (_KINDS + 1)
