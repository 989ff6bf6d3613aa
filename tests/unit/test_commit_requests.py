"""What a commit costs in requests: a small multiple of the file groups, and no listing of data."""

from __future__ import annotations

from table.storage import StorageLocation, open_storage
from table.write.partitioner import divide
from tests.storages import CountingStorage
from tests.tables import INDEX, Row, changes, commit, contents, make, write_files, writer

#: Requests of a commit that are not for its files: timeline, lock, prepared content, markers.
OWN_REQUESTS = 22

#: What the metadata table adds: properties, two states, a log in each of four file groups, content
#: that is prepared, looked at, published and withdrawn.
METADATA_REQUESTS = 11

FIXED_REQUESTS = OWN_REQUESTS + METADATA_REQUESTS

#: Marker, its removal, and the file.
REQUESTS_PER_FILE = 3


def test_a_commit_asks_little_and_lists_no_data_folder() -> None:
    storage = CountingStorage(open_storage(StorageLocation("memory://requests/one")))
    make(storage)
    rows = [Row(f"k{i}", 1, 1, region=f"region{i % 4}") for i in range(100)]
    to = writer(storage)
    commit(to, rows)
    for batch in range(2, 5):
        storage.forget()
        commit(to, [Row(row.id, batch, batch, row.region) for row in rows])
        files = len(divide(changes(rows), INDEX))
        assert len(storage.requests) <= FIXED_REQUESTS + REQUESTS_PER_FILE * files
        listed = [r.path for r in storage.requests if r.method.startswith("list")]
        assert all(path.startswith(".hoodie/") for path in listed), listed
        assert not [path for path in listed if path.startswith(".hoodie/metadata")], listed
    assert set(contents(storage).values()) == {(4, 4)}


def test_round_trips_that_wait_for_each_other_do_not_grow_with_the_files() -> None:
    storage = CountingStorage(open_storage(StorageLocation("memory://requests/two")))
    make(storage)
    to = writer(storage)
    commit(to, [Row(f"k{i}", 1, 1, region=f"region{i % 16}") for i in range(400)])
    written = write_files(to, [Row(f"k{i}", 2, 2, region=f"region{i % 16}") for i in range(400)])
    storage.forget()
    to.commit(written, {})
    sequential = [r for r in storage.requests if r.method != "delete"]
    assert len(sequential) <= FIXED_REQUESTS, [f"{r.method} {r.path}" for r in sequential]
