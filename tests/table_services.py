"""Helpers for tests of table services: small tables, their rows, and their instants."""

from __future__ import annotations

import json
from uuid import uuid4

import pyarrow.parquet as pq

from lakemark.config.table_properties import PROPERTIES_PATH, TableType
from lakemark.model.format_version import FormatVersion
from lakemark.operations.open_table import OpenTable
from lakemark.read.queries import Incremental, Snapshot
from lakemark.storage import Storage, StorageLocation, open_storage
from tests.tables import spec, writer

HISTORY = ".hoodie/timeline/history"

#: An instant of the timeline or the history: requested time and action.
Name = tuple[str, str]


def new_storage() -> Storage:
    return open_storage(StorageLocation(f"memory://{uuid4().hex}/table"))


def make_plain(
    storage: Storage,
    table_type: TableType = TableType.MERGE_ON_READ,
    version: FormatVersion = FormatVersion.V9,
) -> None:
    """Create an empty table without a metadata table, because that would delay archival."""
    made = spec(table_type, version=version)
    storage.create(PROPERTIES_PATH, made.to_properties().to_bytes())


def copy_of(storage: Storage) -> Storage:
    """Copy all objects to a new storage."""
    copy = new_storage()
    for info in storage.list_tree(""):
        copy.put(info.path, storage.read(info.path))
    return copy


def as_of(table: OpenTable, requested_at: str) -> dict[str, tuple[int, int]]:
    """Read the rows by key, as of a commit."""
    rows = table.scan(Snapshot(requested_at), ["id", "ts", "v"]).to_reader().read_all()
    return {row["id"]: (row["ts"], row["v"]) for row in rows.to_pylist()}


def since(table: OpenTable, completed_at: str, end: str | None = None) -> list[tuple[str, int]]:
    """Read the rows that an incremental query returns."""
    rows = table.scan(Incremental(completed_at, end), ["id", "v"]).to_reader().read_all()
    return sorted((row["id"], row["v"]) for row in rows.to_pylist())


def active_names(storage: Storage) -> list[Name]:
    timeline = writer(storage).table.timeline
    return [(i.requested_at, i.action.value) for i in timeline.completed()]


def archived_names(storage: Storage) -> list[Name]:
    """List the requested times of all rows of the history.

    A row that occurs twice is listed twice.
    """
    store = writer(storage).table.store
    if store.version is FormatVersion.V6:
        files = store.load_archived().files
        return [(i.requested_at, i.action.value) for file in files for i in file.instants()]
    names: list[Name] = []
    for file in _named_files(storage):
        with storage.open(f"{HISTORY}/{file}") as stream:
            rows = pq.read_table(stream, columns=["instantTime", "action"])
        names += zip(rows["instantTime"].to_pylist(), rows["action"].to_pylist(), strict=True)
    return names


def _named_files(storage: Storage) -> list[str]:
    if storage.head(f"{HISTORY}/_version_") is None:
        return []
    version = storage.read(f"{HISTORY}/_version_").decode()
    manifest = json.loads(storage.read(f"{HISTORY}/manifest_{version}"))
    return [entry["fileName"] for entry in manifest["files"]]
