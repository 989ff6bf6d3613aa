"""A snapshot, and then the topic: each row and each offset once, whenever a run dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakemark
from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.commit_keys import parse_text
from checkpoints.edit import write_checkpoint
from checkpoints.lookup import find_progress
from checkpoints.position import Position
from checkpoints.snapshot_position import SnapshotPosition
from lakemark.config import keys
from lakemark.model.action import COMMITS
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import StorageLocation
from lakemark.transaction.carried_metadata import checkpoint_key
from sinks.hudi.batch_writer import BatchWriter
from streamer import pipeline
from streamer.cli import main
from streamer.config.load import load_text
from streamer.config.pipeline import PipelineConfig
from streamer.events import CAUGHT_UP, BatchWritten, Event, RunStarted, RunStopped, SnapshotRead
from streamer.snapshot import find_state
from streamer.sources.errors import LostOffsets, SnapshotUnread
from streamer.sources.snapshots.errors import BadSnapshot, ForeignSnapshot
from tests.fixtures.kafka import Kafka, Message
from tests.fixtures.webhook import Webhook, run_webhook
from tests.short_lived import short_lived
from tests.waiting import until

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

Rows = dict[str, tuple[int, str]]

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("note", pa.string())])

#: The rows of the export, in three files; ``x…`` are only there.
EXPORT = [
    [("a", 10, "export"), ("b", 10, "export"), ("x1", 10, "export")],
    [("c", 10, "export"), ("d", 10, "export"), ("x2", 10, "export")],
    [("e", 10, "export"), ("x3", 10, "export")],
]

#: The topic: records that are older than the rows of the export, newer ones, and further rows.
SENT = [
    ("a", 5, "too old"),
    ("b", 5, "too old"),
    ("b", 20, "topic"),
    ("c", 20, "topic"),
    ("new", 20, "topic"),
    ("d", 7, "too old"),
    ("e", 30, "topic"),
    ("a", 9, "too old"),
]


def newest(*rows: Sequence[tuple[str, int, str]]) -> Rows:
    """Return the rows with the largest ``ts`` of each key."""
    found: Rows = {}
    for key, ts, note in (one for some in rows for one in some):
        found[key] = max(found.get(key, (-1, "")), (ts, note))
    return found


def message(key: str, ts: int, note: str) -> Message:
    return key.encode(), json.dumps({"id": key, "ts": ts, "note": note}).encode()


class Killed(Exception):
    """The process dies here."""


def position_in(commit: Mapping[str, str]) -> Position | None:
    """Return the position that a commit of the pipeline records."""
    known = json.loads(commit[keys.CHECKPOINTS])["streamers"]
    return parse_text(known[""]["checkpoint"])


@dataclass
class Export:
    """An export in a folder, a topic, and the pipeline that reads both."""

    kafka: Kafka
    topic: str
    folder: Path
    snapshot: dict[str, object] = field(default_factory=dict)
    changes: dict[str, Mapping[str, object]] = field(default_factory=dict)

    def write(self, files: Sequence[Sequence[tuple[str, int, str]]] = EXPORT) -> None:
        (self.folder / "export").mkdir()
        for number, rows in enumerate(files):
            path = self.folder / "export" / f"{number}.parquet"
            columns = [*zip(*rows, strict=True)]
            pq.write_table(pa.table([*map(pa.array, columns)], schema=SCHEMA), path)
            os.utime(path, (1_700_000_000, 1_700_000_000))  # their paths order the files

    def send(self, rows: Sequence[tuple[str, int, str]] = SENT) -> None:
        self.kafka.produce(self.topic, [message(*row) for row in rows])

    def text(self) -> str:
        section = {"path": str(self.folder / "export"), "format": "parquet"}
        tree: dict[str, Any] = {
            "source": {
                "bootstrap_servers": self.kafka.bootstrap,
                "topic": self.topic,
                "max_records_per_batch": 5,
            },
            "snapshot": self.snapshot or {**section, "max_files_per_batch": 1},
            "decode": {"schema": {"id": "string", "ts": "bigint", "note": "string"}},
            "table": {
                "path": str(self.folder / "rows"),
                "record_key": "id",
                "ordering": "ts",
                "buckets": 1,
            },
            "run": {"mode": "once", "trigger_interval_s": 0.0, "read_ahead": False},
            "spark": {"master": "local[2]", "conf": {"spark.driver.memory": "1g"}},
        }
        for name, settings in self.changes.items():
            tree[name] = {**tree.get(name, {}), **settings}
        return json.dumps(tree)

    def config(self) -> PipelineConfig:
        return load_text(self.text())

    def run(self, spark: SparkSession) -> list[Event]:
        """Run as ``lakemark run`` does; return the events."""
        events: list[Event] = []
        config, is_read = self.config(), False
        if find_state(config).is_due:
            with pipeline.build_snapshot(config, events.append) as built:
                is_read = built.loop.run().reason == CAUGHT_UP
        with pipeline.build(config, events.append, is_snapshot_read=is_read) as built:
            built.loop.run()
        return events

    def table(self) -> OpenTable:
        return open_table(StorageLocation(str(self.folder / "rows")))

    def rows(self) -> Rows:
        found = lakemark.open(str(self.folder / "rows")).scan().to_table().to_pylist()
        assert len({one["id"] for one in found}) == len(found)
        return {one["id"]: (one["ts"], one["note"]) for one in found}

    def position(self) -> Position | None:
        table = self.table()
        progress = find_progress(table, table.timeline)
        return None if progress is None else progress.checkpoint

    def commits(self) -> list[Mapping[str, str]]:
        table = self.table()
        return [
            table.store.read_commit(one).extra_metadata
            for one in table.timeline.completed(*COMMITS)
            if keys.SOURCE_START in table.store.read_commit(one).extra_metadata
        ]


@pytest.fixture
def export(kafka: Kafka, topic: str, tmp_path: Path) -> Export:
    kafka.create_topic(topic, partitions=2)
    return Export(kafka, topic, tmp_path)


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, nth: int, *, after: bool) -> Iterator[list[str]]:
    """Let the process die at the publication of commit ``nth``, before or after it."""
    published: list[str] = []
    original = BatchWriter._publish

    def publish(self: BatchWriter, *arguments: Any) -> Any:
        dies = len(published) + 1 == nth
        if dies and not after:
            raise Killed
        result = original(self, *arguments)
        published.append(str(arguments[2]))
        if dies:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "_publish", publish)
        yield published


def records_read(events: Sequence[Event]) -> list[int]:
    return [one.records_read for one in events if isinstance(one, BatchWritten)]


def test_topic_follows_the_snapshot_and_no_later_run_reads_the_snapshot(
    export: Export, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    export.write()
    export.send()
    events = export.run(spark)
    assert export.rows() == newest(*EXPORT, SENT)
    (read,) = (one for one in events if isinstance(one, SnapshotRead))
    assert (read.batches, read.rows_written) == (3, 8)
    assert [one.reason for one in events if isinstance(one, RunStopped)] == [CAUGHT_UP]
    started = [one.topic for one in events if isinstance(one, RunStarted)]
    assert started == [f"file://{export.folder}/export, then topic {export.topic}", export.topic]
    assert sum(records_read(events)) == 8 + len(SENT)
    position = export.position()
    assert isinstance(position, KafkaCheckpoint)
    assert sum(position.offsets.values()) == len(SENT)
    # Apache Hudi's streamer finds its key only after the snapshot.
    of_snapshot = [
        isinstance(parse_text(one[keys.SOURCE_START]), SnapshotPosition) for one in export.commits()
    ]
    assert of_snapshot == sorted(of_snapshot, reverse=True)
    assert [checkpoint_key(one) is None for one in export.commits()] == of_snapshot
    # Checks of a start warn if a busy machine is slow, but nothing warns about the snapshot.
    assert not [one for one in caplog.records if one.name == pipeline.__name__]

    shutil.rmtree(export.folder / "export")
    export.send([("x1", 40, "topic")])
    assert records_read(export.run(spark)) == [1]
    assert export.rows() == newest(*EXPORT, SENT, [("x1", 40, "topic")])


def test_a_run_that_dies_at_each_commit_writes_each_file_and_offset_once(
    export: Export, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    export.write()
    export.send()
    deaths, has_ended = 0, False
    while not has_ended:
        # Each run publishes one commit. It dies after it, or before it publishes the next one.
        with dying(monkeypatch, 1 + deaths % 2, after=deaths % 2 == 0):
            try:
                export.run(spark)
                has_ended = True
            except Killed:
                deaths += 1
    # The start, three files, the end of the snapshot, and at least two batches of the topic.
    assert 6 <= deaths <= len(export.commits())
    assert export.rows() == newest(*EXPORT, SENT)
    _assert_chain(export, sum(map(len, EXPORT)))


def _assert_chain(export: Export, exported: int) -> None:
    """Check that each commit begins where the previous one ended, and each record is read once."""
    commits = export.commits()
    records = [json.loads(one[keys.AUDIT])["records"] for one in commits]
    assert sum(records) == exported + len(SENT)
    starts = [parse_text(one[keys.SOURCE_START]) for one in commits]
    switches = 0
    for commit, start in zip(commits, starts[1:], strict=False):
        end = position_in(commit)
        if isinstance(end, SnapshotPosition) and isinstance(start, KafkaCheckpoint):
            switches, end = switches + 1, end.then
        assert start == end, f"{start} does not follow {end}"
    assert switches == 1


def test_latest_means_the_end_of_the_topic_before_the_snapshot_was_read(
    export: Export,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    export.changes["source"] = {"starting_offsets": "latest"}
    export.write()
    export.send([("a", 20, "before the start"), ("gone", 20, "before the start")])
    with dying(monkeypatch, 2, after=True), pytest.raises(Killed):
        export.run(spark)
    assert "so no record is read that reached the topic before" in caplog.text
    position = export.position()
    assert isinstance(position, SnapshotPosition)
    assert sum(position.then.offsets.values()) == 2
    export.send([("b", 20, "during the snapshot")])
    export.run(spark)
    assert export.rows() == newest(*EXPORT, [("b", 20, "during the snapshot")])


def test_another_table_is_a_snapshot_without_its_later_commits(
    export: Export, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = lakemark.create(
        str(export.folder / "stored"), schema=SCHEMA, record_key="id", buckets=3
    )
    rows = [dict(zip(SCHEMA.names, one, strict=True)) for some in EXPORT for one in some]
    stored.upsert(pa.Table.from_pylist(rows, SCHEMA))
    export.snapshot = {"kind": "table", "path": str(stored.location), "max_bytes_per_batch": 1024}
    export.send()
    with dying(monkeypatch, 1, after=True), pytest.raises(Killed):
        export.run(spark)
    later = {"id": "later", "ts": 99, "note": "not of the snapshot"}
    stored.upsert(pa.Table.from_pylist([later], SCHEMA))
    export.run(spark)
    assert export.rows() == newest(*EXPORT, SENT)


def test_rows_of_the_export_pass_the_same_steps_rules_and_dead_letters(
    export: Export, spark: SparkSession
) -> None:
    (export.folder / "export").mkdir()
    lines = "id;ts;note\na;10;csv\nb;10;csv\nbroken;ten;csv\nsecret;10;csv\nrefused;-1;csv\n"
    (export.folder / "export" / "0.csv").write_text(lines)
    export.snapshot = {
        "path": str(export.folder / "export"),
        "format": "csv",
        "header": True,
        "decode": {"delimiter": ";"},
    }
    text = json.loads(export.text())
    text["transform"] = [{"step": "filter", "where": "id != 'secret'"}]
    text["source"]["metadata_columns"] = ["offset"]
    text["expect"] = [{"rule": "ts > 0", "otherwise": "dead_letter"}]
    export.text = lambda: json.dumps(text)  # type: ignore[method-assign]
    export.send([("secret", 20, "topic"), ("a", 20, "topic"), ("refused", -2, "topic")])
    export.run(spark)
    assert export.rows() == {"a": (20, "topic"), "b": (10, "csv")}
    found = lakemark.open(str(export.folder / "rows")).scan().to_table()
    offsets = found.sort_by("id").column("_hoodie_kafka_source_offset").to_pylist()
    assert offsets[0] is not None
    assert offsets[1] is None
    letters = lakemark.open(str(export.folder / "rows_dead_letters")).scan().to_table()
    assert sorted(one.rpartition("/")[2] for one in letters.column("topic").to_pylist()) == sorted(
        ["0.csv", "0.csv", export.topic]
    )


def test_change_events_win_over_the_rows_of_an_export(export: Export, spark: SparkSession) -> None:
    export.write()
    export.snapshot = {
        "path": str(export.folder / "export"),
        "format": "parquet",
        "transform": [{"step": "add", "columns": {"_position": "0"}}],
    }
    export.changes = {
        "decode": {"format": "debezium", "database": "postgres"},
        "table": {"ordering": "_position"},
    }
    row = {"id": "a", "ts": 20, "note": "event"}
    events = [
        {"op": "u", "before": None, "after": row, "source": {"lsn": 7}, "ts_ms": 1},
        {"op": "d", "before": {"id": "b"}, "after": None, "source": {"lsn": 8}, "ts_ms": 1},
    ]
    export.kafka.produce(export.topic, [(b"", json.dumps(one).encode()) for one in events])
    export.run(spark)
    wanted = {**newest(*EXPORT), "a": (20, "event")}
    del wanted["b"]
    assert export.rows() == wanted


def test_hooks_announce_each_commit_with_the_source_of_its_rows(
    export: Export, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, webhook: Webhook
) -> None:
    export.write()
    export.send()
    tree = json.loads(export.text())
    with run_webhook() as lineage:
        tree["hooks"] = [
            {"kind": "http", "options": {"url": webhook.url}},
            {"kind": "openlineage", "options": {"url": lineage.url}},
        ]
        export.text = lambda: json.dumps(tree)  # type: ignore[method-assign]
        with dying(monkeypatch, 3, after=True), pytest.raises(Killed):
            export.run(spark)
        export.run(spark)
        events = [one for one in lineage.messages if "lakemark_commit" in one["run"]["facets"]]
    batches = [one for one in export.commits() if json.loads(one[keys.AUDIT])["offsets"]]
    assert webhook.instants == [_instant(one) for one in batches]
    folder = str(export.folder / "export")
    for message in webhook.messages:  # the run of the topic repeats the last commit of the snapshot
        end = position_in(batches[webhook.instants.index(message["instant"])])
        if isinstance(end, SnapshotPosition):
            source = {"kind": "files", "name": f"file://{folder}", "position": str(end)}
            assert message["source"] == source
        else:
            assert (message["source"]["kind"], message["source"]["name"]) == ("kafka", export.topic)
            assert message["source"]["offsets"]
    for event in events:
        end = parse_text(event["run"]["facets"]["lakemark_commit"]["position"])
        (read,) = event["inputs"]
        name = folder if isinstance(end, SnapshotPosition) else export.topic
        assert read["name"] == name
    assert {one["inputs"][0]["name"] for one in events} == {folder, export.topic}


def _instant(commit: Mapping[str, str]) -> str:
    """Return the requested time of a commit of the pipeline."""
    return str(json.loads(commit[keys.CHECKPOINTS])["streamers"][""]["commit"])


def test_bad_snapshots_are_refused_before_anything_is_written(
    export: Export, spark: SparkSession
) -> None:
    (export.folder / "export").mkdir()
    with pytest.raises(BadSnapshot, match=r"no file matches snapshot\.pattern \*"):
        export.run(spark)
    shutil.rmtree(export.folder / "export")
    export.write()
    damaged = export.folder / "export" / "2.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-10])
    with pytest.raises(BadSnapshot, match=r"1 file cannot be read: 2\.parquet: .*on_bad_file"):
        export.run(spark)
    damaged.unlink()
    export.changes["decode"] = {"schema": {"id": "string", "ts": "int", "note": "string"}}
    export.snapshot = {
        "path": str(export.folder / "export"),
        "format": "parquet",
        "decode": {"schema": {"id": "string", "ts": "bigint", "note": "string"}},
    }
    with pytest.raises(Exception, match="'ts' is int64 in the snapshot, but int32 in the topic"):
        export.run(spark)
    assert not (export.folder / "rows").exists()


def test_damage_that_is_found_late_stops_the_run_and_the_corrected_file_is_read(
    export: Export, spark: SparkSession
) -> None:
    export.write()
    damaged = export.folder / "export" / "1.parquet"
    intact, kept = damaged.read_bytes(), damaged.stat()
    # The footer is intact, but the pages are not.
    damaged.write_bytes(b"PAR1" + b"\xff" * 60 + intact[64:])
    os.utime(damaged, (kept.st_atime, kept.st_mtime))
    with pytest.raises(BadSnapshot, match=r"1\.parquet: the file cannot be read after 0 records"):
        export.run(spark)
    damaged.write_bytes(intact)
    export.run(spark)
    assert export.rows() == newest(*EXPORT)


def test_a_topic_that_lost_records_meanwhile_is_noticed_before_the_rest_is_read(
    export: Export, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    export.write()
    export.kafka.produce(export.topic, [message(*row) for row in SENT], partition=0)
    with dying(monkeypatch, 2, after=True), pytest.raises(Killed):
        export.run(spark)
    export.kafka.delete_before(export.topic, 3)
    with pytest.raises(LostOffsets, match="partition 0 lost offsets 0 to 2"):
        export.run(spark)
    export.changes["source"] = {"on_offset_out_of_range": "earliest"}
    export.snapshot = {"path": str(export.folder / "other"), "format": "parquet"}
    (export.folder / "other").mkdir()
    with pytest.raises(ForeignSnapshot, match="name the snapshot that was begun"):
        export.run(spark)
    export.snapshot = {}
    export.run(spark)
    assert export.rows() == newest(*EXPORT, SENT[3:])


def test_commands_describe_a_snapshot_that_is_read_in_part(
    export: Export,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    export.write()
    export.send()
    file, table = export.folder / "pipeline.yaml", str(export.folder / "rows")
    file.write_text(export.text())

    def shown(*arguments: object, code: int = 0) -> str:
        assert main([*map(str, arguments)]) == code
        return " ".join("".join(capsys.readouterr()).split())

    assert "a run reads first the snapshot" in shown("validate", file)
    assert "KiB; the first run reads it before the topic" in shown("doctor", file)
    assert f"3 of file://{export.folder}/export" in shown("preview", file)
    with dying(monkeypatch, 2, after=True), pytest.raises(Killed):
        export.run(spark)
    capsys.readouterr()
    doctor = shown("doctor", file)
    assert "read in part, and the next run continues" in doctor
    assert f"{len(SENT)} unread offsets" in doctor
    facts = json.loads(shown("checkpoint", "get", table, "--json"))
    assert facts["snapshot"] == f"file://{export.folder}/export, not read completely"
    assert facts["then"] == f"{export.topic},0:0,1:0"
    # Without the section, the pipeline would skip the rest of the snapshot.
    tree = json.loads(export.text())
    del tree["snapshot"]
    without = load_text(json.dumps(tree))
    with pytest.raises(SnapshotUnread, match="Run the pipeline with its section snapshot"):
        with pipeline.build(without, lambda _: None) as built:
            built.loop.run()
    export.run(spark)
    assert "the table records that it was read" in shown("doctor", file)
    write_checkpoint(export.table(), "", None)
    with pytest.raises(SnapshotUnread, match="Start the run again"):
        with pipeline.build(export.config(), lambda _: None) as built:
            built.loop.run()
    events = export.run(spark)
    assert any(isinstance(one, SnapshotRead) for one in events), "a reset reads it again"
    assert export.rows() == newest(*EXPORT, SENT)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_and_stopped_processes_continue_where_the_table_says(
    export: Export, tmp_path: Path
) -> None:
    export.write([[(f"{n}", 10, "export"), (f"x{n}", 10, "export")] for n in range(12)])
    export.send(SENT)
    file, log = tmp_path / "pipeline.yaml", tmp_path / "events.jsonl"
    export.changes["run"] = {"alive_interval_s": 1.0}
    file.write_text(export.text())
    command = [sys.executable, "-m", "lakemark", "run", str(file), "--events", str(log)]

    def count(kind: str) -> int:
        return log.read_text().count(f'"{kind}"') if log.exists() else 0

    ends = [("BatchPlanned", signal.SIGKILL), ("BatchWritten", signal.SIGTERM)]
    ends += [("SnapshotRead", signal.SIGKILL)]
    for kind, end in ends:
        before = count(kind), count("Alive")
        with subprocess.Popen(
            [*command, "--continuous"], env=short_lived(), stdout=subprocess.DEVNULL
        ) as process:

            def has_come(kind: str = kind, before: tuple[int, int] = before) -> bool:
                # On a busy machine, an earlier process may have read more before its end.
                return count(kind) > before[0] or count("Alive") > before[1] + 2

            until(has_come, kind)
            process.send_signal(end)
        assert process.returncode == (0 if end is signal.SIGTERM else -end)
    subprocess.run([*command, "--once"], env=short_lived(), check=True, stdout=subprocess.DEVNULL)
    found = newest([(f"{n}", 10, "export") for n in range(12)], SENT)
    assert export.rows() == {**found, **{f"x{n}": (10, "export") for n in range(12)}}
    _assert_chain(export, 24)
