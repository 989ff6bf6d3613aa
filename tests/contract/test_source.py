"""The contract of ``Source``, on the files of each format and on the commits of a table."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast
from uuid import uuid4

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakemark
from checkpoints import commit_keys
from checkpoints.position import Position
from lakemark.errors import StorageUnavailable
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.storage import NotFound, Storage
from sinks.batch import RecordsBatch
from streamer.config.load import validated
from streamer.config.pipeline import PipelineConfig
from streamer.sources.files.errors import FileIsChanging
from streamer.sources.files.source import FilesSource
from streamer.sources.source import Source, StreamSettings
from streamer.sources.tables.source import TableSource
from tests.storages.wrapped_storage import WrappedStorage
from tests.waiting import until
from transforms.raw_records import FAULT, parts_of

AVRO = {
    "type": "record",
    "name": "order",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}],
}

Rows = Sequence[dict[str, object]]


def json_lines(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\r\n" for row in rows)


def csv_lines(rows: Rows) -> bytes:
    return "".join(f'"{row["id"]}",{row["n"]}\n' for row in rows).encode()


def parquet_file(rows: Rows) -> bytes:
    sink = BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink, row_group_size=7)
    return sink.getvalue()


def avro_file(rows: Rows) -> bytes:
    sink = BytesIO()
    fastavro.writer(sink, AVRO, rows, sync_interval=100)
    return sink.getvalue()


FORMATS: dict[str, Callable[[Rows], bytes]] = {
    "json": json_lines,
    "csv": csv_lines,
    "parquet": parquet_file,
    "avro": avro_file,
}


class Folder:
    """A folder of files in one format, and pipelines that read it."""

    def __init__(self, url: str, file_format: str) -> None:
        self.url, self.format = url, file_format
        self.storage = open_storage(StorageLocation(url))
        self._rows = 0

    def add(self, path: str, count: int) -> list[str]:
        """Write a file; return the ids of its records."""
        numbers = range(self._rows, self._rows + count)
        self._rows += count
        rows = [{"id": f"order {n}", "n": n} for n in numbers]
        self.storage.put(path, FORMATS[self.format](rows))
        return [str(row["id"]) for row in rows]

    def config(self, **source: object) -> PipelineConfig:
        given = {"kind": "files", "path": self.url, "format": self.format, **source}
        columns = {"schema": {"id": "string", "n": "bigint"}}
        table = {"path": f"{self.url}-table", "record_key": "id"}
        return validated({"source": given, "decode": columns, "table": table})

    def source(self, **source: object) -> FilesSource:
        config = self.config(**source)
        return FilesSource(cast(Any, config.source), config.decode)


@pytest.fixture(params=[*FORMATS])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "in"), request.param)


def batches(source: Source, position: Position | None) -> Iterator[RecordsBatch]:
    """Yield the batches of a stream that ends when everything is read."""
    settings = StreamSettings(mode="once", trigger_interval_s=0.0, scratch=Path())
    stream = source.open_stream(source.start(position), settings, lambda end, gaps: ())
    found: list[RecordsBatch] = []

    def on_batch(given: object, batch_id: int) -> None:
        batch = stream.plan(given, batch_id)
        if batch is not None:
            assert batch_id == len(found)
            found.append(cast(RecordsBatch, batch))

    failures: list[Exception] = []

    def on_batch_or_failure(given: object, batch_id: int) -> None:
        try:
            if not failures:
                on_batch(given, batch_id)
        except Exception as failure:
            failures.append(failure)

    running = stream.start(on_batch_or_failure)
    until(lambda: bool(failures) or not running.isActive, "the end of the stream")
    running.stop()
    assert running.exception() is None
    if failures:
        raise failures[0]
    yield from found


class FailingFile:
    """A file of a store that fails at call number ``nth`` of ``read`` and ``seek``."""

    def __init__(self, inner: BinaryIO, nth: int, failure: Exception) -> None:
        self._inner, self._nth, self._failure = inner, nth, failure
        self.calls = 0

    def __enter__(self) -> FailingFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()

    def read(self, size: int = -1) -> bytes:
        self._count()
        return self._inner.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._count()
        return self._inner.seek(offset, whence)

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self._nth:
            raise self._failure


class FailingStorage(WrappedStorage):
    """Opens files as ``FailingFile``."""

    def __init__(self, inner: Storage, nth: int, failure: Exception) -> None:
        super().__init__(inner)
        self._nth, self._failure = nth, failure

    def open(self, path: str) -> AbstractContextManager[BinaryIO]:
        file = FailingFile(cast(BinaryIO, self.inner.open(path)), self._nth, self._failure)
        return cast(AbstractContextManager[BinaryIO], file)


def ids_of(batch: RecordsBatch) -> list[str]:
    tables = [table for table in batch.tables if FAULT not in table.column_names]
    values = [one.as_py() for table in tables for one in table.column("value")]
    return [str(one["id"]) if isinstance(one, dict) else _id_in(one) for one in values]


def _id_in(line: bytes) -> str:
    return str(json.loads(line)["id"]) if line.startswith(b"{") else line.decode().split('"')[1]


@pytest.mark.parametrize("memory", [{}, {"late_files_s": 0.0, "remembered_files": 0}])
def test_a_stream_returns_each_record_once_in_order_wherever_it_starts(
    folder: Folder, memory: Mapping[str, object]
) -> None:
    written = folder.add("a", 30) + folder.add("b/c", 1) + folder.add("b/d", 40)
    source = folder.source(max_bytes_per_batch=1024, max_files_per_batch=2, **memory)
    found = [*batches(source, None)]
    assert [one for batch in found for one in ids_of(batch)] == written
    assert len(found) > 1
    for number, batch in enumerate(found):
        assert batch.planned_records == sum(table.num_rows for table in batch.tables) > 0
        if number:
            assert batch.start == found[number - 1].end
        # A later run finds the position in a commit, and another batch size may be configured.
        stored = commit_keys.parse_text(str(batch.end))
        assert stored == batch.end
        rest = [*batches(folder.source(max_bytes_per_batch=4096, **memory), stored)]
        expected = [one for later in found[number + 1 :] for one in ids_of(later)]
        assert [one for later in rest for one in ids_of(later)] == expected
    assert not [*batches(source, found[-1].end)]


@pytest.mark.parametrize("start_at", ["earliest", "snapshot"])
@pytest.mark.parametrize("query", ["incremental", "cdc"])
def test_a_stream_of_a_table_returns_each_row_once_wherever_it_starts(
    query: str, start_at: str
) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int64())])
    table = lakemark.create(
        f"memory://{uuid4().hex}/t", schema=schema, record_key="id", buckets=3, cdc="op_key_only"
    )
    written = list[str]()
    for count in (40, 1, 30):
        added = [f"order {n}" for n in range(len(written), len(written) + count)]
        table.upsert(pa.Table.from_pylist([{"id": one, "n": 1} for one in added], schema))
        written += added

    def source(**more: object) -> TableSource:
        given = {"kind": "table", "path": table.location, "query": query, "start_at": start_at}
        target = {"path": f"{table.location}-copy", "record_key": "id"}
        config = validated({"source": {**given, **more}, "table": target})
        return TableSource(cast(Any, config.source))

    found = [*batches(source(max_bytes_per_batch=1024, max_commits_per_batch=2), None)]
    assert sorted(one for batch in found for one in ids_of(batch)) == sorted(written)
    assert len(found) > 1
    for number, batch in enumerate(found):
        assert batch.planned_records == sum(table.num_rows for table in batch.tables) > 0
        if number:
            assert batch.start == found[number - 1].end
        stored = commit_keys.parse_text(str(batch.end))
        assert stored == batch.end
        rest = [*batches(source(max_bytes_per_batch=4096), stored)]
        expected = [one for later in found[number + 1 :] for one in ids_of(later)]
        assert [one for later in rest for one in ids_of(later)] == expected
    table.upsert(pa.Table.from_pylist([{"id": "new", "n": 1}], schema))
    (last,) = batches(source(), found[-1].end)
    assert ids_of(last) == ["new"]


def test_new_files_are_read_after_a_restart_and_hidden_ones_never(folder: Folder) -> None:
    folder.add("a", 3)
    folder.add("_SUCCESS", 3)
    folder.add(".tmp/a", 3)
    (first,) = batches(folder.source(), None)
    new = folder.add("b", 2)
    (second,) = batches(folder.source(), first.end)
    assert ids_of(second) == new


def test_records_have_their_origin_and_number(folder: Folder) -> None:
    folder.add("a", 2)
    folder.add("b", 3)
    (batch,) = batches(folder.source(), None)
    origins = [
        (topic.rpartition("/")[2], part, offset)
        for table in batch.tables
        for topic, part, offset in zip(
            table.column("topic").to_pylist(),
            parts_of(table).to_pylist(),
            table.column("offset").to_pylist(),
            strict=True,
        )
    ]
    assert origins == [("a", 0, 0), ("a", 0, 1), ("b", 1, 0), ("b", 1, 1), ("b", 1, 2)]


def test_a_damaged_file_is_reported_once_and_the_next_one_is_read(folder: Folder) -> None:
    if folder.format in ("json", "csv"):
        pytest.skip("any bytes are lines; the decoder judges them")
    folder.add("a", 2)
    folder.storage.put("b", folder.storage.read("a")[:-20])
    new = folder.add("c", 2)
    found = [*batches(folder.source(), None)]
    faults = [table for batch in found for table in batch.tables if FAULT in table.column_names]
    assert [table.column("topic").to_pylist()[0].rpartition("/")[2] for table in faults] == ["b"]
    read = [one for batch in found for one in ids_of(batch)]
    assert read[-2:] == new
    assert not [*batches(folder.source(), found[-1].end)]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (StorageUnavailable("busy"), StorageUnavailable),
        (NotFound("a"), FileIsChanging),
        (OSError("no answer"), OSError),
        (MemoryError(), MemoryError),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, Exception) else "",
)
@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_a_failure_of_the_store_is_no_damage_of_the_file(
    folder: Folder, name: str, failure: Exception, raised: type[Exception]
) -> None:
    if name == "a.gz" and folder.format in ("parquet", "avro"):
        pytest.skip("only files of lines are compressed as a whole")
    folder.add("a", 120)
    if name == "a.gz":
        folder.storage.put("a.gz", gzip.compress(folder.storage.read("a")))
        folder.storage.delete(["a"])
    begun = next(iter(batches(folder.source(max_bytes_per_batch=1024), None))).end
    for position in (None, begun):
        calls = 1
        while _fails(folder, FailingStorage(folder.storage, calls, failure), position, raised):
            calls += 1 + calls // 2
        assert calls > 3


def _fails(
    folder: Folder, store: FailingStorage, position: Position | None, raised: type[Exception]
) -> bool:
    source = folder.source(max_bytes_per_batch=1024)
    source._storage = store
    try:
        found = [*batches(source, position)]
    except raised:
        return True
    assert not any(FAULT in table.column_names for batch in found for table in batch.tables)
    return False


@pytest.mark.parametrize("folder", ["parquet", "avro"], indirect=True)
def test_each_damaged_byte_is_reported_or_harmless(folder: Folder) -> None:
    """The pages of Parquet are decoded after the footer was read, and with other errors."""
    folder.add("a", 40)
    intact = folder.storage.read("a")
    reported = 0
    for at in range(4, len(intact), 9):
        folder.storage.put("a", intact[:at] + bytes([intact[at] ^ 0xFF]) + intact[at + 1 :])
        found = [*batches(folder.source(), None)]
        tables = [table for batch in found for table in batch.tables]
        reported += sum(FAULT in table.column_names for table in tables)
    assert reported > 6


@pytest.mark.parametrize("folder", ["json"], indirect=True)
def test_a_folder_in_any_store_is_read(folder: Folder) -> None:
    remote = Folder(f"memory://{uuid4().hex}/in", "json")
    written = remote.add("a/b", 3)
    (batch,) = batches(remote.source(), None)
    assert ids_of(batch) == written
