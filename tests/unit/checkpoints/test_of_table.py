"""Progress as a table's timeline tells it, whoever archived what."""

from __future__ import annotations

from uuid import uuid4

from checkpoints import book
from checkpoints.book import Progress
from checkpoints.of_table import book_of, progress_of
from table.hudi_table import open_table
from table.model.action import Action
from table.model.commit_metadata import CommitMetadata
from table.storage import StorageLocation
from table.transaction.transaction import Transaction
from tests.json_stream import JsonStream


def test_no_streamer_goes_back_when_another_writer_archives_its_newest_commit() -> None:
    stream = JsonStream(StorageLocation(f"memory://{uuid4().hex}/orders"), identity="a")
    stream.write([{"id": "x", "ts": 1}])
    table = open_table(stream.location)
    before = book_of(table, table.timeline)
    newest = stream.write([{"id": "y", "ts": 1}])

    table.refresh()
    beside = Transaction.begin(table.access, Action.DELTA_COMMIT, table.timeline)
    name = beside.instant.requested_at
    told = book.encode(before.with_progress("b", Progress(None, name)), "b")
    beside.commit(CommitMetadata(extra_metadata=told), lambda _: None)
    table.refresh()
    *archived, _ = table.timeline.completed()
    table.store.archive(archived, lambda: None)

    table = open_table(stream.location)
    assert [i.requested_at for i in table.timeline.instants] == [name]
    progress = progress_of(table, table.timeline, "a")
    assert progress is not None
    assert progress.commit == newest.instant
    assert book_of(table, table.timeline).streamers["a"] == progress
    again = JsonStream(stream.location, identity="a")
    again.write([{"id": "z", "ts": 1}])
    assert set(again.read()) == set("xyz")
