"""Metadata tables for tests: generated ones, and those of Apache Hudi."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.types import Schema

from lakemark.codec.avro_container import load_schema
from lakemark.config.table_properties import PROPERTIES_PATH, TableProperties
from lakemark.log.delete_block import encode_deletes
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.metadata.index_definition import IndexDefinition
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.metadata_table_opener import open_metadata_table
from lakemark.metadata.slice_rows import SliceRows
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from lakemark.storage import Storage, StorageLocation, open_storage
from lakemark.timeline.clock import UTC_CLOCK
from lakemark.timeline.timeline import Timeline
from lakemark.timeline.timeline_store import TimelineStore
from tests.golden.golden_table import ALL_TABLES, ARCHIVES, OLD_TABLES
from tests.unit.codec.hfiles import HFileBuilder

SCHEMA: dict[str, Any] = load_schema("HoodieMetadataRecord")
SCHEMA_TEXT = json.dumps(SCHEMA)
_PARSED = fastavro.parse_schema(json.loads(SCHEMA_TEXT))

#: Fields of a stored record, without its key.
Record = Mapping[str, Any]
#: What one commit writes to a file group; None deletes what is under a key.
Changes = Mapping[str, Record | None]


def stored(record: Record, schema: Schema = _PARSED) -> bytes:
    """Encode a record in Avro, with an empty key as Apache Hudi writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, {"key": "", "type": 0, **record})
    return stream.getvalue()


def hfile(records: Mapping[str, Record]) -> bytes:
    """Encode records as a base file or as the content of a log block."""
    entries = sorted((key.encode(), stored(record)) for key, record in records.items())
    return HFileBuilder(info={b"schema": SCHEMA_TEXT.encode()}).build(entries)


@dataclass
class MadeUpTable:
    """File groups of one metadata partition, in memory.

    Attributes:
        partition: its name.
        storage: the storage of the files.
    """

    partition: str
    storage: Storage = field(default_factory=lambda: open_storage(_nowhere()))
    slices: list[FileSlice] = field(default_factory=list)

    def add(self, file_id: str, base: Mapping[str, Record] | None, *commits: Changes) -> None:
        """Add a file group: a base file if there is one, and a log for each commit."""
        base_file = None if base is None else self._base(file_id, hfile(base))
        logs = tuple(self._log(file_id, number, c) for number, c in enumerate(commits, start=1))
        group = FileGroupId(self.partition, file_id)
        self.slices.append(FileSlice(group, "0" * 17, base_file, logs))

    def open(self, definition: IndexDefinition | None = None) -> MetadataTable:
        """Open a metadata table that has only this partition; every instant in it is valid."""
        definitions = {self.partition: definition} if definition else {}
        rows = SliceRows(self.storage, lambda instant: True)
        return MetadataTable(
            frozenset([self.partition]), lambda partition: self.slices, rows, definitions
        )

    def _base(self, file_id: str, data: bytes) -> BaseFile:
        file = BaseFile(
            self.partition, BaseFileName(file_id, "0-0-0", "0" * 17, "hfile"), len(data)
        )
        self.storage.create(file.path, data)
        return file

    def _log(self, file_id: str, number: int, changes: Changes) -> LogFile:
        data = log_bytes(f"{number:017d}", changes)
        name = LogFileName(file_id, f"{number:017d}", 1, "0-0-0")
        file = LogFile(self.partition, name, len(data))
        self.storage.create(file.path, data)
        return file


_made = 0


def _nowhere() -> StorageLocation:
    global _made
    _made += 1
    return StorageLocation(f"memory://metadata-test-{_made}")


def log_bytes(instant: str, changes: Changes) -> bytes:
    """Encode a log file with the blocks of one commit."""
    header = {HeaderKey.INSTANT_TIME: instant}
    written = {key: record for key, record in changes.items() if record is not None}
    deleted = [key for key, record in changes.items() if record is None]
    blocks = b""
    if deleted:
        keys = pa.array(deleted, pa.string())
        blocks += encode(BlockType.DELETE, header, encode_deletes(keys, keys))
    if written or not deleted:
        with_schema = {**header, HeaderKey.SCHEMA: SCHEMA_TEXT}
        blocks += encode(BlockType.HFILE_DATA, with_schema, hfile(written))
    return blocks


@dataclass(frozen=True)
class ApachesTable:
    """A table that Apache Hudi 1.2.0 wrote, with its metadata table."""

    root: Path
    storage: Storage
    properties: TableProperties
    timeline: Timeline
    metadata: MetadataTable

    @classmethod
    def at(cls, root: Path) -> ApachesTable:
        """Load the table in a folder."""
        storage = open_storage(StorageLocation(str(root)))
        properties = TableProperties.parse(storage.read(PROPERTIES_PATH))
        timeline = TimelineStore.of_table(storage, properties).load()
        metadata = open_metadata_table(storage, properties, timeline, UTC_CLOCK)
        assert metadata is not None
        return cls(root, storage, properties, timeline, metadata)


def unpack(name: str, folder: Path) -> ApachesTable:
    """Unpack the table of that name; modification times are kept."""
    with tarfile.open(ARCHIVES / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return ApachesTable.at(folder / name / "table")


@cache
def names_with_metadata() -> list[str]:
    """List the names of the golden tables whose metadata table lakemark reads."""
    return [name for name in ALL_TABLES if name not in OLD_TABLES and _has_metadata(name)]


def _has_metadata(name: str) -> bool:
    archive = ARCHIVES / f"{name}.tar.gz"
    return b"/.hoodie/metadata/" in gzip.decompress(archive.read_bytes())


def statistics(
    low: tuple[str, object] | None,
    high: tuple[str, object] | None,
    *,
    file: str = "f",
    column: str = "c",
    value_type: tuple[int, str | None] | None = None,
    **flags: object,
) -> Record:
    """Create a payload of statistics; a bound is the name of its wrapper and the value."""
    return {
        "type": 3,
        "ColumnStatsMetadata": {
            "fileName": file,
            "columnName": column,
            "minValue": _wrapped(low),
            "maxValue": _wrapped(high),
            "valueCount": 10,
            "nullCount": 1,
            "totalSize": 0,
            "totalUncompressedSize": 0,
            "isDeleted": False,
            "isTightBound": False,
            "valueType": value_type
            and {"typeOrdinal": value_type[0], "additionalInfo": value_type[1]},
            **flags,
        },
    }


def _wrapped(value: tuple[str, object] | None) -> object:
    return value and (f"org.apache.hudi.avro.model.{value[0]}", {"value": value[1]})


def files(sizes: Mapping[str, int | None]) -> Record:
    """Create a payload of files; the size None removes a file."""
    entries = {n: {"size": size or 0, "isDeleted": size is None} for n, size in sizes.items()}
    return {"type": 2, "filesystemMetadata": entries}
