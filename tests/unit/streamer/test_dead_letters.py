"""``lakemark dead-letters`` counts, shows and replays the records of a dead-letter table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from lakemark.config.table_properties import MergeMode
from lakemark.config.table_spec import TableSpec
from lakemark.model.action import COMMITS
from lakemark.operations.create import create_table
from lakemark.operations.metadata_table import metadata_differences
from lakemark.operations.open_table import open_table
from lakemark.operations.table_writer import TableWriter
from lakemark.storage import StorageLocation, open_storage
from streamer.cli import FAILED, MISUSED, OK, main
from streamer.commands.dead_letters import as_text, mask_values
from streamer.config.load import load, validated
from streamer.events import ignore
from streamer.pipeline import open_sink
from streamer.pipeline_hooks import pipeline_hooks
from streamer.sources.kafka import KafkaSource
from tests.fixtures.webhook import Webhook
from tests.json_stream import InThisProcess, Record, kafka_batch
from tests.tables import Row, commit, make, writer

RECORDS: tuple[Record, ...] = (
    {"id": "a", "ts": 1, "price": "1.5"},
    {"id": "b", "ts": "x"},
    {"id": "c", "ts": "y"},
    b"\xff\x00",
    {"id": "d", "ts": 1, "price": "cheap"},
    {"ts": 1},
)

#: Steps in which no price fails, and which return the same columns.
CORRECTED = (
    "transform=[{step: sql, query: 'select id, ts, try_cast(price as decimal(10,2)) as price "
    "from records'}]"
)


class _Topic:
    def start(self, _: None) -> None:
        """Raise no error."""


class Pipeline:
    """A pipeline in a file, which has written one batch of records."""

    def __init__(self, folder: Path, records: Sequence[Record] = RECORDS, **table: object) -> None:
        self.file, self.table = str(folder / "orders.yaml"), str(folder / "orders")
        tree: dict[str, Any] = {
            "source": {"bootstrap_servers": "localhost:9092", "topic": "orders"},
            "decode": {"schema": {"id": "string", "ts": "bigint", "price": "string"}},
            "transform": [{"step": "cast", "columns": {"price": "decimal(10,2)"}}],
            "table": {"path": self.table, "record_key": ["id"], "ordering": ["ts"], **table},
            "dead_letters": {"tolerated": 100},
            "concurrency": {"clock_skew_ms": 0},
        }
        Path(self.file).write_text(json.dumps(tree))
        sink, self.writers = open_sink(validated(tree), cast(KafkaSource, _Topic()))
        sink.recover()
        sink.checkpoint()
        sink.write(kafka_batch("orders", 0, records), InThisProcess())
        self.sink = sink

    @property
    def rows(self) -> TableWriter:
        return self.writers[0]

    def ids(self) -> list[str]:
        rows = open_table(StorageLocation(self.table)).scan(columns=["id"]).to_table()
        return sorted(rows.column("id").to_pylist())


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path)


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_letters_are_counted_by_code_step_and_reason_without_the_values(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dead-letters", "list", pipeline.file, "--json"]) == OK
    listed = printed(capsys)
    assert {(one["code"], one["step"]): one["records"] for one in listed} == {
        ("invalid_value", "decode"): 2,
        ("invalid_message", "decode"): 1,
        ("transform_failed", "transform.0.cast"): 1,
        ("missing_key", "key"): 1,
    }
    assert "…" in listed[0]["reason"]
    assert listed[0]["such_as"] == "orders:0:1"
    assert listed[0]["first"] == listed[0]["last"]
    of_table = ["dead-letters", "list", f"{pipeline.table}_dead_letters", "--json"]
    assert main([*of_table, "--where", "column = 'price'"]) == OK
    assert [one["code"] for one in printed(capsys)] == ["transform_failed"]


@pytest.mark.parametrize("view", ["list", "show"])
def test_a_table_without_letters_names_the_command_that_shows_rejects_of_a_stopped_run(
    tmp_path: Path, view: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Pipeline(tmp_path, records=[{"id": "1", "ts": 1, "price": "1"}]).file
    assert main(["dead-letters", view, file]) == OK
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("no dead letters; a run that stops because too many records")
    assert "lakemark preview shows" in shown


@pytest.mark.parametrize("view", ["list", "show"])
def test_a_condition_without_letters_is_not_reported_as_a_table_without_letters(
    pipeline: Pipeline, view: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = ["dead-letters", view, pipeline.file, "--where", "offset = 77"]
    for options, shown in (
        ([], "no unresolved dead letter matches --where, but there are others; --all also shows"),
        (["--all"], "no dead letter matches --where, but there are others"),
    ):
        assert main([*nowhere, *options]) == OK
        assert " ".join(capsys.readouterr().out.split()).startswith(shown)


def test_letters_are_shown_with_their_raw_records(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    show = ["dead-letters", "show", pipeline.file, "--json"]
    assert main([*show, "--where", "code = 'invalid_message'"]) == OK
    (letter,) = printed(capsys)
    assert (letter["origin"], letter["value"], letter["attempts"]) == ("orders:0:3", "0xff00", 1)
    assert main([*show, "--where", "code = 'transform_failed'"]) == OK
    (letter,) = printed(capsys)
    assert json.loads(letter["value"]) == RECORDS[4]
    assert letter["column"] == "price"
    assert main([*show, "--limit", "2"]) == OK
    assert len(printed(capsys)) == 2


def test_letters_are_printed_with_one_field_per_line(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    show = ["dead-letters", "show", pipeline.file, "--where", "code = 'transform_failed'"]
    assert main(show) == OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "origin     orders:0:4"
    assert '    "price": "cheap"' in lines
    assert not any(line.startswith("resolved at") for line in lines)


def test_a_record_whose_time_python_lacks_becomes_a_letter(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some producers set microseconds, and Kafka takes them for milliseconds."""
    batch = kafka_batch("orders", len(RECORDS), [b"broken"])
    records = cast(pa.Table, batch.records)
    times = pa.array([1_700_000_000_000_000_000], pa.timestamp("us", "UTC"))
    records = records.set_column(records.schema.get_field_index("timestamp"), "timestamp", times)
    late = replace(batch, records=cast(DataFrame, records))
    assert pipeline.sink.write(late, InThisProcess()).rejected == 1
    where = f"offset = {len(RECORDS)}"
    assert main(["dead-letters", "show", pipeline.file, "--json", "--where", where]) == OK
    (letter,) = printed(capsys)
    assert letter["value"] == "broken"
    assert letter["timestamp"].startswith("55840-11-08")
    assert main(["dead-letters", "list", pipeline.file, "--json", "--where", where]) == OK
    (group,) = printed(capsys)
    assert group["last"] == letter["timestamp"]


def test_letters_are_replayed_with_the_current_pipeline(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    replay = ["dead-letters", "replay", pipeline.file, "--json"]
    assert main([*replay, "--dry-run", "--where", "offset > 3"]) == OK
    assert {(one["result"], one["code"]) for one in printed(capsys)} == {
        ("fails", "transform_failed"),
        ("fails", "missing_key"),
    }
    replay += ["--set", CORRECTED]
    assert main([*replay, "--dry-run"]) == OK
    output = capsys.readouterr()
    assert json.loads(output.out.splitlines()[0])["records"] == 1
    assert "nothing was changed" in output.err
    assert pipeline.ids() == ["a"]
    assert main(replay) == OK
    output = capsys.readouterr()
    assert json.loads(output.out.splitlines()[0])["result"] == "passes"
    assert "the rows were committed in" in output.err
    assert pipeline.ids() == ["a", "d"]


def _announcing(webhook: Webhook) -> str:
    options = json.dumps({"url": webhook.url})
    return f"hooks=[{{kind: http, options: {options}}}]"


def test_replay_is_announced_to_the_hooks(pipeline: Pipeline, webhook: Webhook) -> None:
    replay = ["dead-letters", "replay", pipeline.file, "--set", _announcing(webhook)]
    assert main([*replay, "--set", CORRECTED, "--dry-run"]) == OK
    assert webhook.messages == []
    assert main([*replay, "--set", CORRECTED]) == OK
    (message,) = webhook.messages
    newest = open_table(StorageLocation(pipeline.table)).timeline.completed(*COMMITS)[-1]
    assert message["instant"] == newest.requested_at
    numbers = ("records_replayed", "rows_written", "records_read", "records_rejected")
    assert [message[name] for name in numbers] == [1, 1, None, None]
    assert message["source"] == {"kind": "kafka", "name": "orders", "position": None}
    assert main([*replay, "--set", CORRECTED]) == OK  # nothing passes, so nothing is announced
    assert len(webhook.messages) == 1


def test_replay_whose_receiver_fails_reports_it_and_the_next_start_announces_its_commit(
    pipeline: Pipeline, webhook: Webhook, capsys: pytest.CaptureFixture[str]
) -> None:
    webhook.status = 503
    hook = ["--set", _announcing(webhook)]
    assert main(["dead-letters", "replay", pipeline.file, *hook, "--set", CORRECTED]) == OK
    assert "hook http failed (1 failure), retrying in" in capsys.readouterr().err
    webhook.status = 200
    config = load(pipeline.file, hook[1:])
    table = open_table(StorageLocation(pipeline.table))
    hooks = pipeline_hooks(config, ignore)
    with hooks.until_end():
        hooks.begin(table)
        hooks.catch_up()
    assert webhook.instants == [table.timeline.completed(*COMMITS)[-1].requested_at]


def test_rules_are_reported_and_so_is_what_was_done_before_one_stops_the_replay(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.hudi.replay.ROUND_LETTERS", 3)
    replay = ["dead-letters", "replay", pipeline.file, "--json", "--set", CORRECTED, "--set"]
    rule = "expect=[{rule: price is not null, otherwise: %s}]"
    assert main([*replay, rule % "fail"]) == FAILED
    output = capsys.readouterr()
    reported = [json.loads(line) for line in output.out.splitlines()]
    assert sum(one["records"] for one in reported) == 3
    assert "the replay has stopped early" in output.err
    assert "these dead letters were not replayed" in output.err
    for options, verb in (["--dry-run"], "would be"), ([], "were"):
        assert main([*replay, rule % "warn", *options]) == OK
        note = f"rows that violate a rule {verb} written: price is not null: 1 row (warn)"
        assert f"{note} of record orders 0:4" in capsys.readouterr().err


def test_resolved_letters_are_shown_on_request(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dead-letters", "replay", pipeline.file, "--set", CORRECTED]) == OK
    capsys.readouterr()
    show = ["dead-letters", "show", pipeline.file, "--json", "--where", "offset = 4"]
    assert main(show) == OK
    assert printed(capsys) == []
    assert main([*show, "--all"]) == OK
    (letter,) = printed(capsys)
    assert letter["replayed_in"]
    assert letter["resolved_at"]


def test_replay_is_refused_while_the_pipeline_may_be_writing(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline in ``mode: single_writer`` emits no heartbeats."""
    pipeline.rows.begin()
    assert main(["dead-letters", "replay", pipeline.file]) == FAILED
    assert "stop the pipeline first" in capsys.readouterr().err
    pipeline.rows.abandon()
    assert main(["dead-letters", "replay", pipeline.file]) == OK


@pytest.mark.parametrize("setting", ["metadata_table=false", "drop_metadata_table=true"])
def test_replay_keeps_the_metadata_tables(pipeline: Pipeline, setting: str) -> None:
    """Only a start of the pipeline drops them."""
    tables = [writer.table.location for writer in pipeline.writers]
    built = [open_storage(one).list_folder(".hoodie/metadata") for one in tables]
    replay = ["dead-letters", "replay", pipeline.file, "--set", f"table.{setting}"]
    assert main([*replay, "--dry-run"]) == OK
    assert main([*replay, "--where", "no_such_column = 1"]) != OK
    pipeline.rows.begin()
    assert main(replay) == FAILED
    pipeline.rows.abandon()
    assert [open_storage(one).list_folder(".hoodie/metadata") for one in tables] == built
    assert main([*replay, "--set", CORRECTED]) == OK
    for location in tables:
        table = open_table(location)
        assert table.properties.names_metadata_table
        assert metadata_differences(table) == []


@pytest.mark.parametrize(
    ("stored_ordering", "table", "reason"),
    [
        ((), {"ordering": []}, "has no ordering"),
        (("ts",), {"ordering": []}, "in the order of its commits, and not by its ordering (ts)"),
        ((), {"merger": "tests.stream.quantity_merger:QuantityMerger"}, "by a custom merger"),
    ],
    ids=["no ordering", "ordering that the merge mode ignores", "custom merger"],
)
def test_replay_into_a_table_that_does_not_compare_event_times_must_be_confirmed(
    stored_ordering: tuple[str, ...],
    table: dict[str, Any],
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if stored_ordering:  # as Apache Hudi does
        mode = MergeMode.COMMIT_TIME
        spec = TableSpec(
            name="orders", record_key=("id",), ordering=stored_ordering, merge_mode=mode
        )
        create_table(StorageLocation(str(tmp_path / "orders")), spec)
    pipeline = Pipeline(tmp_path, **table)
    replay = ["dead-letters", "replay", pipeline.file]
    assert main(replay) == FAILED
    error = capsys.readouterr().err
    assert reason in error and "--overwrite-newer" in error
    assert main([*replay, "--overwrite-newer"]) == OK


def test_replay_needs_dead_letters_and_a_shared_lock(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    replay = ["dead-letters", "replay", pipeline.file, "--set"]
    assert main([*replay, "dead_letters={enabled: false}"]) == MISUSED
    assert "dead_letters.enabled is false" in capsys.readouterr().err
    assert main([*replay, "concurrency.lock.provider=in_process"]) == MISUSED
    assert "concurrency.lock.provider=storage" in capsys.readouterr().err
    assert main([*replay, f"table.path={pipeline.table}_2"]) == FAILED
    assert "nothing to replay" in capsys.readouterr().err


def test_masked_reason_keeps_the_column() -> None:
    reasons = {
        "column 'a1': text 'x' is not a timestamp (ISO-8601, or 13 digits)",
        "column 'a1': text '7' is not a timestamp (ISO-8601, or 13 digits)",
        "column 'b': 2026-05-01 12:30:05.5 does not fit",
        "field 'c' is not declared, and decode.unknown_fields is reject",
    }
    assert {mask_values(reason) for reason in reasons} == {
        "column 'a1': text … is not a timestamp (ISO-8601, or … digits)",
        "column 'b': … … does not fit",
        "field 'c' is not declared, and decode.unknown_fields is reject",
    }


def test_bytes_that_are_not_text_are_shown_as_digits() -> None:
    assert [as_text(content) for content in (None, b"", "ä".encode(), b"\xe4")] == [
        None,
        "",
        "ä",
        "0xe4",
    ]


def test_other_tables_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = open_storage(StorageLocation(str(tmp_path / "t")))
    make(storage)
    commit(writer(storage), [Row("a")])
    assert main(["dead-letters", "list", str(tmp_path / "t")]) == MISUSED
    assert "is not a dead-letter table" in capsys.readouterr().err
