"""File slices for tests: a base file and logs, block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.log.data_block import encode_avro, encode_parquet
from lakemark.log.delete_block import encode_deletes
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.merge.record_merger import RecordMerger, event_time_merger
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.model.meta_columns import with_meta_columns
from lakemark.read.file_group_reader import FileGroupReader
from lakemark.schema.avro import to_avro, to_json
from lakemark.storage import Storage, StorageLocation, open_storage

Row = dict[str, Any]

USER_SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("text", pa.string())])
SCHEMA = with_meta_columns(USER_SCHEMA)


class Slice:
    """Builds a file slice: its base file, and one log for each call."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._base: BaseFile | None = None
        self._logs: list[LogFile] = []

    @property
    def storage(self) -> Storage:
        return open_storage(StorageLocation(str(self._root)))

    @property
    def value(self) -> FileSlice:
        return FileSlice(FileGroupId("", "g"), "10", self._base, tuple(self._logs))

    def base(self, rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> Slice:
        name = BaseFileName("g", "0-1-2", "10")
        path = self._root / str(name)
        pq.write_table(table_of(rows, schema), path)
        self._base = BaseFile("", name, path.stat().st_size)
        return self

    def log(self, *blocks: bytes) -> Slice:
        name = LogFileName("g", str(11 + len(self._logs)), 1, "0-1-2")
        data = b"".join(blocks)
        (self._root / str(name)).write_bytes(data)
        self._logs.append(LogFile("", name, len(data)))
        return self

    def reader(
        self, schema: pa.Schema = SCHEMA, merger: RecordMerger | None = None, **options: Any
    ) -> FileGroupReader:
        chosen = merger or event_time_merger(["ts"])
        return FileGroupReader(self.storage, schema, chosen, **options)

    def read(self, schema: pa.Schema = SCHEMA, **options: Any) -> list[Row]:
        return rows_of(self.reader(schema, **options).read(self.value))


def row(key: str, ts: int, text: str | None = None, **more: Any) -> Row:
    return {"_hoodie_record_key": key, "id": key, "ts": ts, "text": text, **more}


def table_of(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)


def rows_of(tables: Iterator[pa.Table]) -> list[Row]:
    found: list[Row] = [row for table in tables for row in table.to_pylist()]
    return [{name: row[name] for name in row if not name.startswith("_hoodie")} for row in found]


def data_block(
    rows: Sequence[Row],
    schema: pa.Schema = SCHEMA,
    instant: str = "11",
    kind: BlockType = BlockType.PARQUET_DATA,
    header: dict[HeaderKey, str] | None = None,
) -> bytes:
    avro = to_avro(schema, "trips")
    encoder = encode_parquet if kind is BlockType.PARQUET_DATA else encode_avro
    entries = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: to_json(avro), **(header or {})}
    return encode(kind, entries, encoder(table_of(rows, schema), avro))


def delete_block(keys: list[str], ordering: pa.Array | None, instant: str = "11") -> bytes:
    partitions = pa.array([""] * len(keys))
    content = encode_deletes(pa.array(keys), partitions, None if ordering is None else [ordering])
    return encode(BlockType.DELETE, {HeaderKey.INSTANT_TIME: instant}, content)


def command_block(instant: str, target: str) -> bytes:
    header = {
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.TARGET_INSTANT_TIME: target,
        HeaderKey.COMMAND_BLOCK_TYPE: "0",
    }
    return encode(BlockType.COMMAND, header, b"")
