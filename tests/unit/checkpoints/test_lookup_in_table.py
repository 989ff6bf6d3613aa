"""The progress that a table's timeline records, also after archival by any writer."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from checkpoints.checkpoint import KafkaCheckpoint
from checkpoints.edit import write_checkpoint
from checkpoints.lookup import find_progress, find_table_progress
from checkpoints.progress import Progress, TableProgress, encode_progress
from lakemark.config import keys
from lakemark.config.table_spec import TableSpec
from lakemark.model.action import Action
from lakemark.model.commit_metadata import CommitMetadata
from lakemark.model.format_version import FormatVersion
from lakemark.operations.create import create_table
from lakemark.operations.open_table import OpenTable, open_table
from lakemark.storage import Storage, StorageLocation
from lakemark.timeline.locks.lock_provider import LOCK_PATH
from lakemark.transaction.transaction import Transaction
from tests.json_stream import JsonStream
from tests.storages import WatchedStorage, WholeSeconds


def publish(table: OpenTable, identity: str, known: TableProgress) -> str:
    """Commit as a streamer that has seen ``known``; return the requested time."""
    one, _ = Transaction.begin(table.context, Action.DELTA_COMMIT, table.refresh)
    name = one.instant.requested_at
    reported = encode_progress(
        known.with_progress(identity, Progress(checkpoint=None, commit=name)), identity
    )
    one.commit(CommitMetadata(extra_metadata=reported), lambda _: None)
    return name


def test_no_streamer_goes_back_when_another_writer_archives_its_newest_commit() -> None:
    stream = JsonStream(StorageLocation(f"memory://{uuid4().hex}/orders"), identity="a")
    stream.write([{"id": "x", "ts": 1}])
    table = open_table(stream.location)
    before = find_table_progress(table, table.timeline)
    newest = stream.write([{"id": "y", "ts": 1}])

    table.refresh()
    name = publish(table, "b", before)
    table.refresh()
    *archived, _ = table.timeline.completed()
    table.store.archive(archived, lambda: None)

    table = open_table(stream.location)
    assert [i.requested_at for i in table.timeline.instants] == [name]
    progress = find_progress(table, table.timeline, "a")
    assert progress is not None
    assert progress.commit == newest.instant
    assert find_table_progress(table, table.timeline).streamers["a"] == progress
    again = JsonStream(stream.location, identity="a")
    again.write([{"id": "z", "ts": 1}])
    assert set(again.read()) == set("xyz")


@pytest.mark.parametrize("is_local", [True, False])
def test_a_commit_that_waited_for_the_lock_counts_in_version_6(
    tmp_path: Path, is_local: bool
) -> None:
    url = str(tmp_path / "orders") if is_local else f"memory://{uuid4().hex}/orders"
    spec = TableSpec(
        name="orders", record_key=("id",), metadata_table=False, version=FormatVersion.V6
    )
    made = create_table(StorageLocation(url), spec)
    storage = made.storage if is_local else WholeSeconds(made.storage)

    def opened(at: Storage = storage) -> OpenTable:
        return OpenTable(at, made.properties)

    def known() -> TableProgress:
        table = opened()
        return find_table_progress(table, table.timeline)

    met: list[TableProgress] = []

    def others_come_first(method: str, path: str) -> None:
        if path.startswith(LOCK_PATH) and not met:
            publish(opened(), "b", known())
            met.append(known())

    publish(opened(), "a", TableProgress())
    publish(opened(), "b", known())
    waited = publish(opened(WatchedStorage(storage, others_come_first)), "a", known())
    publish(opened(), "b", met[0])

    table = opened()
    progress = find_progress(table, table.timeline, "a")
    assert progress is not None
    assert progress.commit == waited
    assert known().streamers["a"] == progress


def test_progress_that_only_the_archive_knows_is_found() -> None:
    stream = JsonStream(StorageLocation(f"memory://{uuid4().hex}/orders"), identity="a")
    stream.write([{"id": "x", "ts": 1}])
    table = open_table(stream.location)
    one, _ = Transaction.begin(table.context, Action.DELTA_COMMIT, table.refresh)
    one.commit(CommitMetadata(), lambda _: None)
    table.refresh()
    *archived, _ = table.timeline.completed()
    table.store.archive(archived, lambda: None)

    table = open_table(stream.location)
    progress = find_progress(table, table.timeline, "a")
    assert progress is not None
    assert progress.checkpoint == stream.sink.checkpoint()


def test_checkpoint_commit_repeats_schema_and_bucket_count() -> None:
    stream = JsonStream(StorageLocation(f"memory://{uuid4().hex}/orders"), identity="a")
    stream.write([{"id": "x", "ts": 1}])
    table = open_table(stream.location)
    before = table.newest_metadata()
    edit = write_checkpoint(table, "a", KafkaCheckpoint("orders", {0: 0}))
    extra = table.store.read_commit(edit).extra_metadata
    assert before is not None
    for key in (keys.SCHEMA, keys.BUCKET_COUNT):
        assert extra[key] == before.extra_metadata[key]
