from __future__ import annotations

from uuid import uuid4

from lakemark.model.action import Action, State
from lakemark.model.instant import Instant
from lakemark.storage import StorageLocation, open_storage
from streamer.metrics.table_shape import shape_of
from tests.tables import Row, commit, make, writer


def test_small_files_and_pending_services_are_counted() -> None:
    storage = open_storage(StorageLocation(f"memory://{uuid4().hex}/t"))
    make(storage)
    for ts in (1, 2):
        commit(writer(storage), [Row("a", ts), Row("b", ts, region="south")])
    table = writer(storage).table
    for action in (Action.CLEAN, Action.ROLLBACK):
        name = table.context.generate_time(table.timeline.newest_time)
        table.store.create(Instant(name, action, State.REQUESTED))
        table.refresh()
    shape = shape_of(table.view())
    assert {action: count for action, count in shape.pending.items() if count} == {
        "clean": 1,
        "rollback": 1,
    }
    assert {"compaction", "clustering", "restore"} <= shape.pending.keys(), "0 is shown as well"
    assert {each: count for each, count in shape.files.items() if count} == {
        ("base", "64KiB"): 2,
        ("log", "64KiB"): 2,
    }
    assert len(shape.files) == 10
    assert shape.active_instants == 4
