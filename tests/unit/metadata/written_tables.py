"""A metadata partition of one file group, whose files lakemark's writer has encoded."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa

from lakemark.codec.hfile import Entries
from lakemark.metadata.metadata_files import (
    FIRST_WRITE_TOKEN,
    BaseContent,
    first_log_file,
    log_file,
)
from lakemark.metadata.metadata_table import MetadataTable
from lakemark.metadata.record_changes import RecordChanges, stored_schema
from lakemark.model.file_names import BaseFileName, LogFileName
from lakemark.model.file_slice import BaseFile, FileGroupId, FileSlice, LogFile
from tests.unit.metadata.metadata_tables import MadeUpTable

FILE_ID = "shard-0000-0"
BASE_INSTANT = "20261122000000000"

_PARSED = fastavro.parse_schema(json.loads(stored_schema()))


def written_table(partition: str, base: Entries | None, *commits: RecordChanges) -> MetadataTable:
    """Write an optional base file, the first log of a file group, and a log of each commit."""
    table = MadeUpTable(partition)
    data = [first_log_file(BASE_INSTANT)]
    data += [log_file(c, partition, _instant(n), n) for n, c in enumerate(commits, start=1)]
    logs = []
    for number, content in enumerate(data):
        log = LogFile(partition, _log_name(number), len(content))
        table.storage.create(log.path, content)
        logs.append(log)
    base_of_slice = None
    if base is not None:
        content = BaseContent.of(base, created_ms=1).content
        name = BaseFileName(FILE_ID, FIRST_WRITE_TOKEN, BASE_INSTANT, "hfile")
        base_of_slice = BaseFile(partition, name, len(content))
        table.storage.create(base_of_slice.path, content)
    group = FileGroupId(partition, FILE_ID)
    table.slices.append(FileSlice(group, BASE_INSTANT, base_of_slice, tuple(logs)))
    return table.open()


def decoded(entries: Entries) -> Iterator[tuple[str, dict[str, Any]]]:
    """Decode keys and records with fastavro."""
    for key, value in zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True):
        stream = io.BytesIO(value)
        record = fastavro.schemaless_reader(stream, _PARSED)
        assert stream.read() == b""
        assert isinstance(record, dict)
        yield key.decode(), record


def keys_of(column: pa.Array) -> list[str]:
    return [key.decode() for key in column.to_pylist()]


def _instant(number: int) -> str:
    return str(int(BASE_INSTANT) + number)


def _log_name(number: int) -> LogFileName:
    return LogFileName(FILE_ID, _instant(number), 1, FIRST_WRITE_TOKEN)
