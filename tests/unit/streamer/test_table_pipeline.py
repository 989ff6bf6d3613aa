"""A pipeline from a table to a table: each change once, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from hypothesis import example, given, settings

import lakemark
from checkpoints.lookup import find_progress
from checkpoints.table_position import TablePosition
from lakemark.errors import InvalidConfig
from lakemark.model.action import COMMITS
from lakemark.model.meta_columns import RECORD_KEY, is_reserved
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.trial_folders import TrialFolders
from sinks.audit import Audit
from streamer import pipeline
from streamer.checks.doctor import doctor_checks
from streamer.cli import main
from streamer.config.errors import ConfigError
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.event_text import describe
from streamer.events import BatchWritten, Event, Retrying
from streamer.source_defaults import with_source_defaults
from streamer.sources.source import StreamSettings
from streamer.sources.tables.errors import (
    ForeignTable,
    ReadChangesUndone,
    SnapshotNotFinal,
    UnreadChangesLost,
)
from streamer.sources.tables.start import find_start
from tests.depth import examples
from tests.golden.shared_tables import SharedTables
from tests.tables import Row, make, writer
from tests.tables import commit as commit_rows
from tests.unit.operations.tables import FAST, SCHEMA, contents, rows
from tests.unit.operations.test_change_feed import KEYS, Step, create, steps, take

#: Settings of a table whose rows move between partitions.
MOVING = {"record_key": "id", "partition_by": "region", "partition_change": "move"}

ONCE = StreamSettings(mode="once", trigger_interval_s=0.0, scratch=Path())


class Killed(Exception):
    """The process dies here."""


@dataclass
class Copy:
    """A table that is read, and runs of a pipeline that copies it.

    Attributes:
        location: the table that is read.
        query: ``source.query``.
        table: settings of the table that is written.
        target: its location.
        more: other sections of the pipeline.
    """

    location: str
    query: str = "cdc"
    table: Mapping[str, object] = field(
        default_factory=lambda: {"record_key": "id", "partition_by": "region", "buckets": 1}
    )
    target: str = field(default_factory=lambda: f"memory://{uuid4().hex}/copy")
    more: Mapping[str, object] = field(default_factory=dict)

    def config(self, **source: object) -> PipelineConfig:
        given = {"kind": "table", "path": self.location, "query": self.query, **source}
        table = {"path": self.target, **self.table}
        run = {"mode": "once", "retry": {"backoff_s": 0.01, "max_attempts": 3}}
        return validated({"source": given, "table": table, "run": run, **self.more})

    def run(self, **source: object) -> list[int]:
        """Run until everything is read; return the number of records of each batch."""
        return [one.records_read for one in self.events(**source) if isinstance(one, BatchWritten)]

    def events(self, **source: object) -> list[Event]:
        """Run until everything is read; return the events."""
        events: list[Event] = []
        with pipeline.build(self.config(**source), events.append) as built:
            built.loop.run()
        return events

    def contents(self) -> dict[str, tuple[str, int, int]]:
        """Read the rows by key. A table gets its columns with its first rows."""
        return {} if self.opened.schema is None else contents(lakemark.open(self.target))

    def position(self) -> TablePosition:
        progress = find_progress(self.opened, self.opened.timeline)
        assert progress is not None
        assert isinstance(progress.checkpoint, TablePosition)
        return progress.checkpoint

    @property
    def opened(self) -> OpenTable:
        return open_table(StorageLocation(self.target))


def many(first: int, ts: int = 1) -> pa.Table:
    return rows(*((f"k{n:04}", "north", ts, ts) for n in range(first, first + 200)))


def test_first_run_reads_the_rows_and_the_next_run_only_the_changes() -> None:
    upstream = create("merge_on_read", "data_before", change="move")
    upstream.upsert(rows(("a", "north", 1, 1), ("b", "south", 1, 1)))
    upstream.upsert(rows(("a", "north", 2, 2)))
    copy = Copy(upstream.location)
    assert copy.run() == [2]
    assert copy.run() == []
    upstream.upsert(rows(("a", "south", 3, 3), ("c", "north", 3, 3)))
    upstream.delete(["b"])
    assert copy.run() == [4]  # the row that moved is deleted and inserted
    assert copy.contents() == contents(upstream) == {"a": ("south", 3, 3), "c": ("north", 3, 3)}
    assert copy.opened.schema == upstream._table.schema


def test_lines_of_a_run_name_the_snapshot_or_the_commit_that_was_read() -> None:
    upstream = create("merge_on_read", "data_before")
    first = upstream.upsert(rows(("a", "north", 1, 1))).instant
    copy = Copy(upstream.location)
    lines = [describe(event) for event in copy.events()]
    assert f"{upstream.location} [snapshot as of {first}] -> " in lines[0]
    assert lines[-1].endswith(f", next [after commit {first}]")
    lines = [describe(event) for event in copy.events()]
    assert f" resumes: {upstream.location} [after commit {first}] -> " in lines[0]


@pytest.mark.parametrize("mode", ["op_key_only", "data_before_after"])
@pytest.mark.parametrize("table_type", ["copy_on_write", "merge_on_read"])
@settings(max_examples=examples(2), deadline=None)
@given(history=steps)
def test_the_copy_follows_the_table_through_any_history(
    table_type: str, mode: str, history: list[Step]
) -> None:
    """A commit that was read and is rolled back is refused, and nothing is written."""
    upstream = create(table_type, mode, change="move")
    upstream.upsert(rows(*((key, "north", 0, 0) for key in KEYS)))
    copy, times = Copy(upstream.location), count(1)
    read: set[str] = set()
    for step in history:
        if step.operation == "read":
            copy.run(max_commits_per_batch=2)
            assert copy.contents() == contents(upstream)
            read = {one.requested_at for one in upstream.timeline.completed(*COMMITS)}
        elif step.operation == "rollback":
            newest = upstream.timeline.completed(*COMMITS)[-1].requested_at
            upstream.rollback(newest)
            if newest in read and copy.position().after.requested_at == newest:
                before = copy.contents()
                with pytest.raises(ReadChangesUndone, match=newest):
                    copy.run()
                assert copy.contents() == before
                return
        else:
            take(upstream, step, next(times))
    copy.run()
    assert copy.contents() == contents(upstream)


@settings(max_examples=examples(2), deadline=None)
@example(history=[Step("delete", frozenset(KEYS)), Step("read"), Step("upsert", frozenset("a"))])
@given(history=steps)
def test_a_copy_that_moves_rows_follows_the_table_through_any_history(history: list[Step]) -> None:
    """Its keys are unique in the whole table, and a batch may delete and insert the same key."""
    upstream = create("merge_on_read", "data_before", change="move")
    upstream.upsert(rows(*((key, "north", 0, 0) for key in KEYS)))
    copy, times = Copy(upstream.location, table=MOVING), count(1)
    for step in history:
        if step.operation == "read":
            copy.run(max_commits_per_batch=2)
            assert copy.contents() == contents(upstream)
        elif step.operation != "rollback":
            take(upstream, step, next(times))
    copy.run()
    assert copy.contents() == contents(upstream)


@settings(max_examples=examples(2), deadline=None)
@given(history=steps)
def test_an_incremental_copy_has_the_rows_of_a_table_without_deletes(history: list[Step]) -> None:
    upstream = create("merge_on_read", "data_before", change="move")
    copy, times = Copy(upstream.location, query="incremental", table=MOVING), count(1)
    upstream.upsert(rows(*((key, "north", 0, 0) for key in KEYS)))
    for step in history:
        if step.operation == "read":
            copy.run(max_commits_per_batch=1)
        elif step.operation not in ("delete", "overwrite", "rollback"):
            take(upstream, step, next(times))
    copy.run()
    assert copy.contents() == contents(upstream)
    assert copy.opened.properties.ordering_fields == ("ts",)


@pytest.mark.parametrize("dies_at", ["attempt", "_publish", "_serve_tables"])
@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("start_at", ["snapshot", "earliest"])
def test_a_run_that_is_killed_loses_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch, dies_at: str, number: int, start_at: str
) -> None:
    """The rows and the changes are divided among many batches, each of which may be the last."""
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=2)
    upstream.upsert(many(0))
    copy, small = Copy(upstream.location), {"max_bytes_per_batch": 1024, "start_at": start_at}
    config = copy.config(**small)
    with pipeline.build(config, lambda _: None) as built, monkeypatch.context() as m:
        owner: Any = built.sink._writer if dies_at != "_serve_tables" else built.loop
        original, calls = getattr(owner, dies_at), count()

        def dying(*arguments: Any) -> Any:
            if next(calls) == number:
                if dies_at == "_publish":
                    original(*arguments)
                raise Killed
            return original(*arguments)

        m.setattr(owner, dies_at, dying)
        with pytest.raises(Killed):
            built.loop.run()
    upstream.upsert(many(100, ts=2))
    upstream.delete([f"k{n:04}" for n in range(150)])
    assert len(copy.run(**small)) > 5
    assert copy.contents() == contents(upstream)
    assert _records_read(copy.opened) == 200 + 200 + 150


def _records_read(table: OpenTable) -> int:
    """Return the number of records in all commits; a record that is read twice counts twice."""
    commits = [table.store.read_commit(one) for one in table.timeline.completed(*COMMITS)]
    found = [Audit.in_commit(one.extra_metadata) for one in commits]
    return sum(one.records for one in found if one is not None)


def test_rows_that_a_compaction_has_reordered_are_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=1)
    upstream.upsert(many(0))
    copy = Copy(upstream.location)
    with pipeline.build(copy.config(max_bytes_per_batch=1024), lambda _: None) as built:
        stream = built.source.open_stream(built.source.start(None), ONCE, lambda end, gaps: ())
        batch = stream.plan(None, 0)
    assert batch is not None
    position = batch.end
    assert isinstance(position, TablePosition)
    assert position.part is not None
    other = replace(position, part=replace(position.part, digest=position.part.digest + 1))
    with pipeline.build(copy.config(), lambda _: None) as built:
        stream = built.source.open_stream(built.source.start(other), ONCE, lambda end, gaps: ())
        again = stream.plan(None, 0)
    assert again is not None
    assert again.planned_records == 200
    assert "have another order" in caplog.text


def test_a_table_that_lost_unread_changes_stops_the_run_with_a_remedy() -> None:
    upstream = create("copy_on_write", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 0, 0)))
    copy = Copy(upstream.location)
    copy.run()
    for ts in range(1, 9):
        upstream.upsert(rows(("a", "north", ts, ts)))
    upstream.clean(retain_commits=2)
    with pytest.raises(UnreadChangesLost, match=r"no longer be read.*lakemark checkpoint reset"):
        copy.run()
    upstream.archive(retain_commits=2, min_commits=3, max_commits=4)
    with pytest.raises(UnreadChangesLost, match=r"was archived.*lakemark checkpoint reset"):
        copy.run()
    assert copy.contents() == {"a": ("north", 0, 0)}


@pytest.mark.parametrize("start_at", ["earliest", "latest"])
def test_remedy_of_lost_changes_reads_the_rows_wherever_the_first_run_started(
    start_at: str,
) -> None:
    """With another start, the run after a reset would fail again, or skip what is unread."""
    upstream = create("copy_on_write", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 0, 0)))
    copy = Copy(upstream.location)
    copy.run(start_at=start_at)
    for ts in range(1, 9):
        upstream.upsert(rows(("a", "north", ts, ts)))
    upstream.archive(retain_commits=2, min_commits=3, max_commits=4)
    with pytest.raises(UnreadChangesLost, match=r"set source\.start_at: snapshot"):
        copy.run(start_at=start_at)


def test_a_snapshot_that_was_cleaned_before_it_was_read_stops_the_run() -> None:
    upstream = create("copy_on_write", "data_before", index="bucket", buckets=1)
    upstream.upsert(many(0))
    copy = Copy(upstream.location)
    with pipeline.build(copy.config(max_bytes_per_batch=1024), lambda _: None) as built:
        stream = built.source.open_stream(built.source.start(None), ONCE, lambda end, gaps: ())
        batch = stream.plan(None, 0)
        assert batch is not None
        for ts in range(2, 9):
            upstream.upsert(rows(("a", "north", ts, ts)))
        upstream.clean(retain_commits=2)
        stream = built.source.open_stream(built.source.start(batch.end), ONCE, lambda e, g: ())
        with pytest.raises(UnreadChangesLost, match="which were not read completely, are gone"):
            stream.plan(None, 0)


def test_a_restored_table_is_refused_until_its_copy_is_restored_too() -> None:
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 1, 1)))
    copy = Copy(upstream.location)
    copy.run()
    kept, own = upstream.timeline.completed(*COMMITS)[-1], copy.opened.timeline.completed(*COMMITS)
    upstream.upsert(rows(("a", "north", 2, 2), ("b", "north", 2, 2)))
    copy.run()
    upstream.restore(kept.requested_at)
    with pytest.raises(ReadChangesUndone, match="lakemark table restore"):
        copy.run()
    lakemark.open(copy.target).restore(own[-1].requested_at)
    upstream.upsert(rows(("c", "north", 3, 3)))
    copy.run()
    assert copy.contents() == contents(upstream)


def test_a_commit_that_is_undone_after_a_part_of_it_was_written_is_refused() -> None:
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 1, 1)))
    copy = Copy(upstream.location)
    copy.run()
    upstream.upsert(many(0))
    undone = upstream.timeline.completed(*COMMITS)[-1].requested_at
    _stop_after_one_batch(copy)
    part = copy.position().part
    assert part is not None
    assert part.name == undone
    before = copy.contents()
    assert 1 < len(before) < 201
    upstream.rollback(undone)
    with pytest.raises(ReadChangesUndone, match=undone):
        copy.run()
    assert copy.contents() == before


def _stop_after_one_batch(copy: Copy) -> None:
    """Run until one small batch is committed."""
    stops: list[bool] = []

    def stop(event: Event) -> None:
        if isinstance(event, BatchWritten):
            stops.append(built.loop.stop())

    with pipeline.build(copy.config(max_bytes_per_batch=1024), stop) as built:
        built.loop.run()
    assert len(stops) == 1


def test_a_snapshot_waits_for_a_pending_commit_and_includes_no_later_one() -> None:
    copy, pending = overlapping_writers()
    source: Any = copy.config().source
    with pytest.raises(SnapshotNotFinal):
        find_start(source, None)
    pending.abandon()
    found = find_start(source, None)
    assert found.checkpoint.snapshot is not None
    assert found.unread == 0


def overlapping_writers() -> tuple[Copy, TableWriter]:
    """Return a table with a commit, and the writer of an older commit, which is pending."""
    location = StorageLocation(f"memory://{uuid4().hex}/orders")
    storage = open_storage(location)
    make(storage)
    pending = writer(storage, multi_writer=FAST)
    pending.begin()
    commit_rows(writer(storage, multi_writer=FAST), [Row("b")])
    return Copy(location.url, query="incremental"), pending


def test_a_first_run_waits_until_a_state_of_the_table_is_final() -> None:
    copy, pending = overlapping_writers()
    config, retries = copy.config(), list[Retrying]()
    with pipeline.build(config, lambda _: None) as built, pytest.raises(SnapshotNotFinal):
        built.loop.run()
    checks = doctor_checks(with_source_defaults(config), TrialFolders())
    check = next(one for one in checks if one.name == "changes to resume from")
    assert "no commit is final" in check.run().warnings[0]

    def listen(event: Event) -> None:
        if isinstance(event, Retrying):
            retries.append(event)
            if len(retries) > config.run.retry.max_attempts:
                pending.abandon()
        elif isinstance(event, BatchWritten):
            built.loop.stop()

    run = config.run.model_copy(update={"mode": "continuous"})
    with pipeline.build(config.model_copy(update={"run": run}), listen) as built:
        built.loop.run()
    assert {one.error_type for one in retries} == {"SnapshotNotFinal"}
    assert copy.contents() == {"b": ("north", 0, 0)}


def test_runs_start_at_the_newest_commit_or_after_a_time() -> None:
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 1, 1)))
    first = upstream.timeline.completed(*COMMITS)[-1]
    latest, later = Copy(upstream.location), Copy(upstream.location)
    assert latest.run(start_at="latest") == []
    upstream.upsert(rows(("b", "north", 2, 2)))
    assert latest.run(start_at="latest") == [1]
    assert later.run(start_at=first.completed_at) == [1]
    assert latest.contents() == later.contents() == {"b": ("north", 2, 2)}


def test_columns_that_are_added_to_the_table_are_added_to_its_copy() -> None:
    upstream = create("copy_on_write", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 1, 1)))
    copy = Copy(upstream.location)
    copy.run()
    wider = SCHEMA.set(3, pa.field("v", pa.int64())).append(pa.field("note", pa.string()))
    row = {"id": "b", "region": "north", "ts": 2, "v": 1 << 40, "note": "new"}
    upstream.upsert(pa.Table.from_pylist([row], wider), add_columns=True)
    copy.run()
    assert lakemark.open(copy.target).scan(where="id = 'b'").to_table().select(
        wider.names
    ).to_pylist() == [row]


def test_a_copy_without_the_ordering_column_of_the_table_is_refused_with_a_remedy() -> None:
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 1, 1)))
    copy = Copy(upstream.location, query="incremental")
    columns = {"id": "string", "region": "string", "ts": "bigint", "v": "int"}
    copy.more = {
        "decode": {"schema": columns},
        "transform": [{"step": "drop", "columns": ["ts"]}],
    }
    told = r"table\.ordering: 'ts' is not a column of the rows \(id, region, v\).*set table"
    with pytest.raises(ConfigError, match=told):
        copy.run()
    copy.table = {**copy.table, "ordering": "v"}
    assert copy.run() == [1]


def test_a_copy_may_be_partitioned_by_the_expression_of_the_table() -> None:
    schema = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC"))])
    upstream = lakemark.create(
        f"memory://{uuid4().hex}/events", schema=schema, record_key="id", partition_by="day(at)"
    )
    upstream.upsert(pa.Table.from_pylist([{"id": "a", "at": 86_400_000_000}], schema))
    table = {"record_key": "id", "partition_by": "day(at)"}
    copy = Copy(upstream.location, query="incremental", table=table)
    assert copy.run() == [1]
    read = lakemark.open(copy.target).scan().to_table()
    assert read.select(["id", "at_day"]).equals(upstream.scan().to_table().select(["id", "at_day"]))


def test_an_upsert_after_a_delete_may_have_a_smaller_ordering_value() -> None:
    """A copy-on-write table forgets the delete, but the log of its copy has it."""
    upstream = create("copy_on_write", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 9, 1)))
    copy = Copy(upstream.location)
    copy.run()
    upstream.delete(["a"])
    copy.run()
    assert copy.contents() == {}
    upstream.upsert(rows(("a", "north", 3, 2)))
    copy.run()
    assert copy.contents() == contents(upstream) == {"a": ("north", 3, 2)}


@pytest.mark.parametrize(
    "name", ["v6_cow_cdc_data_before", "v9_cow_cdc_replaced", "v9_mor_cdc_data_before"]
)
@pytest.mark.parametrize("start_at", ["earliest", "snapshot"])
def test_a_table_of_apache_hudi_is_copied(
    shared_tables: SharedTables, name: str, start_at: str
) -> None:
    golden = shared_tables[name].table
    properties = golden.properties
    table = {
        "record_key": list(properties.record_key_fields),
        "partition_by": list(properties.partition_fields),
        "buckets": 1,
    }
    copy = Copy(golden.location.url, table=table)
    copy.run(start_at=start_at)
    assert _rows_by_key(copy.opened) == _rows_by_key(golden)


def _rows_by_key(table: OpenTable) -> dict[object, dict[str, Any]]:
    found = table.scan().to_table().to_pylist()
    return {
        row[RECORD_KEY]: {name: one for name, one in row.items() if not is_reserved(name)}
        for row in found
    }


def test_a_position_of_another_table_or_source_is_refused() -> None:
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=1)
    upstream.upsert(rows(("a", "north", 1, 1)))
    copy = Copy(upstream.location)
    copy.run()
    other = create("merge_on_read", "data_before", index="bucket", buckets=1)
    other.upsert(rows(("a", "north", 1, 1)))
    with pytest.raises(ForeignTable, match=r"does not belong to source\.path"):
        copy.run(path=other.location)


def test_the_checkpoint_of_apache_hudis_source_of_tables_is_continued(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upstream = create("merge_on_read", "data_before", index="bucket", buckets=1)
    for ts in range(3):
        upstream.upsert(rows((f"{ts}", "north", ts, ts)))
    second = upstream.timeline.completed(*COMMITS)[-2]
    position = TablePosition.parse(str(second.completed_at))
    source: Any = Copy(upstream.location).config().source
    found = find_start(source, position)
    assert (found.unread, found.checkpoint.table) == (1, upstream.location)
    assert "position of another program" in caplog.text


@pytest.mark.parametrize(
    ("source", "table", "told"),
    [
        ({"query": "snapshot"}, {}, "source.query"),
        ({"start_at": "yesterday"}, {}, "expected snapshot, earliest, latest or a time"),
        ({}, {"operation": "insert"}, "table.operation: must be upsert"),
        ({}, {"path": "memory://x/orders/"}, "a table cannot be its own source"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    source: Mapping[str, object], table: Mapping[str, object], told: str
) -> None:
    tree = {
        "source": {"kind": "table", "path": "memory://x/orders", "query": "cdc", **source},
        "table": {"path": "memory://x/copy", "record_key": "id", **table},
    }
    with pytest.raises(ConfigError, match=told):
        validated(tree)


def test_a_table_without_change_data_is_refused_for_cdc() -> None:
    upstream = lakemark.create(f"memory://{uuid4().hex}/o", schema=SCHEMA, record_key="id")
    with pytest.raises(InvalidConfig, match="keeps no change data"):
        Copy(upstream.location).run()


def test_commands_check_and_preview_a_pipeline_that_reads_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream = lakemark.create(
        tmp_path / "orders", schema=SCHEMA, record_key="id", ordering="ts", cdc="op_key_only"
    )
    upstream.upsert(rows(("first order", "north", 1, 1)))
    tree = {
        "source": {"kind": "table", "path": upstream.location, "query": "cdc"},
        "table": {"path": str(tmp_path / "copy"), "record_key": "id"},
        "run": {"mode": "once"},
    }
    file = tmp_path / "copy.yaml"
    file.write_text(yaml.safe_dump(tree))
    assert main(["validate", str(file)]) == 0
    assert "changes to resume from" in capsys.readouterr().err
    assert main(["doctor", str(file)]) == 0
    assert "infers the columns from what it reads; lakemark preview" in capsys.readouterr().out
    assert main(["preview", str(file)]) == 0
    assert "first order" in capsys.readouterr().out
    assert not (tmp_path / "copy").exists()
    assert main(["run", str(file)]) == 0
    upstream.upsert(rows(("second order", "north", 1, 1)))
    assert main(["preview", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "second order" in shown
    assert "first order" not in shown
    assert main(["doctor", str(file), "--json"]) == 0
    report = {row["check"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert report[f"source {upstream.location}"]["text"] == "query cdc, 4 columns"
    assert report["changes to resume from"]["text"] == "1 unread commit"
    upstream.rollback(upstream.timeline.completed(*COMMITS)[-1].requested_at)
    upstream.rollback(upstream.timeline.completed(*COMMITS)[-1].requested_at)
    assert main(["doctor", str(file), "--json"]) != 0
    report = {row["check"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert "was undone" in report["changes to resume from"]["text"]
