"""A pipeline from files to a table: each record once, whatever happens in between."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from checkpoints.files_position import FilesPosition
from checkpoints.lookup import find_progress
from checkpoints.progress import decode_progress
from lakemark.config import keys
from lakemark.errors import Permanent
from lakemark.operations.open_table import open_table
from lakemark.storage import StorageLocation, open_storage
from lakemark.transaction.carried_metadata import CHECKPOINT_KEY, CHECKPOINT_KEY_V2
from lakemark.transaction.streamer_progress import DEFAULT_IDENTITY
from sinks.audit import Audit
from streamer import pipeline
from streamer.config.errors import ConfigError
from streamer.config.kafka_source import KafkaSourceConfig
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.events import BatchWritten, Event, Retrying
from streamer.sources.errors import ForeignCheckpoint
from streamer.sources.files import planner
from streamer.sources.files.column_files import ParquetFormat
from streamer.sources.files.errors import BadFile, FileIsChanging, FileWasReplaced, ForeignFolder
from streamer.sources.files.lines import LinesFormat
from streamer.sources.files.listing import list_files
from streamer.sources.start_rules import check_own_topic

COLUMNS = {"id": "string", "n": "bigint"}


class Killed(Exception):
    """The process dies here."""


@dataclass
class Files:
    """A folder of files, and runs of a pipeline that reads them.

    Attributes:
        folder: the parent of the folder of the files, and of the tables.
        format: the format of the files.
        decode: the section ``decode``.
        table: settings of the table.
    """

    folder: Path
    format: str = "json"
    decode: Mapping[str, object] = field(default_factory=lambda: {"schema": COLUMNS})
    table: Mapping[str, object] = field(default_factory=lambda: {"buckets": 1})
    _seconds: int = 1_700_000_000

    def write(self, name: str, content: bytes | str | Sequence[Mapping[str, object]]) -> Path:
        """Write a file that was modified after all others."""
        if not isinstance(content, bytes | str):
            content = "".join(json.dumps(row) + "\n" for row in content)
        path = self.folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self._seconds += 1
        os.utime(path, (self._seconds, self._seconds))
        return path

    def config(self, **source: object) -> PipelineConfig:
        given = {"kind": "files", "path": str(self.folder / "in"), "format": self.format, **source}
        table = {"path": str(self.folder / "rows"), "record_key": "id", **self.table}
        run = {"mode": "once", "retry": {"backoff_s": 0.01, "max_attempts": 3}}
        letters = {"max_share": 1.0}
        tree = {"source": given, "decode": self.decode, "table": table, "run": run}
        return validated({**tree, "dead_letters": letters})

    def run(self, **source: object) -> list[Event]:
        """Run until all files are read; return the events."""
        events: list[Event] = []
        with pipeline.build(self.config(**source), events.append) as built:
            built.loop.run()
        return events

    def rows(self) -> dict[str, Any]:
        found = lakemark.open(str(self.folder / "rows")).scan().to_table()
        return dict(zip(*(found.column(one).to_pylist() for one in ("id", "n")), strict=True))

    def letters(self) -> list[dict[str, Any]]:
        found = lakemark.open(str(self.folder / "rows_dead_letters")).scan().to_table()
        return sorted(found.to_pylist(), key=lambda one: (one["topic"], one["offset"]))

    def position(self) -> FilesPosition:
        table = open_table(StorageLocation(str(self.folder / "rows")))
        progress = find_progress(table, table.timeline)
        assert progress is not None
        assert isinstance(progress.checkpoint, FilesPosition)
        return progress.checkpoint

    def audits(self) -> list[Audit]:
        table = open_table(StorageLocation(str(self.folder / "rows")))
        commits = [table.store.read_commit(one) for one in table.timeline.completed()]
        found = [Audit.in_commit(one.extra_metadata) for one in commits]
        return [one for one in found if one is not None]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def written(events: Sequence[Event]) -> list[int]:
    """Return the number of records of each batch."""
    return [one.records_read for one in events if isinstance(one, BatchWritten)]


def test_first_run_reads_all_files_and_the_next_run_only_new_ones(files: Files) -> None:
    files.write("a.json", [{"id": "a", "n": 1}, {"id": "b", "n": 1}])
    files.write("more/b.json", [{"id": "b", "n": 2}])
    assert written(files.run()) == [3]
    assert files.rows() == {"a": 1, "b": 2}
    assert written(files.run()) == []
    files.write("c.json", [{"id": "c", "n": 3}])
    assert written(files.run()) == [1]
    assert files.rows() == {"a": 1, "b": 2, "c": 3}
    assert [one.path for one in files.position().remembered] == ["a.json", "more/b.json", "c.json"]
    assert [(one.offsets, one.records, one.skipped) for one in files.audits()] == [
        (3, 3, 0),
        (1, 1, 0),
    ]


def test_bad_records_become_dead_letters_with_their_file_and_number(files: Files) -> None:
    path = files.write("a.json", '{"id": "a", "n": 1}\n\nnot json\n{"id": "b", "n": "x"}\n')
    files.run()
    assert files.rows() == {"a": 1}
    letters = files.letters()
    assert [(one["topic"], one["partition"], one["offset"], one["value"]) for one in letters] == [
        (f"file://{path}", 0, 1, b"not json"),
        (f"file://{path}", 0, 2, b'{"id": "b", "n": "x"}'),
    ]
    assert letters[0]["timestamp"].timestamp() == path.stat().st_mtime


@pytest.mark.parametrize("dies_at", ["attempt", "_publish", "_serve_tables"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_run_that_is_killed_loses_and_repeats_nothing(
    files: Files, monkeypatch: pytest.MonkeyPatch, dies_at: str, number: int
) -> None:
    """The rows are inserted without a lookup of their keys, so a repeated record is seen."""
    files.table = {"operation": "insert"}
    expected: Counter[int] = Counter()
    for name in range(5):
        numbers = range(10 * name, 10 * name + 3)
        rows = [{"id": f"{name}", "n": number} for number in numbers]
        expected.update(numbers)
        files.write(f"{name}.json", [*rows, {"id": None, "n": name}])
    small = {"max_files_per_batch": 1}
    with pipeline.build(files.config(**small), lambda _: None) as built, monkeypatch.context() as m:
        owner = {"attempt": built.sink._writer, "_publish": built.sink._writer}.get(dies_at, built)
        target: Any = built.loop if owner is built else owner
        original, calls = getattr(target, dies_at), Counter[str]()

        def dying(*arguments: Any) -> Any:
            calls["all"] += 1
            if calls["all"] == number + 1:
                if dies_at == "_publish":
                    original(*arguments)
                raise Killed
            return original(*arguments)

        m.setattr(target, dies_at, dying)
        with pytest.raises(Killed):
            built.loop.run()
    files.run(max_files_per_batch=2)
    found = lakemark.open(str(files.folder / "rows")).scan().to_table()
    assert Counter(found.column("n").to_pylist()) == expected
    assert [one["offset"] for one in files.letters()] == [3] * 5


def test_a_file_larger_than_a_batch_is_divided_and_continued_after_a_restart(
    files: Files,
) -> None:
    rows = [{"id": f"{n}", "n": n, "text": "x" * 50} for n in range(200)]
    files.write("large.json.gz", gzip.compress("".join(map(_line, rows)).encode()))
    files.write("z.json", [{"id": "last", "n": 0}])
    limit = {"max_bytes_per_batch": 1024}
    seen: list[int] = []
    with pipeline.build(files.config(**limit), lambda _: None) as built:
        write = built.sink.write

        def writes_three(*arguments: Any) -> Any:
            if len(seen) == 3:
                raise Killed
            result = write(*arguments)
            seen.append(result.records)
            return result

        built.sink.write = writes_three  # type: ignore[assignment,method-assign]
        with pytest.raises(Killed):
            built.loop.run()
    part = files.position().part
    assert part is not None
    assert part.rows == sum(seen) < 200
    events = files.run(**limit)
    assert sum(seen) + sum(written(events)) == 201
    assert len(files.rows()) == 201
    assert max(written(events)) <= 20, "a batch has about as many bytes as it may have"


def _line(row: Mapping[str, object]) -> str:
    return json.dumps(row) + "\n"


def test_a_changed_file_is_read_again_with_a_warning(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.write("a.json", [{"id": "a", "n": 1}])
    files.run()
    files.write("a.json", [{"id": "a", "n": 2}, {"id": "b", "n": 2}])
    with caplog.at_level(logging.WARNING):
        assert written(files.run()) == [2]
    assert files.rows() == {"a": 2, "b": 2}
    assert "a.json changed after being read" in caplog.text
    files.write("a.json", [{"id": "a", "n": 3}])
    with pytest.raises(FileWasReplaced, match=r"a\.json was changed after it was read"):
        files.run(on_changed_file="fail")


def test_a_file_that_changes_while_it_is_read_is_read_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("a.json", [{"id": "a", "n": 1}])
    read_batch = planner.FilesPlanner._read_batch
    changes = [{"id": "a", "n": 2}]

    def changed_after_reading(self: planner.FilesPlanner) -> Any:
        found = read_batch(self)
        if changes:
            files.write("a.json", [changes.pop()])
        return found

    monkeypatch.setattr(planner.FilesPlanner, "_read_batch", changed_after_reading)
    events = files.run()
    assert [one.error_type for one in events if isinstance(one, Retrying)] == ["FileIsChanging"]
    assert written(events) == [1]
    assert files.rows() == {"a": 2}


def test_a_file_that_never_stops_changing_does_not_delay_others(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write("growing.json", [{"id": "a", "n": 0}])
    files.write("z.json", [{"id": "z", "n": 1}])
    read_batch, seen = planner.FilesPlanner._read_batch, list[str]()

    def growing(self: planner.FilesPlanner) -> Any:
        records, read = read_batch(self)
        if "growing.json" in {one.path for one in read}:
            seen.append("growing.json")
            files.write("growing.json", [{"id": "a", "n": len(seen)}])
        return records, read

    monkeypatch.setattr(planner.FilesPlanner, "_read_batch", growing)
    with pytest.raises(FileIsChanging, match=r"growing\.json was changed"):
        files.run()
    assert files.rows() == {"z": 1}
    assert not files.position().part


def test_changing_files_never_end_a_continuous_run(files: Files) -> None:
    files.write("a.json", [{"id": "a", "n": 0}])
    changing = FileIsChanging("folder", "a.json")
    with pipeline.build(files.config(), lambda _: None) as built:
        assert not built.loop._waits_for_source(changing), "a run of mode once should end"
    config = files.config()
    run = config.run.model_copy(update={"mode": "continuous"})
    with pipeline.build(config.model_copy(update={"run": run}), lambda _: None) as built:
        assert built.loop._waits_for_source(changing)


def test_a_warning_says_that_files_are_forgotten_too_soon(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "abc":
        files.write(f"{name}.json", [{"id": name, "n": 1}])
    files.run(remembered_files=3)
    assert "source.remembered_files" not in caplog.text
    files.write("d.json", [{"id": "d", "n": 1}])
    files.run(remembered_files=3)
    assert "more files arrive in source.late_files_s than source.remembered_files, 3" in caplog.text


def test_a_damaged_file_is_one_dead_letter_or_stops_the_run(files: Files) -> None:
    files.write("a.json", [{"id": "a", "n": 1}])
    lines = "".join(json.dumps({"id": f"{n}", "n": n}) + "\n" for n in range(9))
    cut = files.write("b.json.gz", gzip.compress(lines.encode())[:-8])
    with pytest.raises(BadFile, match=r"b\.json\.gz cannot be read after .* not a complete gzip"):
        files.run(on_bad_file="fail")
    files.write("c.json", [{"id": "c", "n": 3}])
    files.run()
    assert files.rows().keys() >= {"a", "c"}
    (letter,) = files.letters()
    assert (letter["topic"], letter["code"]) == (f"file://{cut}", "unreadable_file")
    files.write("b.json.gz", gzip.compress(lines.encode()))
    files.run()
    assert files.rows().keys() == {"a", "c", *map(str, range(9))}


def test_columns_of_parquet_files_are_inferred_and_evolve(files: Files) -> None:
    files.format, files.decode = "parquet", {"unknown_fields": "evolve"}
    files.write("a.parquet", _parquet(pa.table({"id": ["a"], "n": pa.array([1], pa.uint32())})))
    files.run()
    more = {"id": ["b", None], "n": [2, 3], "tags": [["x"], ["y"]]}
    files.write("b.parquet", _parquet(pa.table(more)))
    files.write("c.parquet", _parquet(pa.table({"id": ["c"]})))
    files.run()
    assert files.rows() == {"a": 1, "b": 2, "c": None}
    schema = lakemark.open(str(files.folder / "rows")).schema
    assert schema is not None
    assert schema.field("n").type == pa.int64()
    assert schema.field("tags").type.value_type == pa.string()
    (letter,) = files.letters()
    assert json.loads(letter["value"]) == {"n": 3, "tags": ["y"]}
    assert letter["code"] == "missing_key"


@pytest.mark.parametrize(
    ("unknown_fields", "rows", "code"),
    [
        ("ignore", {"a": 1}, None),
        ("rescue", {"a": 1}, None),
        ("reject", {}, "unknown_field"),
        ("evolve", {"a": 1}, None),
    ],
)
def test_column_that_no_table_can_store_is_an_unknown_field(
    files: Files, unknown_fields: str, rows: Mapping[str, int], code: str | None
) -> None:
    rescue = {"rescue_column": "more"} if unknown_fields == "rescue" else {}
    files.format = "parquet"
    files.decode = {"schema": COLUMNS, "unknown_fields": unknown_fields, **rescue}
    at = pa.array([time(1, 2)], pa.time64("us"))
    pairs = pa.array([[(1, 2)]], pa.map_(pa.int32(), pa.int32()))
    some = {"id": ["a"], "n": [1], "at": at, "pairs": pairs, "empty": pa.nulls(1)}
    if unknown_fields != "evolve":
        some["a name"] = [1]
    files.write("a.parquet", _parquet(pa.table(some)))
    files.run()
    assert files.rows() == rows
    table = lakemark.open(str(files.folder / "rows")).scan().to_table()
    if unknown_fields == "rescue":
        (more,) = table.column("more").to_pylist()
        texts = {"at": "01:02:00.000000", "pairs": "[[1, 2]]"}
        assert json.loads(more) == {**texts, "a name": 1}
    if unknown_fields == "evolve":
        assert table.column("at").to_pylist() == ["01:02:00.000000"]
        assert "empty" not in table.column_names
    if code is not None:
        assert [one["code"] for one in files.letters()] == [code]


def test_large_rows_of_parquet_are_divided_by_their_size() -> None:
    texts = [chr(97 + n) * (1 << 20) for n in range(20)]
    file = io.BytesIO(_parquet(pa.table({"id": range(20), "text": texts})))
    pieces = [len(piece.values) for piece in ParquetFormat().read(file, 0)]
    assert sum(pieces) == 20
    assert max(pieces) <= 8, "a piece has at most about 8 MiB"


def _parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ('a,5" pipe\nb,2\n"c\nd",3\n', ['a,5" pipe', "b,2", '"c\nd",3']),
        ('a,5" by 6"\n"b\n""x""\n",2\n', ['a,5" by 6"', '"b\n""x""\n",2']),
        ('\ufeff"a\nb",5"\nc,2\n', ['"a\nb",5"', "c,2"]),
        ('"","\n"\n,""\n', ['"","\n"', ',""']),
    ],
)
def test_quotation_mark_inside_of_a_field_of_csv_begins_no_quotation(
    text: str, records: Sequence[str]
) -> None:
    pieces = LinesFormat(may_quote=True).read(io.BytesIO(text.encode()), 0)
    assert [one.as_py().decode() for piece in pieces for one in piece.values] == records


def test_header_of_csv_files_must_name_the_columns_in_their_order(files: Files) -> None:
    files.format = "csv"
    files.write("a.csv", '\ufeffid,n\r\n"a\nb",1\r\n')
    wrong = files.write("b.csv", "n,id\n1,c\n")
    files.run(header=True)
    assert files.rows() == {"a\nb": 1}
    (letter,) = files.letters()
    assert letter["topic"] == f"file://{wrong}"
    assert "names the columns n, id, but decode.schema declares id, n" in letter["reason"]


def test_pattern_and_time_choose_the_files_of_the_first_run(files: Files) -> None:
    old = files.write("old.json", [{"id": "old", "n": 1}])
    after_ms = files._seconds * 1000
    os.utime(old, (files._seconds, files._seconds + 0.0005))
    files.write("new.json", [{"id": "new", "n": 1}])
    files.write("new.txt", "no json")
    files.run(pattern="*.json", modified_after=after_ms)
    assert files.rows() == {"new": 1}


def test_position_of_another_folder_or_source_is_refused(files: Files, tmp_path: Path) -> None:
    files.write("a.json", [{"id": "a", "n": 1}])
    files.run()
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ForeignFolder, match=r"does not belong to the files of source\.path"):
        files.run(path=str(other))


@pytest.mark.parametrize(
    ("source", "decode", "told"),
    [
        ({"format": "csv"}, {"format": "json"}, "json does not fit source.format csv; use csv"),
        ({"format": "json"}, {"format": "columns"}, "columns does not fit source.format json"),
        ({"format": "parquet"}, {"format": "json"}, "use columns"),
        (
            {"format": "json"},
            {"format": "json_schema", "schema_registry": {"url": "http://localhost:8081"}},
            "json_schema does not fit source.format json; use json",
        ),
        ({"format": "json", "header_columns": {"a": "b"}}, {}, "header_columns: unknown setting"),
        ({"format": "json", "header": True}, {}, "source.header: has no effect"),
        ({"format": "json", "topic": "a"}, {}, "source.topic: unknown setting"),
        ({"format": "xml"}, {}, "source.format: 'xml': expected 'json', 'csv', 'parquet' or"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    files: Files, source: dict[str, object], decode: dict[str, object], told: str
) -> None:
    files.decode = {"schema": COLUMNS, **decode}
    with pytest.raises(ConfigError, match=told):
        files.config(**source)


def test_columns_are_no_format_of_kafka_records() -> None:
    source = {"bootstrap_servers": "localhost:9092", "topic": "orders"}
    tree = {"source": source, "decode": {"format": "columns"}, "table": {"path": "/tmp/t"}}
    with pytest.raises(ConfigError, match="columns is only for tables and for files"):
        validated({**tree, "table": {"path": "/tmp/t", "record_key": "id"}})


def test_empty_files_are_no_batch(files: Files) -> None:
    files.write("empty.json", b"")
    files.write("blank.json", "\n\n")
    files.write("a.json", [{"id": "a", "n": 1}])
    assert written(files.run()) == [1]
    files.write("empty too.json", b"")
    assert written(files.run()) == []


def test_run_that_cannot_infer_columns_says_so(files: Files) -> None:
    files.decode = {}
    files.write("empty.json", b"")
    with pytest.raises(Permanent, match="has no record from which to infer the schema"):
        files.run()


def test_run_that_cannot_infer_columns_names_the_files_that_it_cannot_read(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.format, files.decode = "parquet", {}
    files.write("a.parquet", b"no Parquet")
    with pytest.raises(Permanent, match="has no record from which to infer the schema"):
        files.run()
    assert "a.parquet is no example of records: " in caplog.text


def test_kafka_pipeline_does_not_continue_at_a_position_in_files(files: Files) -> None:
    files.write("a.json", [{"id": "a", "n": 1}])
    files.run()
    source = KafkaSourceConfig(bootstrap_servers="localhost:9092", topic="orders", consumer={})
    with pytest.raises(ForeignCheckpoint, match=r"belongs to another topic than source\.topic"):
        check_own_topic(source, files.position())


def test_table_of_a_file_source_of_hoodiestreamer_is_continued(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint of ``DFSPathSelector`` is the largest modification time, in milliseconds."""
    last_read = files.write("a.json", [{"id": "a", "n": 1}])
    files.run()
    os.utime(last_read, (files._seconds, files._seconds + 0.0005))  # HoodieStreamer rounds it down
    table = open_table(StorageLocation(str(files.folder / "rows")))
    (commit,) = table.timeline.completed()
    metadata = table.store.read_commit(commit)
    extra = {k: v for k, v in metadata.extra_metadata.items() if k != keys.CHECKPOINTS}
    assert not extra.keys() & {CHECKPOINT_KEY, CHECKPOINT_KEY_V2}, "Apache Hudi would misread it"
    taken_over = decode_progress({**extra, CHECKPOINT_KEY_V2: f"{files._seconds}000"}, commit, "1")
    position = taken_over.streamers[DEFAULT_IDENTITY].checkpoint
    with pipeline.build(files.config(), lambda _: None) as built:
        begun = built.source.start(position)
    assert isinstance(begun.checkpoint, FilesPosition)
    assert "were modified at 2023-11-14 22:13:21.001000+00:00 or later" in caplog.text
    files.write("b.json", [{"id": "b", "n": 1}])
    listed = list_files(open_storage(StorageLocation(str(files.folder / "in"))), "*")
    assert [one.path for one in begun.checkpoint.find_unread(listed)] == ["b.json"]
