"""Writes archives of both layouts for tests, as Apache Hudi writes them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from typing import Any
from uuid import uuid4

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakemark.codec.avro_container import load_schema
from lakemark.log.log_block import BlockType, HeaderKey, encode
from lakemark.model.action import Action, State
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.instant import Instant
from lakemark.storage import StorageLocation, open_storage
from lakemark.storage.storage import Storage
from lakemark.timeline.content import encode_commit

HISTORY = ".hoodie/timeline/history"
ARCHIVED = ".hoodie/archived"


def new_storage() -> Storage:
    return open_storage(StorageLocation(f"memory://{uuid4()}"))


def instant(number: int, action: Action = Action.DELTA_COMMIT) -> Instant:
    """Return the instant of this number, which completes after the next two are requested."""
    return Instant(time_of(number), action, State.COMPLETED, time_of(number, 25))


def time_of(number: int, millis: int = 0) -> str:
    return str(20260101000000000 + number * 10 + millis)


def metadata_of(item: Instant) -> CommitMetadata:
    return CommitMetadata(extra_metadata={"of": item.requested_at})


def history_file(items: Sequence[Instant], layer: int = 0) -> tuple[str, bytes]:
    """Return the name and the content of a file of the history."""
    rows = pa.table(
        {
            "instantTime": [i.requested_at for i in items],
            "completionTime": [i.completed_at for i in items],
            "action": [str(i.action) for i in items],
            "metadata": [encode_commit(Action.COMMIT, metadata_of(i)) for i in items],
            "plan": pa.nulls(len(items), pa.binary()),
            "version": [1] * len(items),
        }
    )
    sink = BytesIO()
    pq.write_table(rows, sink, row_group_size=4)
    return f"{items[0].requested_at}_{items[-1].requested_at}_{layer}.parquet", sink.getvalue()


def manifest(names: Iterable[str]) -> bytes:
    entries = [{"fileName": name, "fileLen": 1} for name in names]
    return json.dumps({"files": entries}, indent=2).encode()


def put_history(storage: Storage, version: int, files: Iterable[Sequence[Instant]]) -> list[str]:
    """Write a version of the history, and return the paths of its files."""
    encoded = [history_file(items) for items in files]
    for name, content in encoded:
        storage.put(f"{HISTORY}/{name}", content)
    storage.put(f"{HISTORY}/manifest_{version}", manifest(name for name, _ in encoded))
    storage.put(f"{HISTORY}/_version_", str(version).encode())
    return [f"{HISTORY}/{name}" for name, _ in encoded]


def archive_log(items: Iterable[Instant]) -> bytes:
    """Encode an archive log of version 6: for each instant a block with all its states."""
    return b"".join(_block([_entry(i, state) for state in State]) for i in items)


_ENTRY_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "HoodieArchivedMetaEntry",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {
            "name": "hoodieCommitMetadata",
            "type": ["null", load_schema("HoodieCommitMetadata")],
            "default": None,
        },
        {"name": "commitTime", "type": ["null", "string"], "default": None},
        {"name": "actionType", "type": ["null", "string"], "default": None},
        {"name": "actionState", "type": ["null", "string"], "default": None},
        {"name": "stateTransitionTime", "type": ["null", "string"], "default": None},
    ],
}


def _entry(item: Instant, state: State) -> Mapping[str, Any]:
    is_last = state is State.COMPLETED
    return {
        "hoodieCommitMetadata": metadata_of(item).to_record() if is_last else None,
        "commitTime": item.requested_at,
        "actionType": str(item.action),
        "actionState": state.name,
        "stateTransitionTime": item.completed_at if is_last else item.requested_at,
    }


def _block(entries: Sequence[Mapping[str, Any]]) -> bytes:
    schema = fastavro.parse_schema(_ENTRY_SCHEMA)
    content = struct.pack(">ii", 3, len(entries))
    for entry in entries:
        body = BytesIO()
        fastavro.schemaless_writer(body, schema, entry)
        content += struct.pack(">i", len(body.getvalue())) + body.getvalue()
    header = {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: json.dumps(_ENTRY_SCHEMA)}
    return encode(BlockType.AVRO_DATA, header, content)


def merge_plan(candidates: Sequence[str], merged: str) -> bytes:
    """Encode a ``mergeArchivePlan``: which logs are being merged, and into which."""
    schema = {
        "type": "record",
        "name": "HoodieMergeArchiveFilePlan",
        "namespace": "org.apache.hudi.avro.model",
        "fields": [
            {"name": "candidate", "type": ["null", {"type": "array", "items": "string"}]},
            {"name": "mergedArchiveFileName", "type": ["null", "string"], "default": None},
        ],
    }
    plan = {
        "candidate": [f"file:/lake/{path}" for path in candidates],
        "mergedArchiveFileName": merged.rpartition("/")[2],
    }
    sink = BytesIO()
    fastavro.writer(sink, schema, [plan])
    return sink.getvalue()
