"""After commits were undone, a run resumes at the checkpoint of the restored state."""

from __future__ import annotations

from uuid import uuid4

from checkpoints.lookup import find_progress
from lakemark.model.action import Action
from lakemark.operations.compact import request_compaction
from lakemark.operations.open_table import open_table
from lakemark.services.restore import restore
from lakemark.storage import StorageLocation
from lakemark.transaction.streamer_progress import commits_kept_active
from tests.json_stream import JsonStream


def test_compaction_that_survives_a_restore_does_not_skip_undone_records() -> None:
    stream = JsonStream(StorageLocation(f"memory://{uuid4().hex}/orders"))
    for ts in (1, 2):  # a base file, and a log
        stream.write([{"id": "a", "ts": ts}])
    assert request_compaction(stream.rows.table) is not None
    kept = stream.write([{"id": "b", "ts": 1}]).instant
    stream.write([{"id": "c", "ts": 1}])
    stream.compact()
    table = open_table(stream.location)
    restore(table.context, kept, is_merge_on_read=True)
    table.refresh()
    assert table.timeline.completed(Action.COMMIT), "the compaction is still completed"
    progress = find_progress(table, table.timeline)
    assert progress is not None
    assert progress.commit == kept
    assert kept in commits_kept_active(table.store, table.timeline), (
        "archival keeps the commit with the checkpoint"
    )
    again = JsonStream(stream.location)
    assert (set(again.read()), again.offset) == (set("ab"), 3)
    again.write([{"id": "c", "ts": 1}])
    assert set(again.read()) == set("abc")
