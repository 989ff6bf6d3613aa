"""One topic, many tables: each record is once in the table that its route names."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow as pa
import pytest
import yaml

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from checkpoints.lookup import find_progress
from checkpoints.progress import Progress
from lakemark.errors import CorruptData, HudiError, Permanent, Retriable
from lakemark.model.action import COMMITS
from lakemark.model.meta_columns import without_meta_columns
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from sinks.audit import Audit, OffsetGap
from sinks.batch import BatchResult, KafkaBatch
from sinks.routed.position_store import PositionsMoved, PositionStore
from sinks.routed.sink import OtherRoute, RoutedSink
from streamer import catalog_sync
from streamer.cli import main
from streamer.config.metrics import MetricsConfig
from streamer.config.pipeline import PipelineConfig
from streamer.events import BatchWritten, OffsetsLost, Retrying, RunFailed
from streamer.routing.opened_table import OpenedTable
from streamer.routing.template import RouteTemplate
from streamer.sources.kafka_offsets import LostRange, OffsetRange
from tests.depth import sample
from tests.routed_stream import TOPIC, Killed, Process, RoutedTopic, watched
from transforms.decode.decode_result import DecodeResult
from transforms.decode.json import JsonDecoder


def order(number: int, kind: object = "orders") -> Mapping[str, object]:
    return {"id": str(number), "type": kind, "n": number}


def numbers(*some: int) -> list[str]:
    return sorted(map(str, some))


@pytest.fixture
def topic(tmp_path: Path) -> RoutedTopic:
    return RoutedTopic(tmp_path)


def commits_of(topic: RoutedTopic, table: str) -> int:
    opened = open_table(StorageLocation(str(topic.folder / table)))
    return len(opened.timeline.completed(*COMMITS))


def columns_of(topic: RoutedTopic, table: str) -> set[str]:
    schema = open_table(StorageLocation(str(topic.folder / table))).schema
    assert schema is not None
    return {*without_meta_columns(schema).names}


def write_pipeline(topic: RoutedTopic, folder: Path) -> str:
    """Write the pipeline of a topic to a file, and return its path."""
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(topic.sections()))
    return str(file)


def test_records_go_to_the_table_that_their_field_names(topic: RoutedTopic) -> None:
    topic.send(order(0), order(1, "returns"), order(2), order(3, "returns"), order(4, "Orders"))
    topic.run(batch_size=2)
    assert topic.rows("orders") == numbers(0, 2)
    assert topic.rows("returns") == numbers(1, 3)
    assert topic.rows("Orders") == numbers(4)


@pytest.mark.parametrize(("unknown_fields", "times"), [("ignore", 1), ("evolve", 2)])
def test_values_are_decoded_once_if_all_tables_decode_them_in_the_same_way(
    topic: RoutedTopic, monkeypatch: pytest.MonkeyPatch, unknown_fields: str, times: int
) -> None:
    columns = {"id": "string", "type": "string", "n": "bigint"}
    topic.settings = {"decode": {"schema": columns, "unknown_fields": unknown_fields}}
    topic.send(*(order(number, f"kind{number % 3}") for number in range(30)))
    decode, count = JsonDecoder.decode, 0

    def counting(decoder: JsonDecoder, values: pa.Array | pa.ChunkedArray) -> DecodeResult:
        nonlocal count
        count += len(values)
        return decode(decoder, values)

    monkeypatch.setattr(JsonDecoder, "decode", counting)
    topic.run()
    assert count == times * 30
    assert topic.rows("kind1") == numbers(*range(1, 30, 3))
    topic.send(*(order(number, f"kind{number % 3}") for number in range(30, 60)))
    topic.run()
    assert count == times * 60, "the tables exist"
    assert topic.rows("kind1") == numbers(*range(1, 60, 3))


def test_records_go_to_the_table_that_their_header_names(topic: RoutedTopic) -> None:
    topic.route = {"header": "table"}
    topic.send(order(0), order(1), header="a")
    topic.send(order(2), header="b")
    topic.send(order(3))
    topic.run()
    assert (topic.rows("a"), topic.rows("b")) == (numbers(0, 1), numbers(2))
    assert topic.letters() == {"missing_route": 1}


def test_dead_letters_of_the_stream_and_of_a_table_are_listed_by_the_pipeline_file(
    topic: RoutedTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.send({"id": "0"}, order(1, "a"), {"id": [], "type": "a"})
    topic.run()
    file = write_pipeline(topic, tmp_path)
    codes = []
    for chosen in ([], ["--set", "route.value=a"]):
        capsys.readouterr()
        assert main(["dead-letters", "list", file, *chosen, "--json"]) == 0
        codes.append(json.loads(capsys.readouterr().out)["code"])
    assert codes == ["missing_route", "invalid_value"]


def test_an_empty_list_of_a_routed_pipeline_names_no_command_that_refuses_routes(
    topic: RoutedTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.send(order(0, "a"))
    topic.run()
    file = write_pipeline(topic, tmp_path)
    capsys.readouterr()
    assert main(["dead-letters", "list", file, "--set", "route.value=a"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("no dead letters; ")
    assert shown.endswith("but its error shows the first of them")


def test_a_stream_without_dead_letters_is_no_error(
    topic: RoutedTopic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.send(order(0, "a"))
    topic.run()
    file = write_pipeline(topic, tmp_path)
    capsys.readouterr()
    assert main(["dead-letters", "list", file]) == 0
    assert "--set route.value=NAME shows those of one" in capsys.readouterr().out
    assert main(["dead-letters", "list", file, "--json"]) == 0
    assert capsys.readouterr().out == ""


def test_a_field_inside_an_object_names_the_table(topic: RoutedTopic) -> None:
    topic.route = {"field": "meta.kind"}
    topic.send({"id": "0", "meta": {"kind": "a", "other": 1}}, {"id": "1", "meta": {"kind": "b"}})
    topic.send({"id": "2", "meta": None}, {"id": "3"}, {"id": "4", "meta": 5})
    topic.run()
    assert (topic.rows("a"), topic.rows("b")) == (["0"], ["1"])
    assert topic.letters() == {"missing_route": 2, "invalid_value": 1}


def test_a_table_without_records_in_a_batch_makes_no_commit(topic: RoutedTopic) -> None:
    topic.send(order(0, "rare"), order(1))
    topic.run()
    for number in range(2, 8):
        topic.send(order(number))
        topic.run()
    assert commits_of(topic, "rare") == 1
    topic.send(order(9, "rare"))
    topic.run()
    assert topic.rows("rare") == numbers(0, 9)


def test_commit_of_a_table_records_its_position_and_its_numbers(topic: RoutedTopic) -> None:
    topic.send(*(order(n, "orders" if n % 4 == 0 else "returns") for n in range(12)))
    topic.run()
    table = open_table(StorageLocation(str(topic.folder / "orders")))
    progress = find_progress(table, table.timeline)
    assert progress is not None
    assert progress.checkpoint == KafkaCheckpoint(TOPIC, {0: 6, 1: 6})
    newest = table.newest_metadata()
    audited = Audit.in_commit(newest.extra_metadata) if newest else None
    assert audited is not None
    assert (audited.records, audited.written, audited.elsewhere, audited.skipped) == (3, 3, 2, 0)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (order(9, ".."), "invalid_route"),
        (order(9, "a/b"), "invalid_route"),
        (order(9, ""), "invalid_route"),
        (order(9, "a\nb"), "invalid_route"),
        (order(9, "a" * 256), "invalid_route"),
        (order(9, "ä"), "invalid_route"),
        (order(9, "orders_dead_letters"), "invalid_route"),
        (order(9, f"{TOPIC}_dead_letters"), "invalid_route"),
        (order(9, None), "missing_route"),
        ({"id": "9"}, "missing_route"),
        (order(9, 7), "invalid_value"),
        (b"{", "invalid_message"),
        (None, "missing_route"),
    ],
)
def test_record_without_a_table_becomes_a_dead_letter_with_its_value(
    topic: RoutedTopic, value: Mapping[str, object] | bytes | None, code: str
) -> None:
    topic.send(order(0), value, order(2))
    topic.run(batch_size=1)
    topic.run()
    assert topic.rows("orders") == numbers(0, 2)
    assert topic.letters() == {code: 1}
    sent = json.dumps(value).encode() if isinstance(value, Mapping) else value
    assert topic.rows(f"{TOPIC}_dead_letters", "value") == [sent]
    assert topic.rows(f"{TOPIC}_dead_letters", "stage") == ["route"]
    assert {one.name for one in topic.folder.iterdir()} == {
        ".lakemark",
        "orders",
        "orders_dead_letters",
        f"{TOPIC}_dead_letters",
    }


@pytest.mark.parametrize("allow", [["orders", "returns"], "orders|returns"])
def test_values_that_are_not_allowed_become_dead_letters(topic: RoutedTopic, allow: object) -> None:
    topic.route = {"field": "type", "allow": allow}
    topic.send(order(0), order(1, "other"), order(2, "returns"), order(3, "orders2"))
    topic.run()
    assert (topic.rows("orders"), topic.rows("returns")) == (numbers(0), numbers(2))
    assert topic.letters() == {"route_not_allowed": 2}


def test_records_without_a_value_go_to_the_default_table(topic: RoutedTopic) -> None:
    topic.route = {"field": "type", "default": "others", "allow": ["orders"]}
    topic.send(order(0), order(1, None), {"id": "2"}, order(3, "others"), order(4, "returns"))
    topic.run()
    assert (topic.rows("orders"), topic.rows("others")) == (numbers(0), numbers(1, 2, 3))
    assert topic.letters() == {"route_not_allowed": 1}


def test_further_tables_than_allowed_are_never_created(tmp_path: Path) -> None:
    topic = RoutedTopic(tmp_path, num_partitions=1, route={"field": "type", "max_tables": 2})
    topic.send(order(0, "a"), order(1, "b"), order(2, "c"))
    topic.run()
    topic.send(order(3, "c"), order(4, "a"))
    topic.run()
    assert (topic.rows("a"), topic.rows("b"), topic.rows("c")) == (["0", "4"], ["1"], [])
    assert topic.letters() == {"too_many_tables": 2}


def test_ignored_tombstones_belong_to_no_table(topic: RoutedTopic) -> None:
    topic.settings = {"decode": {"tombstones": "ignore"}}
    topic.send(order(0), None, None, order(1))
    topic.run()
    assert topic.rows("orders") == numbers(0, 1)
    assert not topic.letters()


def test_ignored_tombstones_whose_header_names_a_table_belong_to_none(topic: RoutedTopic) -> None:
    topic.route = {"header": "table", "allow": ["orders", "returns"]}
    topic.settings = {"decode": {"tombstones": "ignore"}}
    topic.send(order(0), None, header="orders")
    topic.send(None, header="returns")
    topic.send(None, header="others")
    topic.run()
    assert topic.rows("orders") == numbers(0)
    assert not (topic.folder / "returns").exists()
    assert not topic.letters()
    batches = [one for _, one in topic.events if isinstance(one, BatchWritten)]
    assert [one.records_read for one in batches] == [1]


def test_tombstones_of_a_table_that_has_no_columns_yet_delete_nothing(tmp_path: Path) -> None:
    topic = RoutedTopic(tmp_path, num_partitions=1, route={"header": "table"})
    topic.settings = {"decode": {"schema": "infer"}}
    topic.send(None, header="orders")
    sink = topic.run()
    assert not sink.set_aside
    assert not (topic.folder / "orders").exists()
    topic.send(order(1), header="orders")
    topic.run(sink)
    assert topic.rows("orders") == numbers(1)
    topic.send(None, header="returns")
    topic.run()
    topic.send(order(2), header="returns")
    topic.run()
    assert topic.rows("returns") == numbers(2)


def test_each_table_infers_columns_from_its_first_records_and_adds_its_own(
    topic: RoutedTopic,
) -> None:
    topic.settings = {"decode": {"schema": "infer", "unknown_fields": "evolve"}}
    topic.send({"id": "0", "type": "a", "x": 1}, {"id": "1", "type": "b", "y": "text"})
    topic.run()
    topic.send({"id": "2", "type": "a", "z": 2.5})
    topic.run()
    assert columns_of(topic, "a") == {"id", "type", "x", "z"}
    assert columns_of(topic, "b") == {"id", "type", "y"}
    assert topic.rows("b", "y") == ["text"]


def test_too_many_unusable_first_records_set_their_table_aside(tmp_path: Path) -> None:
    topic = RoutedTopic(tmp_path, route={"header": "table"})
    topic.settings = {"decode": {"schema": "infer"}, "dead_letters": {"max_share": 0.5}}
    topic.send(*([b"{"] * 10), header="orders")
    topic.send({"id": "1"}, header="others")
    sink = topic.run()
    assert [*sink.set_aside] == ["orders"]
    assert "10 of 10 records were rejected" in str(sink.set_aside["orders"])
    assert topic.rows("others") == numbers(1)


def test_first_records_that_show_no_columns_become_dead_letters_of_their_table(
    tmp_path: Path,
) -> None:
    topic = RoutedTopic(tmp_path, num_partitions=1, route={"header": "table"})
    topic.settings = {"decode": {"schema": "infer"}}
    topic.send(b"{", {"id": None, "n": 1}, None, {"n": 2}, header="orders")
    sink = topic.run()
    assert not sink.set_aside
    assert topic.rows("orders_dead_letters", "code") == [
        "invalid_message",
        "missing_key",
        "missing_key",
    ]
    topic.send({"id": "3", "n": 3}, b"[", header="orders")
    topic.run(sink)
    assert topic.rows("orders") == numbers(3)
    assert topic.rows("orders_dead_letters", "offset") == [0, 1, 3, 5]
    (outcome,) = topic.tables.outcomes
    assert (outcome.rejects, outcome.rows) == (4, 1)


def test_columns_are_inferred_from_the_first_usable_records_of_a_batch(tmp_path: Path) -> None:
    topic = RoutedTopic(tmp_path, num_partitions=1, route={"header": "table"})
    topic.settings = {"decode": {"schema": "infer"}}
    topic.send(*([b"{"] * 1_001), order(1), header="orders")
    assert not topic.run().set_aside
    assert topic.rows("orders") == numbers(1)
    assert len(topic.rows("orders_dead_letters", "offset")) == 1_001


def test_unusable_first_records_are_written_once_wherever_a_run_dies(tmp_path: Path) -> None:
    for dies_at in range(100):
        topic = RoutedTopic(tmp_path / str(dies_at), num_partitions=1, route={"header": "table"})
        topic.settings = {"decode": {"schema": "infer"}}
        topic.send(b"{", {"n": 2}, header="orders")
        process = Process(dies_at)
        with watched(process), suppress(Killed):
            topic.run()
        topic.send({"id": "3"}, header="orders")
        topic.run()
        assert topic.rows("orders") == numbers(3)
        assert topic.rows("orders_dead_letters", "offset") == [0, 1]
        if process.dies_at is not None:
            break
    assert dies_at, "the first run was never interrupted"


def test_failing_table_is_set_aside_and_the_others_go_on(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 3}") for n in range(9)))
    topic.failing["t1"] = Permanent("this table is broken")
    sink = topic.run(batch_size=1)
    assert [*sink.set_aside] == ["t1"]
    assert (topic.rows("t0"), topic.rows("t1"), topic.rows("t2")) == (
        numbers(0, 3, 6),
        [],
        numbers(2, 5, 8),
    )
    assert [name for name, event in topic.events if isinstance(event, RunFailed)] == [f"{TOPIC}/t1"]


def test_health_metrics_and_status_name_the_table_that_was_set_aside(topic: RoutedTopic) -> None:
    topic.served = MetricsConfig(port=1)
    topic.send(*(order(n, f"t{n % 2}") for n in range(4)))
    topic.failing["t1"] = Permanent("this table is broken")
    topic.run()
    monitors = topic.monitors
    assert f"{TOPIC}/t1: " in monitors.health.verdict().reason
    registry = monitors.families.registry
    running = {
        name: registry.get_sample_value(
            "lakemark_running", {"pipeline": f"{TOPIC}/{name}", "topic": TOPIC}
        )
        for name in ("t0", "t1")
    }
    assert running == {"t0": 1.0, "t1": 0.0}
    shown = {one["name"]: one for one in json.loads(monitors.status.to_json(None))["pipelines"]}
    assert shown[f"{TOPIC}/t1"]["state"] == "failed"
    columns = shown[f"{TOPIC}/t0"]["details"]["columns"]
    assert [one["name"] for one in columns] == ["id", "type", "n"]


def test_table_that_was_set_aside_catches_up_at_the_next_start(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 3}") for n in range(9)))
    topic.failing["t1"] = Permanent("this table is broken")
    topic.run(batch_size=1)
    topic.send(*(order(n, f"t{n % 3}") for n in range(9, 12)))
    topic.run()
    commits = commits_of(topic, "t0")
    del topic.failing["t1"]
    sink = topic.run(batch_size=2)
    assert not sink.set_aside
    for number in range(3):
        assert topic.rows(f"t{number}") == numbers(*range(number, 12, 3))
    assert commits_of(topic, "t0") == commits


def test_others_do_not_wait_for_the_records_of_a_table_that_fails_again(
    topic: RoutedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(*(order(n, "a" if n % 4 < 2 else "b") for n in range(40)))
    topic.failing["b"] = Permanent("this table is broken")
    topic.run(batch_size=1)
    topic.send(order(40, "a"), order(41, "a"))
    starts, write = list[KafkaCheckpoint](), topic.write

    def note_start(sink: RoutedSink, batch: KafkaBatch) -> BatchResult:
        starts.append(batch.start)
        return write(sink, batch)

    monkeypatch.setattr(topic, "write", note_start)
    sink = topic.run(batch_size=1)
    assert [*sink.set_aside] == ["b"]
    assert [one.offsets for one in starts] == [{0: 1, 1: 1}, {0: 20, 1: 20}]
    assert topic.rows("a") == numbers(*(n for n in range(40) if n % 4 < 2), 40, 41)
    topic.failing.clear()
    topic.run(batch_size=1)
    assert topic.rows("b") == numbers(*(n for n in range(40) if n % 4 >= 2))


def test_table_with_a_transient_failure_catches_up_in_the_same_run(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(10)))

    class OnceBroken(dict[str, Exception]):
        def get(self, name: str, default: object = None) -> Exception | None:  # type: ignore[override]
            return self.pop(name, None)

    topic.failing = OnceBroken({"t1": Retriable("the store does not answer")})
    sink = topic.run(batch_size=1)
    assert not sink.set_aside
    assert (topic.rows("t0"), topic.rows("t1")) == (
        numbers(*range(0, 10, 2)),
        numbers(*range(1, 10, 2)),
    )
    assert [name for name, event in topic.events if isinstance(event, Retrying)] == [f"{TOPIC}/t1"]


def test_table_whose_recovery_fails_keeps_its_only_catalog_thread(
    topic: RoutedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.send(order(0, "a"))
    topic.run()
    topic.catalogs = [
        {"kind": "hive", "database": "lake", "options": {"uris": "thrift://127.0.0.1:1"}}
    ]
    real, failures = OpenedTable.recover, [Retriable("the store does not answer")] * 3

    def recover(table: OpenedTable) -> Progress | None:
        found = real(table)
        if failures:
            raise failures.pop()
        return found

    monkeypatch.setattr(OpenedTable, "recover", recover)
    sink = topic.run()
    running = [one for one in threading.enumerate() if one.name == catalog_sync.SERVICE]
    for services in topic.tables.services():
        services.end(within_s=10.0)
    assert not failures
    assert not sink.set_aside
    assert len(running) == 1


def test_batch_that_is_read_in_pieces_counts_each_of_its_tables_once(tmp_path: Path) -> None:
    topic = RoutedTopic(tmp_path, num_partitions=1)
    topic.send(*(order(number, name) for number, name in enumerate("aabbbc")))
    sink = topic.open()
    sink.recover()
    pieces = [topic.batch(KafkaCheckpoint(TOPIC, {0: begin}), 2) for begin in (0, 2, 4)]
    result = topic.write_in_pieces(sink, pieces)
    assert (result.records, result.tables, result.rows_of_tables) == (6, 3, 6)
    assert result.rows == 0, "each table reports its own rows"


def test_offsets_that_a_piece_has_lost_count_once(tmp_path: Path) -> None:
    topic = RoutedTopic(tmp_path, num_partitions=1)
    topic.send(*(order(number) for number in range(6)))
    sink = topic.open()
    sink.recover()

    def find_lost(gaps: Sequence[OffsetGap]) -> Sequence[Mapping[str, object]]:
        assert gaps[0] == OffsetGap(0, 0, 1)
        return [LostRange(0, 0, OffsetRange(1, 6), 1).facts(TOPIC)]

    pieces = []
    for begin in (0, 3):
        piece = topic.batch(KafkaCheckpoint(TOPIC, {0: begin}), 3)
        without_first = cast(Any, cast(pa.Table, piece.records).slice(1))
        pieces.append(replace(piece, records=without_first, check_source=find_lost))
    result = topic.write_in_pieces(sink, pieces)
    assert (result.records, result.skipped) == (4, 1)  # 0 is lost, and the topic has no offset 3


def test_table_that_fails_again_and_again_is_set_aside_for_the_run(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(10)))
    topic.failing["t1"] = Retriable("the store does not answer")
    sink = topic.run()
    assert [*sink.set_aside] == ["t1"]
    attempts = [event.attempt for _, event in topic.events if isinstance(event, Retrying)]
    assert attempts == [1, 2, 3, 4]
    assert topic.rows("t0") == numbers(*range(0, 10, 2))


def test_table_is_not_caught_up_over_offsets_that_kafka_has_deleted(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(8)))
    topic.failing["t1"] = Permanent("this table is broken")
    topic.run(batch_size=1)
    del topic.failing["t1"]
    topic.earliest = {1: 2}
    topic.send(order(8, "t0"), order(9, "t1"))
    sink = topic.run()
    assert "lost offsets 0 to 1" in str(sink.set_aside["t1"])
    assert (topic.rows("t0"), topic.rows("t1")) == (numbers(0, 2, 4, 6, 8), [])


@pytest.mark.parametrize("fallback", ["earliest", "latest"])
def test_lost_offsets_of_a_table_are_skipped_by_this_table_alone(
    topic: RoutedTopic, fallback: Literal["earliest", "latest"]
) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(8)))
    topic.failing["t1"] = Permanent("this table is broken")
    topic.run(batch_size=1)
    del topic.failing["t1"]
    topic.earliest, topic.fallback = {1: 2}, fallback
    topic.send(order(8, "t0"), order(9, "t0"))
    sink = topic.run()
    assert not sink.set_aside
    assert topic.rows("t0") == numbers(0, 2, 4, 6, 8, 9)
    assert topic.rows("t1") == (numbers(5, 7) if fallback == "earliest" else [])
    (lost,) = [event for _, event in topic.events if isinstance(event, OffsetsLost)]
    resumes_at = 2 if fallback == "earliest" else 5
    assert [(one["from"], one["to"]) for one in lost.lost] == [(0, resumes_at)]
    assert f"partition 1 lost offsets 0 to {resumes_at - 1} " in lost.ranges[0]


def test_foreign_table_at_the_path_of_a_route_sets_only_this_table_aside(
    topic: RoutedTopic, tmp_path: Path
) -> None:
    other = RoutedTopic(tmp_path, settings={"table": {"record_key": "n"}})
    other.route = {"field": "type", "positions": str(tmp_path / "other_positions")}
    other.send(order(100, "t1"))
    other.run()
    topic.send(*(order(n, f"t{n % 3}") for n in range(6)))
    sink = topic.run()
    assert [*sink.set_aside] == ["t1"]
    assert (topic.rows("t0"), topic.rows("t2")) == (numbers(0, 3), numbers(2, 5))
    shutil.rmtree(tmp_path / "t1")
    assert not topic.run().set_aside
    assert topic.rows("t1") == numbers(1, 4)


def test_known_table_whose_settings_contradict_each_other_is_set_aside(
    topic: RoutedTopic,
) -> None:
    topic.send(order(0, "bad"), order(1))
    topic.run()
    topic.settings = {"dead_letters": {"path": f"{topic.folder}/bad/{{value}}", "max_share": 1.0}}
    topic.served = MetricsConfig(port=1)
    topic.send(order(2, "bad"), order(3))
    sink = topic.run()
    assert [*sink.set_aside] == ["bad"]
    assert "dead_letters.path" in str(sink.set_aside["bad"])
    assert (topic.rows("bad"), topic.rows("orders")) == (numbers(0), numbers(1, 3))
    shown = {
        one["name"]: one for one in json.loads(topic.monitors.status.to_json(None))["pipelines"]
    }
    assert shown[f"{TOPIC}/bad"]["state"] == "failed"
    topic.settings = {}
    shutil.rmtree(topic.folder / "bad" / "orders")
    topic.run()
    assert topic.rows("bad") == numbers(0, 2)


def test_records_are_once_in_their_tables_wherever_a_run_dies(tmp_path: Path) -> None:
    def sent(folder: Path) -> RoutedTopic:
        folder.mkdir()
        topic = RoutedTopic(folder)
        topic.send(*(order(n, f"t{n % 3}") for n in range(6)), b"{", order(7, "t0"))
        return topic

    whole = Process()
    with watched(whole):
        sent(tmp_path / "whole").run(batch_size=2)
    assert {one.split()[1] for one in whole.points} == {
        "PositionStore.save",
        "OpenedTable.write",
        "LetterSink.write",
    }
    for point in sample(range(len(whole.points))):
        topic, process = sent(tmp_path / str(point)), Process(dies_at=point)
        with watched(process), pytest.raises(Killed):
            topic.run(batch_size=2)
        topic.run(batch_size=3)
        assert topic.rows("t0") == numbers(0, 3, 7), whole.points[point]
        assert topic.rows("t1") == numbers(1, 4), whole.points[point]
        assert topic.rows("t2") == numbers(2, 5), whole.points[point]
        assert topic.letters() == {"invalid_message": 1}, whole.points[point]


def test_deleted_table_is_read_again_from_the_beginning(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(6)))
    topic.run()
    shutil.rmtree(topic.folder / "t1")
    topic.run(batch_size=1)
    assert (topic.rows("t0"), topic.rows("t1")) == (numbers(0, 2, 4), numbers(1, 3, 5))
    topic.run()


def test_table_whose_position_an_operator_has_moved_is_read_from_there(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(8)))
    topic.run()
    table = open_table(StorageLocation(str(topic.folder / "t1")))
    write_checkpoint(table, "", KafkaCheckpoint(TOPIC, {0: 4, 1: 2}))
    topic.run()
    assert topic.rows("t0") == numbers(0, 2, 4, 6)
    assert topic.rows("t1") == numbers(1, 3, 5, 5, 7, 7)
    topic.run()
    assert topic.rows("t1") == numbers(1, 3, 5, 5, 7, 7)


def test_two_processes_of_one_pipeline_write_no_record_twice(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(4)))
    one = topic.open()
    one.recover()
    topic.run()
    with pytest.raises(PositionsMoved, match="only once at a time"):
        topic.write(one, topic.batch(KafkaCheckpoint(TOPIC, {0: 0, 1: 0}), 100))
    assert (topic.rows("t0"), topic.rows("t1")) == (numbers(0, 2), numbers(1, 3))


def test_two_processes_that_create_the_same_tables_write_no_record_twice(
    topic: RoutedTopic,
) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(4)))
    stored_names = Process(dies_at=2)
    with watched(stored_names), pytest.raises(Killed):
        topic.run()
    assert stored_names.points[-1] == "before OpenedTable.write"
    shutil.rmtree(topic.folder / "t0", ignore_errors=True)
    shutil.rmtree(topic.folder / "t1", ignore_errors=True)
    one = topic.open()
    one.recover()
    topic.run()
    with pytest.raises(PositionsMoved):
        topic.write(one, topic.batch(KafkaCheckpoint(TOPIC, {0: 0, 1: 0}), 100))
    assert (topic.rows("t0"), topic.rows("t1")) == (numbers(0, 2), numbers(1, 3))


def test_process_that_is_many_positions_behind_stops_and_stores_nothing(topic: RoutedTopic) -> None:
    topic.send(*(order(n) for n in range(4)))
    topic.run()
    one = topic.open()
    one.recover()
    topic.send(*(order(n) for n in range(4, 12)))
    topic.run(batch_size=1)
    folder = topic.folder / ".lakemark" / TOPIC
    stored = sorted(path.name for path in folder.glob("*.json"))
    with pytest.raises(PositionsMoved):
        topic.write(one, topic.batch(KafkaCheckpoint(TOPIC, {0: 2, 1: 2}), 1))
    assert sorted(path.name for path in folder.glob("*.json")) == stored
    assert topic.rows("orders") == numbers(*range(12))


def test_lost_positions_are_found_in_the_tables(topic: RoutedTopic) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(4)), b"{")
    topic.run()
    topic.send(*(order(n, "t0") for n in range(5, 12)), b"{")
    topic.run(batch_size=1)
    shutil.rmtree(topic.folder / ".lakemark")
    topic.run(batch_size=1)
    assert topic.rows("t0") == numbers(0, 2, *range(5, 12))
    assert topic.rows("t1") == numbers(1, 3)
    assert topic.letters() == {"invalid_message": 2}


@pytest.mark.parametrize("damaged", [b"", b'{"rule":'])
def test_damaged_positions_are_refused_until_an_operator_deletes_them(
    topic: RoutedTopic, damaged: bytes
) -> None:
    topic.send(*(order(n, f"t{n % 2}") for n in range(8)))
    topic.run(batch_size=1)
    newest = max((topic.folder / ".lakemark" / TOPIC).glob("*.json"))
    newest.write_bytes(damaged)
    topic.send(order(8, "t0"))
    with pytest.raises(CorruptData, match="delete the file to use those before it"):
        topic.run()
    newest.unlink()
    topic.run()
    assert (topic.rows("t0"), topic.rows("t1")) == (numbers(0, 2, 4, 6, 8), numbers(1, 3, 5, 7))


def test_two_processes_write_no_dead_letter_twice(topic: RoutedTopic) -> None:
    topic.send(b"{", b"{")
    one = topic.open()
    one.recover()
    topic.run()
    with pytest.raises(HudiError):
        topic.write(one, topic.batch(KafkaCheckpoint(TOPIC, {0: 0, 1: 0}), 100))
    assert topic.letters() == {"invalid_message": 2}


def test_pipeline_is_validated_only_for_values_that_may_name_a_table(
    topic: RoutedTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.route = {"field": "type", "max_tables": 2}
    topic.send(*(order(n, f"v{n}") for n in range(40)))
    validated, real = set[str](), RouteTemplate.table_of

    def table_of(template: RouteTemplate, value: str) -> PipelineConfig:
        validated.add(value)
        return real(template, value)

    monkeypatch.setattr(RouteTemplate, "table_of", table_of)
    topic.run()
    assert len(validated) == 2
    assert topic.letters() == {"too_many_tables": 38}


def test_positions_of_another_route_are_refused(topic: RoutedTopic) -> None:
    topic.send(order(0))
    topic.run()
    topic.route = {"header": "table"}
    with pytest.raises(OtherRoute, match="field type to"):
        topic.run()


def test_positions_do_not_grow_with_the_number_of_batches(topic: RoutedTopic) -> None:
    topic.send(*(order(n) for n in range(12)))
    topic.run(batch_size=1)
    store = PositionStore(open_storage(topic.template().positions))
    positions = store.load()
    assert positions is not None
    assert positions.complete == KafkaCheckpoint(TOPIC, {0: 6, 1: 6})
    assert len([*(topic.folder / ".lakemark" / TOPIC).glob("*.json")]) == 2
